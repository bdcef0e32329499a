// What the simulator of one plan and that of pipelines in groups share: the
// figures of a run whose instructions are booked.
#pragma once
#include "pipeline/cost/cost.h"
#include "pipeline/ir/plan_index.h"
#include "pipeline/simulate/simulation.h"

namespace hetu {

/// Makespan, ideal, bubbles and span from the workers' times.
void add_figures(Simulation& simulation);

/// Events by worker and time; millions that come nearly in order of time are moved once.
void sort_events(Simulation& simulation);

/// Method, sizes and unit, and of each worker peaks, weight versions and stages. Throws Plan as
/// audit_rows.
void describe(Simulation& simulation, const PlanIndex& index, const Costs& costs);

}  // namespace hetu
