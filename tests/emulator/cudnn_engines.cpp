// The set of engines, and the shapes that they support, follow the answers of cuDNN 9.19 for an
// H100. For float32 the first engines round to TF32 and report TENSOR_CORE. Plain tensors are
// transposed in a workspace, which is larger than a caller may have. Engines that compute in
// float32, or support small shapes, come later. Two engines never make a plan, and some shapes have
// no engine at all.
#include "tests/emulator/cudnn_engines.h"

namespace hetu::emulator {
namespace {

bool is_narrow(const Convolution& c) { return c.x.type != CUDNN_DATA_FLOAT; }
bool is_last(const Convolution& c) {
  return c.x.channels_last() && c.w.channels_last() && c.y.channels_last();
}
/// Returns true for shapes that no engine supports: one input per group, with dilation.
bool is_lost(const Convolution& c) { return c.w.size[1] == 1 && c.dilation[0] > 1; }

bool any(const Convolution&) { return true; }
bool none(const Convolution&) { return false; }
bool of_float32(const Convolution& c) { return !is_narrow(c); }
bool by_threes(const Convolution& c) {
  return c.w.size[2] == 3 && c.w.size[3] == 3 && c.stride[0] == 1 && c.dilation[0] == 1;
}
bool of_filters(const Convolution& c) { return c.makes == Convolution::Makes::Filter; }
bool of_one_group(const Convolution& c) { return c.groups() == 1; }
bool by_lines(const Convolution& c) {  // matrix units load this many channels at once
  return of_one_group(c) && c.w.size[1] % (is_narrow(c) ? 8 : 4) == 0;
}

std::int64_t nothing(const Convolution&) { return 0; }
std::int64_t too_much(const Convolution&) { return std::int64_t{1} << 36; }
std::int64_t turns(const Convolution& c) {
  return is_last(c) ? 131 : c.x.bytes() + c.y.bytes() + 131;
}
std::int64_t sums_of_it(const Convolution& c) { return c.made().count() * 4 + 64; }

using Note = cudnnBackendNumericalNote_t;
constexpr Note kUnits = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;

struct Engine {
  std::vector<Note> notes;
  bool (*offered)(const Convolution&);
  bool (*makes_plans)(const Convolution&);
  std::int64_t (*workspace)(const Convolution&);
  Sums sums;  ///< for float32; two-byte floats never use Tf32
  bool fallback = false;
};

/// Returns all engines, in the order of their global index.
const std::vector<Engine>& engines() {
  static const auto* const kAll = new std::vector<Engine>{
      {{kUnits, CUDNN_NUMERICAL_NOTE_WINOGRAD}, by_threes, any, nothing, Sums::Coarse},
      {{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, of_filters, any, nothing, Sums::Restless},
      {{CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, any, any, nothing, Sums::Coarse},
      {{}, any, any, too_much, Sums::Coarse},
      {{CUDNN_NUMERICAL_NOTE_FFT}, any, none, nothing, Sums::Coarse},
      {{kUnits}, any, by_lines, turns, Sums::Tf32},
      {{kUnits, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, of_float32, any, turns, Sums::Tf32},
      {{}, any, none, nothing, Sums::Coarse},
      {{}, of_one_group, any, sums_of_it, Sums::Float32, true},
      {{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, any, any, nothing, Sums::Restless, true},
      {{CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}, any, any, nothing, Sums::Float32, true},
  };
  return *kAll;
}

const Engine& engine_of(const Descriptor& config) {
  const Descriptor& engine = config.held(CUDNN_ATTR_ENGINECFG_ENGINE);
  return engines()[static_cast<std::size_t>(
      engine.one<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX))];
}
Convolution convolution_of(const Descriptor& config) {
  const Descriptor& graph =
      config.held(CUDNN_ATTR_ENGINECFG_ENGINE).held(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  return Convolution(graph.held(CUDNN_ATTR_OPERATIONGRAPH_OPS));
}

Descriptor config_of(const Descriptor& graph, std::size_t index) {
  Descriptor engine;
  engine.kind = &kind_of(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.put(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, std::vector{graph});
  engine.put(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, std::vector{static_cast<std::int64_t>(index)});
  engine.put(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, engines()[index].notes);
  engine.finalized = true;
  Descriptor config;
  config.kind = &kind_of(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  config.put(CUDNN_ATTR_ENGINECFG_ENGINE, std::vector{engine});
  config.finalized = true;
  return config;
}

}  // namespace

std::vector<Descriptor> configs_of(const Descriptor& graph, cudnnBackendHeurMode_t mode) {
  if (mode != CUDNN_HEUR_MODE_A && mode != CUDNN_HEUR_MODE_B && mode != CUDNN_HEUR_MODE_FALLBACK)
    throw Refusal(CUDNN_STATUS_NOT_SUPPORTED, "heuristics: a mode that is not known here");
  const Convolution convolution(graph.held(CUDNN_ATTR_OPERATIONGRAPH_OPS));
  std::vector<Descriptor> configs;
  if (is_lost(convolution)) return configs;
  for (std::size_t i = 0; i < engines().size(); ++i)
    if (engines()[i].fallback == (mode == CUDNN_HEUR_MODE_FALLBACK) &&
        engines()[i].offered(convolution))
      configs.push_back(config_of(graph, i));
  return configs;
}

std::int64_t workspace_of(const Descriptor& config) {
  const Convolution convolution = convolution_of(config);
  if (!engine_of(config).makes_plans(convolution)) throw Refusal(CUDNN_STATUS_NOT_SUPPORTED);
  return engine_of(config).workspace(convolution);
}

Chosen::Chosen(const Descriptor& plan)
    : convolution(convolution_of(plan.held(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG))),
      sums(engine_of(plan.held(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)).sums),
      workspace(plan.one<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)) {
  if (sums == Sums::Tf32 && is_narrow(convolution)) sums = Sums::Float32;
}

}  // namespace hetu::emulator
