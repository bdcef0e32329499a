// Preparation of kernels for a number of samples, packed weights, and functions for short batches.
#include "executor/compile/prepared.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "graph/passes/channels_last.h"

namespace hetu {

std::shared_ptr<const PreparedKernel> prepared(const Graph& graph, NodeId n, std::int64_t samples,
                                               const Making& how) {
  const Node& node = graph.nodes[n];
  const auto bound = [&](ValueId v) -> TensorType {
    return {graph.values[v].type.dtype, bind_batch(graph.values[v].type.shape, samples)};
  };
  KernelDesc desc;
  desc.op = node.op;
  desc.name = node.name;
  for (const ValueId v : node.inputs) desc.inputs.push_back(bound(v));
  for (const ValueId v : node.outputs) desc.outputs.push_back(bound(v));
  desc.attrs = &node.attrs;
  desc.images = image_layout(graph, op_set().find(node.op), node);
  desc.batch = samples;
  desc.name_hash = stable_hash(node.attrs.has("key") ? node.attrs.text("key") : node.name);
  return std::make_shared<const PreparedKernel>(how.prepare(desc, how.kernels));
}

Launch read_packed(Launch& launch, const Loc& packed) {
  const PreparedKernel& kernel = *launch.kernel;
  Loc& input = launch.inputs.at(kernel.packed.input);
  Launch packs;
  packs.node = launch.node;
  packs.packs = true;
  packs.kernel = std::make_shared<const PreparedKernel>(PreparedKernel{kernel.packed.pack});
  packs.inputs = {input};
  packs.outputs = {packed};
  launch.packed_input = kernel.packed.input;
  launch.unpacked = std::exchange(input, packed);
  launch.kernel = std::make_shared<const PreparedKernel>(
      PreparedKernel{kernel.packed.run, kernel.scratch_bytes, kernel.implementation});
  return packs;
}

Function with_samples(const Graph& graph, const StagePlan& plan, const Function& function,
                      std::int64_t samples) {
  HETU_ASSERT(samples > 0 && samples <= plan.micro_batch && function.accumulates.empty());
  Function out;
  for (Launch launch : function.launches) {
    if (launch.packed_input != kNone) launch.inputs[launch.packed_input] = launch.unpacked;
    launch.packed_input = kNone;
    launch.kernel = prepared(graph, launch.node, samples, {plan.prepare, plan.kernels});
    out.scratch_bytes = std::max(out.scratch_bytes, launch.kernel->scratch_bytes);
    out.launches.push_back(std::move(launch));
  }
  return out;
}

}  // namespace hetu
