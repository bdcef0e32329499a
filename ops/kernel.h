// How a kernel is found, made ready once, and run. Preparing may allocate and build primitives;
// running allocates nothing.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/device.h"
#include "graph/graph.h"
#include "ops/run_counters.h"

namespace hetu {

/// What changes from call to call. Random numbers are a function of (seed, node name, step, global
/// sample index, element).
struct RunContext {
  std::uint64_t seed = 0;
  std::int64_t step = 0;  ///< optimizer step (or validation batch) number
  std::int64_t sample_offset =
      0;                 ///< index within the global batch of this micro-batch's first sample
  bool training = true;  ///< false: dropout passes its input through
  float loss_scale = 1;  ///< of the gradient of the loss, and so of every gradient
  /// In the place of step and sample_offset, on the device, for kernels that are recorded and run
  /// again (Queue::repeat): read when they run. Null: as they stand here.
  const RunCounters* counters = nullptr;
};

/// What is known when a kernel is prepared: types with the batch bound, attributes, and the key of
/// random numbers.
struct KernelDesc {
  std::string_view op;
  std::string_view name;
  std::vector<TensorType> inputs;
  std::vector<TensorType> outputs;
  const Attrs* attrs = nullptr;
  std::int64_t batch = 1;  ///< samples in this micro-batch
  std::uint64_t name_hash =
      0;  ///< stable_hash(name) of the forward node whose random numbers are used
  Layout images = Layout::Plain;  ///< how the images among inputs and outputs lie
};

/// Arguments of one run. Pointers are 64-byte aligned, dense row-major; an output never overlaps an
/// input.
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

struct PreparedKernel {
  std::function<void(const KernelCall&)> run;
  std::int64_t scratch_bytes = 0;
  const char* implementation =
      "";  ///< "blocked", "pairs", "winograd", "onednn", "vector", "reference"
  /// The same, output 0 added to what is there, the others written; empty where there is no such
  /// form.
  std::function<void(const KernelCall&)> add = {};
  /// The same from an input that was packed before: for inputs that many runs read unchanged.
  /// Worth its bytes where it is there; what is computed is the same, bit for bit.
  struct Packed {
    int input = -1;  ///< which; -1 where there is no such form
    std::int64_t bytes = 0;
    std::function<void(const KernelCall&)> pack = {};  ///< of the input, as input 0, to output 0
    std::function<void(const KernelCall&)> run = {};   ///< gets what `pack` made in its place
  } packed = {};
};

/// Finds a back end's kernel for a node and makes it ready. Throws Unsupported naming the node.
using PrepareKernel = PreparedKernel (*)(const KernelDesc& desc, KernelChoice choice);

/// Which layouts of images a kernel takes.
enum class ImageLayouts : std::uint8_t { Plain, ChannelsLast, Both };

/// One implementation of one operator on one back end. Rows of an operator are tried in order; the
/// plain reference row stands last, has no `fits`, and is an oracle for the others
/// (HETU_KERNELS=reference forces it). The reference of images is plain.
struct KernelRow {
  const char* op;
  const char* implementation;
  bool (*fits)(const KernelDesc&);  ///< nullptr: always
  PreparedKernel (*prepare)(const KernelDesc&);
  ImageLayouts layouts = ImageLayouts::Plain;

  /// Whether it takes these shapes, types and this layout.
  bool takes(const KernelDesc& d) const {
    const auto other = d.images == Layout::Plain ? ImageLayouts::ChannelsLast : ImageLayouts::Plain;
    return layouts != other && (fits == nullptr || fits(d));
  }
};

/// FNV-1a; the same on every machine.
std::uint64_t stable_hash(std::string_view text);

}  // namespace hetu
