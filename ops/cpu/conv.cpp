// conv2d, its gradients and conv_transpose2d. There are three methods: matrix products for windows
// of one pixel, Winograd for 3 x 3 windows, and oneDNN for the rest, in plain or channels-last
// layout.
#include <utility>

#include "ops/cpu/dnnl_conv.h"
#include "ops/cpu/dnnl_product.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/product.h"
#include "ops/cpu/product_kernels.h"
#include "ops/cpu/tables.h"
#include "ops/cpu/winograd.h"

namespace hetu::cpu {
namespace {

// In bfloat16, the widened float32 kernel handles a bias.
bool fits(const KernelDesc& d) {
  const bool takes =
      is_float32(d) || (is_bfloat16(d) && d.inputs.size() == 2 && lacks_for_bfloat16().empty());
  return takes && count_of(d.inputs[0]) > 0 && count_of(d.inputs[1]) > 0;
}

// Pixels of one image (the number of images must not change results).
constexpr std::int64_t kFewPixels = 64;

/// Returns true if the convolution is computed as a matrix product, pixels by channels: windows of
/// one pixel, channels-last. This is faster than oneDNN's convolution before version 3, which
/// reorders the weights first. With later versions it is faster for small images.
bool is_product(const ConvShape& s, const KernelDesc& d) {
  if (has_quick_pixels() && s.x.plane() >= kFewPixels) return false;
  return d.images == Layout::ChannelsLast && s.w.height == 1 && s.w.width == 1 && s.w.stride == 1 &&
         s.w.padding == 0 && s.groups == 1;
}

/// Adds input 2, if the node has it, to the resulting images: one number per channel.
struct Bias {
  bool given;
  std::int64_t rows, channels, pixels;  // adjacent pixels of a channel
  Bias(const KernelDesc& d, const Images& to)
      : given(d.inputs.size() > 2),
        rows(d.images == Layout::Plain ? to.n : to.per_channel()),
        channels(to.channels),
        pixels(d.images == Layout::Plain ? to.plane() : 1) {}
  void add(const KernelCall& c) const {
    if (!given) return;
    const auto* bias = c.in<float>(2);
    auto* y = c.out<float>(0);
#pragma omp parallel for if (rows * channels * pixels > kParallelElements)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < channels; ++j) {
        float* to = y + (r * channels + j) * pixels;
#pragma omp simd
        for (std::int64_t i = 0; i < pixels; ++i) to[i] += bias[j];
      }
  }
};

/// Prepares a matrix product. `o.a` and `o.b` are the indices of the inputs that are its operands.
PreparedKernel multiply(const KernelDesc& d, const ProductOperands& o, const Bias& bias) {
  if (is_bfloat16(d)) return dnnl_product_kernel(d, o);
  const Product product(o.shape);
  return {[product, bias, a = o.a, b = o.b](const KernelCall& c) {
            product.run(c.in<float>(a), c.in<float>(b), nullptr, c.out<float>(0), c.scratch);
            bias.add(c);
          },
          product.scratch_bytes(), "blocked"};
}

/// The tensors of a call, regardless of which one is computed.
struct ConvTensors {
  const void *x, *w, *y;
  ConvTensors(ConvResult result, const KernelCall& c) : x(c.inputs[0]), w(c.inputs[1]), y(nullptr) {
    y = c.outputs[0];
    if (result == ConvResult::InputGrad) std::swap(x, y);
    if (result == ConvResult::WeightGrad) std::swap(w, y);
  }
};

template <class Conv>
PreparedKernel prepared(const Conv& conv, ConvResult result, const Bias& bias, const char* name) {
  return {[=](const KernelCall& c) {
            const ConvTensors t(result, c);
            conv.run(t.x, t.w, t.y, c.scratch);
            bias.add(c);
          },
          conv.scratch_bytes(), name};
}

PreparedKernel convolve(const KernelDesc& d, ConvResult result, const Bias& bias) {
  const ConvShape s = conv_shape(d);
  const DType values = d.inputs[0].dtype;
  // Winograd in float32 needs a quarter of the multiplications. This saves more than bfloat16
  // products that are twice as fast (AVX-512-BF16), but less than those that are eight times as
  // fast (AMX).
  const bool few = values == DType::Float32 || !multiplies_bfloat16_tiles();
  if (d.images == Layout::ChannelsLast && few && Winograd::is_quick() && Winograd::fits(s))
    return prepared(Winograd(s, result, values), result, bias, "winograd");
  return prepared(DnnlConv(s, result, d.images, values), result, bias, "onednn");
}

PreparedKernel conv2d(const KernelDesc& d) {
  const ConvShape s = conv_shape(d);
  const Bias bias(d, s.y);
  if (!is_product(s, d)) return convolve(d, ConvResult::Output, bias);
  return multiply(d, {{1, s.x.per_channel(), s.y.channels, s.x.channels, false, true, false}, 0, 1},
                  bias);
}

/// Also prepares conv_transpose2d.
PreparedKernel conv2d_input_grad(const KernelDesc& d) {
  const ConvShape s = conv_shape(d);
  const Bias bias(d, s.x);
  if (!is_product(s, d)) return convolve(d, ConvResult::InputGrad, bias);
  return multiply(
      d, {{1, s.x.per_channel(), s.x.channels, s.y.channels, false, false, false}, 0, 1}, bias);
}

PreparedKernel conv2d_weight_grad(const KernelDesc& d) {
  const ConvShape s = conv_shape(d);
  const Bias none(d, s.x);
  if (!is_product(s, d)) return convolve(d, ConvResult::WeightGrad, none);
  return multiply(d, {{1, s.y.channels, s.x.channels, s.x.per_channel(), true, false, false}, 1, 0},
                  none);
}

}  // namespace

const KernelTable& conv_rows() {
  constexpr auto kBoth = ImageLayouts::Both;
  static const KernelTable kRows = {
      {"conv2d", "onednn", fits, conv2d, kBoth},
      {"conv2d_input_grad", "onednn", fits, conv2d_input_grad, kBoth},
      {"conv2d_weight_grad", "onednn", fits, conv2d_weight_grad, kBoth},
      {"conv_transpose2d", "onednn", fits, conv2d_input_grad, kBoth},
  };
  return kRows;
}

}  // namespace hetu::cpu
