// StateTensor and DeviceSpan views of a stage's memory.
#include "executor/stage/stage_tensors.h"

#include "executor/stage/curvature.h"

namespace hetu {
namespace {

DeviceSpan span_of(const Stage& stage, const Loc& state, std::int64_t elements, Device& device) {
  const StageMemory& memory = stage.memory();
  if (stage.plan().state_dtype == DType::BFloat16)
    return {nullptr, elements, &device, memory.narrow(state)};
  return {memory.floats(state), elements, &device};
}

}  // namespace

std::vector<StateTensor> state_of(const Graph& graph, const Stage& stage,
                                  OptimizerConfig::Kind optimizer, Device& device) {
  std::vector<StateTensor> out;
  const StageMemory& memory = stage.memory();
  const auto span = [&](float* data, std::int64_t elements) {
    return DeviceSpan{data, elements, &device};
  };
  for (const StageParameter& p : stage.plan().parameters) {
    if (p.served) continue;
    const Parameter& parameter = graph.parameters[p.parameter];
    const Shape& shape = graph.values[parameter.value].type.shape;
    // A factor's inverse is a state of the weight that the factor belongs to.
    const DeviceSpan values = span(memory.newest(p.weight), p.elements);
    if (is_factor(graph, p))
      out.push_back(
          {parameter.factor_of,
           parameter.role == Parameter::Role::InputFactor ? "input_inverse" : "gradient_inverse",
           shape, values, p.owner});
    else
      out.push_back({parameter.name, "", shape, values, p.owner});
    for (std::size_t s = 0; s < p.state.size(); ++s) {
      out.push_back({parameter.name, optimizer_state_name(optimizer, static_cast<int>(s)), shape,
                     span_of(stage, p.state[s], p.elements, device), p.owner});
    }
  }
  for (const StageBuffer& b : stage.plan().buffers) {
    const StateBuffer& buffer = graph.buffers[b.buffer];
    out.push_back({buffer.name, "", graph.values[buffer.value].type.shape,
                   span(memory.floats(b.value), b.elements), true});
  }
  return out;
}

void put_states(const Stage& stage, const StageParameter& parameter, SweepCall& call) {
  const bool narrow = stage.plan().state_dtype == DType::BFloat16;
  for (std::size_t s = 0; s < parameter.state.size(); ++s) {
    if (narrow)
      call.narrow[s] = stage.memory().narrow(parameter.state[s]);
    else
      call.state[s] = stage.memory().floats(parameter.state[s]);
  }
}

std::vector<StateTensor> gradients_of(const Graph& graph, const Stage& stage) {
  std::vector<StateTensor> out;
  for (std::size_t i = 0; i < stage.plan().parameters.size(); ++i) {
    const StageParameter& p = stage.plan().parameters[i];
    const Parameter& parameter = graph.parameters[p.parameter];
    if (p.served || is_factor(graph, p)) continue;
    out.push_back({parameter.name, "gradient", graph.values[parameter.value].type.shape,
                   stage.gradients().span_of(static_cast<int>(i)), p.owner});
  }
  return out;
}

std::vector<ParameterSlice> slices_of(const Graph& graph, const Stage& stage, Device& device) {
  std::vector<ParameterSlice> slices;
  const auto& parameters = stage.plan().parameters;
  for (const StageParameter& p : parameters) {
    ParameterSlice& slice = slices.emplace_back();
    slice.parameter = p.parameter;
    slice.begin = (p.weight.offset - parameters.front().weight.offset) / 4;
    slice.elements = p.elements;
    slice.decays = graph.parameters[p.parameter].decay;
    for (const Loc& state : p.state)
      slice.states.push_back(span_of(stage, state, p.elements, device));
  }
  return slices;
}

std::vector<TableWindow> windows_of(const Stage& stage, Device& device) {
  std::vector<TableWindow> windows;
  for (std::size_t i = 0; i < stage.plan().parameters.size(); ++i) {
    const StageParameter& p = stage.plan().parameters[i];
    if (!p.served) continue;
    windows.push_back({stage.placement(),
                       p.parameter,
                       {stage.memory().newest(p.weight), p.elements, &device},
                       stage.gradients().span_of(static_cast<int>(i))});
  }
  return windows;
}

std::vector<DeviceSpan> persistent_of(const Stage& stage, bool with_buffers, Device& device) {
  std::vector<DeviceSpan> spans = {stage.memory().newest_weights()};
  for (const StageParameter& p : stage.plan().parameters) {
    for (const Loc& state : p.state) spans.push_back(span_of(stage, state, p.elements, device));
  }
  if (!with_buffers) return spans;
  for (const StageBuffer& b : stage.plan().buffers)
    spans.push_back({stage.memory().floats(b.value), b.elements, &device});
  return spans;
}

}  // namespace hetu
