// What a graph and a job of it come to, for hetu.summary.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "executor/job/train_tables.h"
#include "executor/job/trainer.h"
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
  row["weights"] = memory.weights * memory.weight_copies + memory.buffers;
  row["optimizer"] = memory.optimizer;
  row["gradients"] = memory.gradients + memory.averages;
  row["activations"] = memory.saved * memory.saved_copies + memory.held * memory.held_copies;
  row["other"] = memory.feeds + memory.boundaries + memory.scratch;
  row["peak"] = memory.peak();
  return row;
}

nb::list plan_memory(const Graph& graph, const nb::dict& optimizer, const TrainerOptions& options) {
  nb::list out;
  for (const WorkerMemory& worker : Trainer::memories(graph, optimizer_of(optimizer), options)) {
    nb::list stages;
    for (const auto& [stage, memory] : worker.stages) stages.append(memory_dict(stage, memory));
    out.append(stages);
  }
  return out;
}

}  // namespace

void bind_summary(nb::module_& m) {
  m.def("graph_nodes", &graph_nodes,
        "The nodes of a graph, in an order in which inputs come first: name, op, block, whether it "
        "is of the backward pass, values, types, operations for one sample.");
  m.def("plan_memory", &plan_memory,
        "Bytes by worker of a pipeline and by its stages, as the plan of such a job has them.");
}

}  // namespace hetu
