#include "executor/stage/curvature.h"

#include <algorithm>

#include "graph/base/error.h"

namespace hetu {

using Role = Parameter::Role;

bool has_factors(const Graph& graph) {
  return std::any_of(graph.parameters.begin(), graph.parameters.end(),
                     [](const Parameter& p) { return p.role != Role::Weight; });
}

bool is_factor(const Graph& graph, const StageParameter& parameter) {
  return graph.parameters[parameter.parameter].role != Role::Weight;
}

namespace {

// The bias that is added where `weight` is multiplied, if nothing else reads it: what comes through
// several layers has no one factor.
ValueId bias_of(const Graph& graph, ValueId weight) {
  for (const Node& node : graph.nodes) {
    if (node.op != "linear" && node.op != "conv2d") continue;
    if (node.inputs[1] != weight || node.inputs.size() < 3) continue;
    const ValueId bias = node.inputs[2];
    const auto is_use = [&](const GradientUse& use) {
      return graph.parameters[use.parameter].value == bias;
    };
    return std::count_if(graph.gradients.begin(), graph.gradients.end(), is_use) == 1 ? bias
                                                                                      : kNone;
  }
  return kNone;
}

}  // namespace

Curvature::Curvature(const Graph& graph, const Stage& stage, Device& device)
    : stage_(&stage), device_(&device) {
  const std::vector<StageParameter>& here = stage.plan().parameters;
  const auto place_of = [&](const auto& is_it) {
    const auto found = std::find_if(here.begin(), here.end(), [&](const StageParameter& p) {
      return is_it(graph.parameters[p.parameter]);
    });
    return found == here.end() ? -1 : static_cast<int>(found - here.begin());
  };
  for (int w = 0; w < static_cast<int>(here.size()); ++w) {
    const Parameter& weight = graph.parameters[here[w].parameter];
    const auto factor = [&](Role role) {
      return place_of(
          [&](const Parameter& p) { return p.role == role && p.factor_of == weight.name; });
    };
    const int input = factor(Role::InputFactor);
    if (weight.role != Role::Weight || input < 0) continue;
    const Shape& shape = graph.values[weight.value].type.shape;  // [outputs, …]
    Layer layer{w,       -1, input, factor(Role::GradientFactor), element_count(shape) / shape[0],
                shape[0]};
    const ValueId bias = bias_of(graph, weight.value);
    if (bias != kNone) layer.bias = place_of([&](const Parameter& p) { return p.value == bias; });
    HETU_ASSERT(layer.gradient >= 0);
    layers_.push_back(layer);
  }
}

void Curvature::precondition(const Kfac& kfac, const StagesOptions& options,
                             std::int64_t updates) const {
  const std::int64_t samples = options.micro_batch * options.micro_batches * options.pipelines;
  const bool refresh = updates % kfac.every == 0;
  const auto sum = [&](int p) { return stage_->gradients().sum_of(p); };
  const auto inverse = [&](int p) {
    return stage_->memory().newest(stage_->plan().parameters[p].weight);
  };
  for (const Layer& layer : layers_) {
    KroneckerCall call;
    call.inputs = layer.inputs;
    call.outputs = layer.outputs;
    call.input_scale = 1 / static_cast<double>(samples);
    call.gradient_scale = static_cast<double>(samples);
    call.damping = kfac.damping;
    call.input_sum = sum(layer.input);
    call.gradient_sum = sum(layer.gradient);
    call.input_inverse = inverse(layer.input);
    call.gradient_inverse = inverse(layer.gradient);
    float* const weight = sum(layer.weight);
    float* const bias = layer.bias < 0 ? nullptr : sum(layer.bias);
    device_->queue().run([=, &kernels = device_->kernels()](Reach at) {
      KroneckerCall here = call;
      here.input_sum = at(call.input_sum);
      here.gradient_sum = at(call.gradient_sum);
      here.input_inverse = at(call.input_inverse);
      here.gradient_inverse = at(call.gradient_inverse);
      if (refresh) kernels.invert_factors(here);
      kernels.precondition(at(weight), call.outputs, call.inputs, here.gradient_inverse,
                           here.input_inverse);
      if (bias != nullptr)
        kernels.precondition(at(bias), call.outputs, 1, here.gradient_inverse, nullptr);
    });
  }
}

}  // namespace hetu
