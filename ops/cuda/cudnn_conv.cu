// Convolutions by cuDNN where it is there, before the products of conv.cu. Channels-last images
// want weights that lie so, too, for the card's matrix units: they are turned on the way.
#include <launch.h>

#include <algorithm>

#include "ops/cuda/cudnn_conv.h"
#include "ops/cuda/numbers.h"

namespace hetu::cuda {
namespace {

using cpu::ConvShape;

constexpr std::int64_t kLeastInputs = 8;  ///< what matrix units take of two bytes at once

/// Weights [outputs, inputs, window] as [outputs, window, inputs], or back; of one input and one
/// tap as they are, in another dtype.
struct TurnOf {
  Reader from;
  Writer to;
  std::int64_t inputs, taps;
  bool back;
  HETU_HD void operator()(std::int64_t i) const {  // a place of the plain ones
    const std::int64_t tap = i % taps, input = i / taps % inputs, output = i / taps / inputs;
    const std::int64_t turned = (output * taps + tap) * inputs + input;
    to.set(back ? i : turned, from[back ? turned : i]);
  }
};

ConvMakes what_makes(const KernelDesc& d) {
  if (d.op == "conv2d") return ConvMakes::Output;
  return d.op == "conv2d_weight_grad" ? ConvMakes::Weights : ConvMakes::Input;
}

PreparedKernel own_kernel(const KernelDesc& d) {
  const auto& rows = conv_rows();
  const auto own = std::find_if(rows.begin(), rows.end(), [&](auto& r) { return d.op == r.op; });
  return own->prepare(d);
}

class Convolution {
 public:
  explicit Convolution(const KernelDesc& d)
      : task_{what_makes(d), cpu::conv_shape(d), d.images, d.inputs[0].dtype, std::string(d.name)},
        result_(d.outputs[0].dtype),
        conv_(task_),
        own_(own_kernel(d)),
        turns_(d.images != Layout::Plain && taps() > 1 && task_.shape.group_inputs() > 1),
        turned_at_((own_.scratch_bytes + 63) / 64 * 64) {}

  std::int64_t scratch_bytes() const {
    const bool elsewhere = turns_ || result_ != task_.dtype;
    return turned_at_ + (elsewhere ? weights() * std::int64_t{sizeof(float)} : 0);
  }

  void operator()(const KernelCall& c) const {
    if (!conv_.there()) return own_.run(c);
    void* const turned = static_cast<char*>(c.scratch) + turned_at_;
    if (task_.makes == ConvMakes::Weights) {
      const bool elsewhere = turns_ || result_ != task_.dtype;
      conv_(c.inputs[0], elsewhere ? turned : c.outputs[0], c.inputs[1]);
      if (elsewhere) turn(turned, c.outputs[0], result_, true);
      return;
    }
    const void* w = c.inputs[1];
    if (turns_) {
      turn(w, turned, task_.dtype, false);
      w = turned;
    }
    if (task_.makes == ConvMakes::Output)
      conv_(c.inputs[0], w, c.outputs[0]);
    else
      conv_(c.outputs[0], w, c.inputs[0]);
  }

 private:
  std::int64_t taps() const { return task_.shape.w.height * task_.shape.w.width; }
  std::int64_t weights() const {
    return task_.shape.y.channels * task_.shape.group_inputs() * taps();
  }
  void turn(const void* from, void* to, DType result, bool back) const {
    for_each(weights(), TurnOf{{from, task_.dtype},
                               {to, result},
                               turns_ ? task_.shape.group_inputs() : 1,
                               turns_ ? taps() : 1,
                               back});
  }

  ConvTask task_;
  DType
      result_;  ///< of the node; cuDNN's engines that sum weights' gradients fast give task_.dtype
  CudnnConv conv_;
  PreparedKernel own_;
  bool turns_;
  std::int64_t turned_at_;  ///< bytes into scratch
};

/// Without a bias, in one dtype; gradients of weights in float32, too, rounded to theirs by cuDNN.
bool fits(const KernelDesc& d) {
  if (!has_cudnn() || d.inputs.size() != 2) return false;
  for (const auto* types : {&d.inputs, &d.outputs})
    for (const TensorType& t : *types)
      if (cpu::count_of(t) == 0) return false;
  const DType dtype = d.inputs[0].dtype, result = d.outputs[0].dtype;
  const bool wide = what_makes(d) == ConvMakes::Weights && result == DType::Float32;
  // Of the first layer: its engines for gradients of weights take twice as long as own kernels.
  if (wide && is_narrow(dtype) && cpu::conv_shape(d).group_inputs() < kLeastInputs) return false;
  return d.inputs[1].dtype == dtype && (result == dtype || wide) &&
         (is_narrow(dtype) || dtype == DType::Float32);
}

PreparedKernel prepare(const KernelDesc& d) {
  PreparedKernel made = kernel<Convolution>(d);
  made.implementation = "cudnn";
  return made;
}

KernelRow cudnn_row(const char* op) { return {op, "cudnn", fits, prepare, ImageLayouts::Both}; }

}  // namespace

const KernelTable& cudnn_rows() {
  static const KernelTable kRows = {cudnn_row("conv2d"), cudnn_row("conv2d_input_grad"),
                                    cudnn_row("conv_transpose2d"), cudnn_row("conv2d_weight_grad")};
  return kRows;
}

}  // namespace hetu::cuda
