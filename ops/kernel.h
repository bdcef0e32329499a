// The interface of kernels: how they are found, prepared once, and run. Preparation may allocate
// memory and build primitives. Running allocates nothing.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/device.h"
#include "graph/graph.h"
#include "ops/run_counters.h"

namespace hetu {

/// Arguments that change from call to call. Random numbers depend on (seed, node name, step, global
/// sample index, element).
struct RunContext {
  std::uint64_t seed = 0;
  std::int64_t step = 0;  ///< number of the optimizer step or validation batch
  /// Index of this micro-batch's first sample within the global batch.
  std::int64_t sample_offset = 0;
  bool training = true;  ///< false: dropout passes its input through
  float loss_scale = 1;  ///< multiplies the gradient of the loss, and so every gradient
  /// Counters in device memory, which a kernel reads when it runs. They replace `step` and
  /// `sample_offset` for kernels that are recorded and replayed (Queue::repeat). Null: use the
  /// fields above.
  const RunCounters* counters = nullptr;
};

/// The facts known when a kernel is prepared: types with the batch bound, attributes, and the key
/// of its random numbers.
struct KernelDesc {
  std::string_view op;
  std::string_view name;
  std::vector<TensorType> inputs;
  std::vector<TensorType> outputs;
  const Attrs* attrs = nullptr;
  std::int64_t batch = 1;  ///< samples in this micro-batch
  /// stable_hash of the name of the forward node whose random numbers are used.
  std::uint64_t name_hash = 0;
  Layout images = Layout::Plain;  ///< layout of the images among inputs and outputs
};

/// Arguments of one run. Tensors are dense and row-major, with 64-byte aligned pointers. An output
/// never overlaps an input.
struct KernelCall {
  const void* const* inputs;
  void* const* outputs;
  void* scratch;
  const RunContext& run;

  template <class T>
  const T* in(int i) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <class T>
  T* out(int i) const {
    return static_cast<T*>(outputs[i]);
  }
};

/// A kernel that is ready to run.
struct PreparedKernel {
  std::function<void(const KernelCall&)> run;
  std::int64_t scratch_bytes = 0;
  /// "blocked", "pairs", "winograd", "onednn", "vector" or "reference", for example.
  const char* implementation = "";
  /// As `run`, but adds to the contents of output 0; other outputs are written. Empty if the kernel
  /// has no such form.
  std::function<void(const KernelCall&)> add = {};
  /// A form that reads a packed input, for inputs that stay unchanged over many runs (weights). The
  /// results are bit-identical. Where this form exists, it is worth its memory.
  struct Packed {
    int input = -1;  ///< index of the input; -1 if there is no such form
    /// Size of the packed input.
    std::int64_t bytes = 0;
    /// Packs the input, passed as input 0, into output 0.
    std::function<void(const KernelCall&)> pack = {};
    /// As PreparedKernel::run, with the packed input in place of the original.
    std::function<void(const KernelCall&)> run = {};
  } packed = {};
};

/// A function that finds and prepares a back end's kernel for a node. Throws Unsupported with the
/// node's name.
using PrepareKernel = PreparedKernel (*)(const KernelDesc& desc, KernelChoice choice);

/// The image layouts that a kernel accepts.
enum class ImageLayouts : std::uint8_t { Plain, ChannelsLast, Both };

/// One implementation of one operator on one back end. The rows of an operator are tried in order.
/// The reference row comes last, has no `fits`, and serves as an oracle for the others
/// (HETU_KERNELS=reference selects it). The reference for images is plain.
struct KernelRow {
  const char* op;
  const char* implementation;
  bool (*fits)(const KernelDesc&);  ///< nullptr: always
  PreparedKernel (*prepare)(const KernelDesc&);
  ImageLayouts layouts = ImageLayouts::Plain;

  /// Returns true if the row accepts these shapes, types and image layout.
  bool takes(const KernelDesc& d) const {
    const auto other = d.images == Layout::Plain ? ImageLayouts::ChannelsLast : ImageLayouts::Plain;
    return layouts != other && (fits == nullptr || fits(d));
  }
};

/// Returns the 64-bit FNV-1a hash of the text, which is the same on every machine.
std::uint64_t stable_hash(std::string_view text);

}  // namespace hetu
