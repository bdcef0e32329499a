// conv2d and its gradients as oneDNN convolutions, plain and channels-last.
#include "ops/cpu/dnnl_conv.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

bool fits(const KernelDesc& d) {
  return is_float32(d) && count_of(d.inputs[0]) > 0 && count_of(d.inputs[1]) > 0;
}

PreparedKernel conv2d(const KernelDesc& d) {
  const DnnlConv conv(conv_shape(d), ConvResult::Output, d.images);
  return {[=](const KernelCall& c) { conv.run(c.inputs[0], c.inputs[1], c.outputs[0], c.scratch); },
          conv.scratch_bytes(), "onednn"};
}

PreparedKernel conv2d_input_grad(const KernelDesc& d) {
  const DnnlConv conv(conv_shape(d), ConvResult::InputGrad, d.images);
  return {[=](const KernelCall& c) { conv.run(c.outputs[0], c.inputs[1], c.inputs[0], c.scratch); },
          conv.scratch_bytes(), "onednn"};
}

PreparedKernel conv2d_weight_grad(const KernelDesc& d) {
  const DnnlConv conv(conv_shape(d), ConvResult::WeightGrad, d.images);
  return {[=](const KernelCall& c) { conv.run(c.inputs[0], c.outputs[0], c.inputs[1], c.scratch); },
          conv.scratch_bytes(), "onednn"};
}

}  // namespace

const KernelTable& conv_rows() {
  constexpr auto kBoth = ImageLayouts::Both;
  static const KernelTable kRows = {
      {"conv2d", "onednn", fits, conv2d, kBoth},
      {"conv2d_input_grad", "onednn", fits, conv2d_input_grad, kBoth},
      {"conv2d_weight_grad", "onednn", fits, conv2d_weight_grad, kBoth},
  };
  return kRows;
}

}  // namespace hetu::cpu
