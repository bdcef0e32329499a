// Dense parameters are updated by one call for all (sweep_all), tables with touched rows one by
// one. A table updated by rows gets no rounded copy here, and the stage then rounds at the next
// forward.
#include "executor/stage/stage_sweep.h"

#include <vector>

#include "base/error.h"
#include "executor/stage/curvature.h"
#include "executor/stage/stage_tensors.h"

namespace hetu {

void sweep_stage(const Graph& graph, Stage& stage, const OptimizerConfig& optimizer, Device& device,
                 const std::function<SweepCall(const StageParameter&)>& call_of) {
  const char* const name = optimizer_name(optimizer.kind);
  const Sweep sweep = device.kernels().sweep(name);
  if (sweep == nullptr)
    fail(Code::Unsupported, "device {} does not support optimizer '{}'", device.name(), name);
  const StageMemory& memory = stage.memory();
  std::vector<SweepCall> whole;
  bool rounds = stage.rounds_in_update();
  for (std::size_t i = 0; i < stage.plan().parameters.size(); ++i) {
    const StageParameter& p = stage.plan().parameters[i];
    if (p.served || is_factor(graph, p)) continue;
    SweepCall call = call_of(p);
    call.weight = memory.newest(p.weight);
    call.gradient = stage.gradients().sum_of(static_cast<int>(i));
    put_states(stage, p, call);
    call.elements = p.elements;
    call.decay = graph.parameters[p.parameter].decay;
    const TouchedRows rows = keeps_idle_rows(optimizer, call.decay)
                                 ? stage.gradients().rows_of(static_cast<int>(i))
                                 : TouchedRows();
    const bool has_copy = p.rounded_dtype != DType::Float32;
    if (rows.bits == nullptr) {
      if (rounds && has_copy) {
        call.rounded = memory.narrow(p.rounded);
        call.rounded_dtype = p.rounded_dtype;
      }
      whole.push_back(call);
      continue;
    }
    device.queue().run([call, sweep, rows, by_rows = device.kernels().sweep_rows](AddressMap at) {
      by_rows(to_kernel_addresses(call, at), to_kernel_addresses(rows, at), sweep);
    });
    rounds = rounds && !has_copy;
  }
  device.queue().run([whole, sweep, sweep_all = device.kernels().sweep_all](AddressMap at) {
    std::vector<SweepCall> calls;
    for (const SweepCall& call : whole) calls.push_back(to_kernel_addresses(call, at));
    sweep_all(calls, sweep);
  });
  if (rounds) stage.rounded();
}

}  // namespace hetu
