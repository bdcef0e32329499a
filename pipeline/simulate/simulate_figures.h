// Figures of a finished run, shared by the simulators of one plan, of pipelines at servers and of
// pipelines in groups.
#pragma once
#include <vector>

#include "pipeline/cost/cost.h"
#include "pipeline/ir/plan_index.h"
#include "pipeline/simulate/simulation.h"

namespace hetu {

/// The middle half of a worker's backwards, in which a run without a flush is in a steady state.
class MiddleHalf {
 public:
  explicit MiddleHalf(int micros) : first_(micros / 4), last_(3 * micros / 4) {}

  /// Records a compute instruction of the worker. Call it in the order of the row.
  void note(const Instr& instr, double at, double time);
  /// Returns micro-batches per time unit, or 0 if there are too few to measure.
  double rate() const { return to_ > from_ ? (last_ - first_) / (to_ - from_) : 0; }
  /// Returns the idle share of the worker.
  double bubble() const { return to_ > from_ ? 1 - busy_ / (to_ - from_) : 0; }

 private:
  int first_, last_, backwards_ = 0;
  double from_ = 0, to_ = 0, busy_ = 0;
};

/// Adds throughput and steady bubble of a run without a flush. `middle` holds the middle half of
/// worker 0 of each pipeline.
void add_rates(Simulation& simulation, const std::vector<MiddleHalf>& middle);

/// Computes makespan, ideal, bubbles and span from the workers' times.
void add_figures(Simulation& simulation);

/// Sorts events by worker and time. Events of a worker that are already in order are moved only
/// once, because there can be millions.
void sort_events(Simulation& simulation);

/// Enters method, sizes and time unit, and the peaks, weight versions and stages of each worker.
/// Throws Plan as audit_rows().
void describe(Simulation& simulation, const PlanIndex& index, const Costs& costs);

}  // namespace hetu
