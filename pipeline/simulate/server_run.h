// Predicts pipelines that synchronise by servers, each at its own pace within the staleness. Part
// of simulate(), and included only there.
#pragma once
#include "pipeline/cost/cost.h"
#include "pipeline/ir/schedule.h"
#include "pipeline/simulate/simulate_options.h"
#include "pipeline/simulate/simulation.h"

namespace hetu {

/// Simulates a plan with lowering.has_servers(); see simulate(). The model is this:
/// - A PUSH leaves at once and does not delay its row. The pull of the wave is requested together
///   with the push, so its answer may arrive while the micro-batches before the PULL run. A row
///   waits at a PULL until the answer has arrived.
/// - The servers process one transfer at a time. Pushes are processed in the order in which they
///   arrive. A pull is processed when it can be answered: when each pipeline has pushed the waves
///   that the staleness requires.
/// - Each of options.servers has an equal share of every stage's weights, so all servers are
///   equally busy.
/// - Each direction costs the link's latency and Timing::served. A push also costs Timing::applied.
///
/// A pipeline that continues after a pull is therefore at most D waves ahead of the slowest one at
/// that stage. Its next push comes before its next pull, so until that pull it is at most D + 1
/// waves ahead.
Simulation simulate_servers(const Schedule& schedule, const Costs& costs,
                            const SimulateOptions& options);

}  // namespace hetu
