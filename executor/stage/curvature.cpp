// K-FAC's inversions and preconditioning on a stage, by kernels of the device.
#include "executor/stage/curvature.h"

#include <algorithm>

#include "base/error.h"

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

// Returns the bias that is added to the product with `weight`, if no other layer reads it. A bias
// used by several layers has no single factor. Returns kNone otherwise.
ValueId bias_of(const Graph& graph, ValueId weight) {
  for (const Node& node : graph.nodes) {
    // Layers fused with an activation ("linear_gelu", …) count, too.
    if (!node.op.starts_with("linear") && node.op != "conv2d") continue;
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

Curvature::Curvature(const Graph& graph, Stage& stage, Device& device, std::int64_t samples)
    : stage_(stage), device_(device), samples_(static_cast<double>(samples)) {
  const std::vector<StageParameter>& here = stage.plan().parameters;
  const auto place_of = [&](const auto& is_it) {
    const auto found = std::find_if(here.begin(), here.end(), [&](const StageParameter& p) {
      return is_it(graph.parameters[p.parameter]);
    });
    return found == here.end() ? -1 : static_cast<int>(found - here.begin());
  };
  for (int i = 0; i < static_cast<int>(here.size()); ++i) {
    if (here[i].role != Role::InputFactor) continue;
    const std::string& name = graph.parameters[here[i].parameter].factor_of;
    Layer layer;
    layer.input = i;
    layer.gradient = place_of(
        [&](const Parameter& p) { return p.role == Role::GradientFactor && p.factor_of == name; });
    layer.weight =
        place_of([&](const Parameter& p) { return p.role == Role::Weight && p.name == name; });
    HETU_ASSERT(layer.gradient >= 0 && layer.weight >= 0);
    const ValueId weight = graph.parameters[here[layer.weight].parameter].value;
    const Shape& shape = graph.values[weight].type.shape;
    layer.outputs = shape[0];  // [outputs, …]
    layer.inputs = element_count(shape) / shape[0];
    const ValueId bias = bias_of(graph, weight);
    if (bias != kNone) layer.bias = place_of([&](const Parameter& p) { return p.value == bias; });
    layers_.push_back(layer);
  }
}

// Inverts one factor. The damping of each factor depends on the traces of both, so both sums stay
// until both are inverted.
void Curvature::invert(int number, bool inputs, const Kfac& kfac) {
  const Layer& layer = layers_.at(static_cast<std::size_t>(number));
  KroneckerCall call;
  call.inputs = layer.inputs;
  call.outputs = layer.outputs;
  call.input_scale = 1 / samples_;
  call.gradient_scale = samples_;
  call.damping = kfac.damping;
  call.input_sum = sum_of(layer.input);
  call.gradient_sum = sum_of(layer.gradient);
  call.scratch = scratch();
  if (inputs)
    call.input_inverse = inverse_of(layer.input);
  else
    call.gradient_inverse = inverse_of(layer.gradient);
  device_.queue().run([=, &kernels = device_.kernels()](AddressMap at) {
    KroneckerCall here = call;
    here.input_sum = at(call.input_sum);
    here.gradient_sum = at(call.gradient_sum);
    here.scratch = at(call.scratch);
    if (inputs)
      here.input_inverse = at(call.input_inverse);
    else
      here.gradient_inverse = at(call.gradient_inverse);
    kernels.invert_factors(here);
  });
  stage_.gradients().inverted(inputs ? layer.input : layer.gradient);
}

void Curvature::precondition() {
  for (const Layer& layer : layers_) {
    float* const weight = stage_.gradients().sum_of(layer.weight);
    float* const bias = layer.bias < 0 ? nullptr : stage_.gradients().sum_of(layer.bias);
    const float* const a = inverse_of(layer.input);
    const float* const b = inverse_of(layer.gradient);
    device_.queue().run([=, &kernels = device_.kernels(), rows = layer.outputs,
                         columns = layer.inputs, scratch = scratch()](AddressMap at) {
      kernels.precondition(at(weight), rows, columns, at(b), at(a), at(scratch));
      if (bias != nullptr) kernels.precondition(at(bias), rows, 1, at(b), nullptr, at(scratch));
    });
  }
}

Curvatures::Curvatures(const Graph& graph, const std::vector<std::unique_ptr<Stage>>& stages,
                       Device& device, const StagesOptions& options)
    : stages_(stages), of_stages_(stages.size()), pipeline_(options.pipeline) {
  const std::int64_t samples = options.micro_batch * options.all_micros();
  if (options.cycle != nullptr) owners_.emplace(*options.cycle);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (stages[i] && !stages[i]->plan().curvature_a.empty())
      of_stages_[i] = std::make_unique<Curvature>(graph, *stages[i], device, samples);
  }
}

void Curvatures::run(const Instr& instr, const Kfac& kfac) {
  const auto at = static_cast<std::size_t>(instr.stage);
  if (is_curvature(instr.kind)) return stages_.at(at)->add_curvature(instr);
  Curvature& curvature = *of_stages_.at(at);
  if (instr.kind == Kind::Precondition) return curvature.precondition();
  const int layer = owners_->inverted_layer(instr, pipeline_);
  if (layer >= 0) curvature.invert(layer, is_of_inputs(instr.kind), kfac);
}

std::vector<int> Curvatures::buckets(const Instr& gather) const {
  const auto [first, end] = owners_->layers_of(gather.stage, gather.part);
  return stages_.at(static_cast<std::size_t>(gather.stage))->gradients().inverses(first, end);
}

void Curvatures::begin_feeding() {
  for (const auto& stage : stages_)
    if (stage) stage->begin_feeding();
}

}  // namespace hetu
