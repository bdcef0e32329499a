// Predicts pipelines that meet at servers, each at its own pace within the staleness. Part of
// simulate(); nobody else includes it.
#pragma once
#include "pipeline/cost/cost.h"
#include "pipeline/ir/schedule.h"
#include "pipeline/simulate/simulate_options.h"
#include "pipeline/simulate/simulation.h"

namespace hetu {

/// simulate() of a plan with lowering.servers. A PUSH leaves at once and holds up nothing, and the
/// wave's pull is asked for with it, so that its answer may come beside the micro-batches between;
/// a row stands at a PULL until the answer is there. Servers take one transfer at a time, in the
/// order in which they come or, a pull, in which it can be answered: when each pipeline has pushed
/// what the staleness asks for. Each of options.servers has an equal share of every stage's
/// weights, so that all of them are busy alike; both ways cost the link's latency and
/// Timing::served, a push also Timing::applied. So a pipeline that goes on from a pull leads the
/// slowest by at most D waves at that stage, and until it comes to its next pull, which its next
/// push is before, by at most D
/// + 1.
Simulation simulate_servers(const Schedule& schedule, const Costs& costs,
                            const SimulateOptions& options);

}  // namespace hetu
