// Convolutions of channels-last images with few channels, for tests of their kernels on the host
// and on a GPU.
#pragma once
#include <string_view>
#include <vector>

#include "ops/cuda/registry.h"
#include "tests/ops/samples.h"
#include "tests/ops/tensors.h"

namespace hetu::test {

struct ConvLayer {
  std::int64_t images, inputs, height, width, outputs, window, stride, padding;
};

/// Returns a node of conv2d or conv2d_weight_grad.
inline Case few_channels_case(const ConvLayer& l, const char* op, DType floats, DType result,
                              Sample* sample = nullptr) {
  const OpDef& def = op_set().find(op);
  const std::int64_t down = (l.height + 2 * l.padding - l.window) / l.stride + 1;
  const std::int64_t across = (l.width + 2 * l.padding - l.window) / l.stride + 1;
  const Shape x = {l.images, l.inputs, l.height, l.width}, y = {l.images, l.outputs, down, across};
  Sample s{.shapes = {x, {l.outputs, l.inputs, l.window, l.window}},
           .attrs = {{"stride", l.stride}, {"padding", l.padding}}};
  if (def.name == "conv2d_weight_grad") {
    s.shapes[1] = y;
    for (const char* name : {"height", "width"}) s.attrs.set(name, l.window);
  }
  Case made = make_case(def, s, floats);
  made.outputs[0].dtype = result;
  made.images = Layout::ChannelsLast;
  if (sample != nullptr) *sample = s;
  return made;
}
/// Returns the row for few channels, or null if it does not take the case.
inline const KernelRow* few_channels_row(const Case& c) {
  for (const KernelRow* row : cuda_kernels(c.op))
    if (row->implementation == std::string_view("few_channels") && row->takes(c.desc())) return row;
  return nullptr;
}

/// A node with random inputs. want() returns its results in float64.
struct FewChannelsTask {
  const OpDef& def;
  Sample sample;
  Case c;
  std::vector<Tensor> inputs;

  FewChannelsTask(const ConvLayer& l, const char* op, DType floats, DType result,
                  std::uint64_t seed)
      : def(op_set().find(op)),
        c(few_channels_case(l, op, floats, result, &sample)),
        inputs(make_inputs(c, sample, seed)) {}

  const KernelRow* row() const { return few_channels_row(c); }
  std::vector<Tensor> want() const {
    Case plain = c;
    plain.images = Layout::Plain;
    return in_float64(plain, inputs, {});
  }
  /// Returns the inputs in the row's layout. back() converts the row's results to the layout of the
  /// expected values.
  std::vector<Tensor> there() const { return moved(def.images.inputs, inputs, "channels_last"); }
  std::vector<Tensor> back(const std::vector<Tensor>& made) const {
    return def.images.outputs.empty() ? made : moved(def.images.outputs, made, "plain");
  }
};

}  // namespace hetu::test
