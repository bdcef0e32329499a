// Convolutions by cuDNN, and the description of their tensors. Used by cudnn_conv.cu.
// gpu/cudnn_conv.cpp runs them, gpu/no_cudnn.cpp replaces it in builds without cuDNN, and
// tests/ops/on_host/cudnn_conv.cpp implements them with loops.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "ops/cpu/image_shapes.h"

namespace hetu::cuda {

/// Sizes of [n, c, h, w], and the distance in elements between neighbours on each axis.
struct Strided {
  std::array<std::int64_t, 4> size, step;
  Strided(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w, Layout layout)
      : size{n, c, h, w},
        step(layout == Layout::Plain ? std::array{c * h * w, h * w, w, std::int64_t{1}}
                                     : std::array{h * w * c, std::int64_t{1}, w * c, c}) {}
};

/// The tensor that is computed from the other two.
enum class ConvMakes : std::uint8_t { Output, Input, Weights };

/// A convolution. Images and weights have the same layout.
struct ConvTask {
  ConvMakes makes;
  cpu::ConvShape shape;
  Layout layout;
  DType dtype;
  std::string node;

  Strided x() const { return images(shape.x); }
  Strided y() const { return images(shape.y); }
  Strided w() const {
    return {shape.y.channels, shape.group_inputs(), shape.w.height, shape.w.width, layout};
  }

 private:
  Strided images(const cpu::Images& i) const {
    return {i.n, i.channels, i.height, i.width, layout};
  }
};

/// Returns true if this build supports cuDNN and this process found the library. Needs no GPU.
bool has_cudnn();

/// A convolution, run on the queue of the calling thread. Copies share a plan. The plan is chosen
/// at the first run, because stages are compiled before a device is open. It is the first of the
/// library's plans, ordered by estimated speed, that gives the same bits in every run and fits into
/// the queue's workspace. For float32 without KernelContext::tf32 it must also compute in float32.
class CudnnConv {
 public:
  explicit CudnnConv(const ConvTask& task);
  /// Returns true if the library has such a plan for this GPU. If not, and `warns` is set, logs a
  /// warning once.
  bool there(bool warns = true) const;
  /// Writes the tensor that `makes` names and reads the other two.
  void operator()(const void* x, const void* w, const void* y) const;

 private:
  struct Plan;
  std::shared_ptr<Plan> plan_;
};

}  // namespace hetu::cuda
