// Sizes, operations and memory of a graph and of a job, for hetu.summary.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "executor/job/job_check.h"
#include "executor/job/job_tables.h"
#include "ops/curvature_times.h"
#include "ops/registry.h"
#include "python/src/bindings.h"
#include "python/src/settings.h"

namespace nb = nanobind;

namespace hetu {
namespace {

nb::list graph_nodes(const Graph& graph) {
  nb::list out;
  for (const Node& node : graph.nodes) {
    nb::list outputs;
    for (const ValueId v : node.outputs) {
      const TensorType& type = graph.values[v].type;
      outputs.append(nb::make_tuple(dtype_name(type.dtype), type.shape));
    }
    nb::dict row;
    row["name"] = node.name;
    row["op"] = node.op;
    row["block"] = node.block;
    row["backward"] = node.phase == Phase::InputGrad || node.phase == Phase::WeightGrad;
    row["inputs"] = node.inputs;
    row["values"] = node.outputs;
    row["outputs"] = outputs;
    row["flops"] = is_leaf(node) ? 0 : node_flops(op_set(), graph, node);
    out.append(row);
  }
  return out;
}

nb::dict memory_dict(int stage, const MemoryPlan& memory) {
  nb::dict row;
  row["stage"] = stage;
  row["weights"] =
      memory.weights * memory.weight_copies + memory.rounded + memory.packed + memory.buffers;
  row["optimizer"] = memory.optimizer;
  row["gradients"] = memory.gradients + memory.averages;
  row["activations"] = memory.saved * memory.saved_copies + memory.held * memory.held_copies;
  row["kfac"] = memory.taps * memory.tap_copies + memory.factor_scratch;
  row["other"] = memory.feeds + memory.boundaries + memory.scratch - memory.factor_scratch;
  row["peak"] = memory.peak();
  return row;
}

nb::list plan_memory(const Graph& graph, const nb::dict& optimizer, const JobOptions& options) {
  nb::list out;
  for (const WorkerMemory& worker : job_memories(graph, optimizer_of(optimizer), options)) {
    nb::list stages;
    for (const auto& [stage, memory] : worker.stages) stages.append(memory_dict(stage, memory));
    out.append(stages);
  }
  return out;
}

std::vector<LinearSides> sides_of(const std::vector<std::pair<std::int64_t, std::int64_t>>& sides) {
  std::vector<LinearSides> layers;
  for (const auto& [inputs, outputs] : sides) layers.push_back({inputs, outputs});
  return layers;
}

}  // namespace

void bind_summary(nb::module_& m) {
  using Sides = std::vector<std::pair<std::int64_t, std::int64_t>>;
  m.def(
      "time_factors",
      [](const Sides& layers, std::int64_t rows, int warm_up, int timed) {
        const nb::gil_scoped_release free;
        return time_factors(sides_of(layers), rows, {warm_up, timed});
      },
      nb::arg("layers"), nb::arg("rows"), nb::arg("warm_up"), nb::arg("timed"),
      "Returns the milliseconds of each timed run of both Kronecker factors of linear layers "
      "(inputs, outputs) for this number of rows.");
  m.def(
      "time_inverses",
      [](const Sides& layers, int warm_up, int timed) {
        const nb::gil_scoped_release free;
        const CurvatureTimes times = time_inverses(sides_of(layers), {warm_up, timed});
        return std::make_pair(times.inversion, times.precondition);
      },
      nb::arg("layers"), nb::arg("warm_up"), nb::arg("timed"),
      "Returns the same for their damped inverses, and for gradients multiplied by them.");
  m.def("graph_nodes", &graph_nodes,
        "Returns the nodes of a graph, inputs before their readers: name, op, block, whether it is "
        "in the backward pass, values, types, operations for one sample.");
  m.def("plan_memory", &plan_memory,
        "Returns the bytes of a pipeline by worker, and of its stages, by the plan of such a job.");
}

}  // namespace hetu
