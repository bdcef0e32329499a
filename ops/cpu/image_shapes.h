// Sizes of convolutions and pools, from a KernelDesc.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "ops/kernel.h"

namespace hetu::cpu {

/// A batch of images [n, channels, height, width].
struct Images {
  std::int64_t n = 0, channels = 0, height = 0, width = 0;
  std::int64_t plane() const { return height * width; }
  std::int64_t elements() const { return n * channels * plane(); }
  /// Returns the number of elements of one channel in the whole batch.
  std::int64_t per_channel() const { return n * plane(); }
};

/// Returns the sizes of a tensor [N, C, H, W].
inline Images images_of(const TensorType& type) {
  const Shape& s = type.shape;
  return {s[0], s[1], s[2], s[3]};
}

/// Windows of height x width elements at distance `dilation`, which move over images by `stride`.
struct Windows {
  std::int64_t height = 0, width = 0, stride = 1, padding = 0, dilation = 1;
};

/// Returns the square windows of a pool.
inline Windows pool_windows(const Attrs& attrs) {
  const std::int64_t kernel = attrs.integer("kernel");
  return {kernel, kernel, attrs.integer("stride"), attrs.integer("padding")};
}

/// The part [begin, end) of a window's `kernel` elements that is inside an image of `size`
/// elements, along one axis. The window starts at `start`, which may be outside.
struct Span {
  std::int64_t begin, end;
};
inline Span inside(std::int64_t start, std::int64_t kernel, std::int64_t size) {
  return {std::max<std::int64_t>(0, -start), std::min(kernel, size - start)};
}

/// The three tensors of a convolution, regardless of which one an operator computes. Each group of
/// channels of y reads one group of channels of x.
struct ConvShape {
  Images x, y;
  Windows w;
  std::int64_t groups = 1;
  std::int64_t group_inputs() const { return x.channels / groups; }
  std::int64_t group_outputs() const { return y.channels / groups; }
};

/// The tensor of a convolution that is computed from the other two.
enum class ConvResult : std::uint8_t { Output, InputGrad, WeightGrad };

/// Returns the sizes of conv2d (x, w -> y), conv2d_input_grad (dy, w -> dx), conv2d_weight_grad (x,
/// dy -> dw) or conv_transpose2d (y, w -> x).
inline ConvShape conv_shape(const KernelDesc& d) {
  const bool forward = d.op == "conv2d";
  const bool input_grad = d.op == "conv2d_input_grad" || d.op == "conv_transpose2d";
  const TensorType& x = input_grad ? d.outputs[0] : d.inputs[0];
  const TensorType& w = forward || input_grad ? d.inputs[1] : d.outputs[0];
  const TensorType& y = forward ? d.outputs[0] : d.inputs[input_grad ? 0 : 1];
  return {images_of(x),
          images_of(y),
          {w.shape[2], w.shape[3], d.attrs->integer("stride"), d.attrs->integer("padding"),
           d.attrs->integer("dilation")},
          d.attrs->integer("groups")};
}

/// The windows of conv2d_factor as rows. A row holds the window's elements in the order of w's
/// [channels, height, width].
struct WindowRows {
  Images x;
  Windows w;
  std::int64_t height = 0, width = 0;  ///< numbers of windows per sample, along each axis
  std::int64_t per_sample() const { return height * width; }
  std::int64_t rows() const { return x.n * per_sample(); }
  std::int64_t columns() const { return x.channels * w.height * w.width; }
};

/// Returns the sizes of conv2d_factor.
inline WindowRows window_rows(const KernelDesc& d) {
  WindowRows r{images_of(d.inputs[0]),
               {d.attrs->integer("height"), d.attrs->integer("width"), d.attrs->integer("stride"),
                d.attrs->integer("padding"), d.attrs->integer("dilation")}};
  const auto count = [&](std::int64_t size, std::int64_t kernel) {
    return (size + 2 * r.w.padding - r.w.dilation * (kernel - 1) - 1) / r.w.stride + 1;
  };
  r.height = count(r.x.height, r.w.height);
  r.width = count(r.x.width, r.w.width);
  return r;
}

/// Checks that batch statistics exist: a single element per channel has none. Throws
/// InvalidArgument with the node's name.
inline void check_batch(const std::string& node, std::int64_t per_channel) {
  require(per_channel > 1,
          "batch_norm '{}': training needs more than one element per channel; use larger "
          "micro-batches or images",
          node);
}

}  // namespace hetu::cpu
