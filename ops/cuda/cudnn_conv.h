// Convolutions by cuDNN, and what it is told of their tensors. Read by cudnn_conv.cu;
// gpu/cudnn_conv.cpp runs them, gpu/no_cudnn.cpp stands for it in builds without, and
// tests/ops/on_host/cudnn_conv.cpp has its loops.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "ops/cpu/image_shapes.h"

namespace hetu::cuda {

/// Sizes of [n, c, h, w], and how many elements lie between neighbours on each axis.
struct Strided {
  std::array<std::int64_t, 4> size, step;
  Strided(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w, Layout layout)
      : size{n, c, h, w},
        step(layout == Layout::Plain ? std::array{c * h * w, h * w, w, std::int64_t{1}}
                                     : std::array{h * w * c, std::int64_t{1}, w * c, c}) {}
};

/// Which of the three tensors is made of the others.
enum class ConvMakes : std::uint8_t { Output, Input, Weights };

/// Images and weights lie alike.
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

/// Whether the library is in this build, and was found by this process. Needs no card.
bool has_cudnn();

/// One convolution, run on the queue of the calling thread. Copies share its plan, which is chosen
/// at the first run, since stages are compiled before a device is open: of those that the library
/// thinks fastest the first that gives the same bits each time, whose workspace the queue has, and,
/// for float32 without Bench::tf32, which computes in float32.
class CudnnConv {
 public:
  explicit CudnnConv(const ConvTask& task);
  /// Whether this card's library has such a plan; where nothing else is asked for it then, a
  /// warning says once that it has none.
  bool there(bool warns = true) const;
  /// What is made is written, the other two are read.
  void operator()(const void* x, const void* w, const void* y) const;

 private:
  struct Plan;
  std::shared_ptr<Plan> plan_;
};

}  // namespace hetu::cuda
