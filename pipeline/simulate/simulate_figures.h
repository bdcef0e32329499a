// What the simulator of one plan and that of pipelines in groups share: the
// figures of a run whose instructions are booked.
#pragma once
#include <vector>

#include "pipeline/cost/cost.h"
#include "pipeline/ir/plan_index.h"
#include "pipeline/simulate/simulation.h"

namespace hetu {

/// The middle half of a worker's backwards, in which a run without a flush is steady.
class MiddleHalf {
 public:
  explicit MiddleHalf(int micros) : first_(micros / 4), last_(3 * micros / 4) {}

  /// Takes the worker's compute instructions in their order.
  void note(const Instr& instr, double at, double time);
  /// Micro-batches per time unit; 0 if there are none.
  double rate() const { return to_ > from_ ? (last_ - first_) / (to_ - from_) : 0; }
  /// Idle share of the worker.
  double bubble() const { return to_ > from_ ? 1 - busy_ / (to_ - from_) : 0; }

 private:
  int first_, last_, backwards_ = 0;
  double from_ = 0, to_ = 0, busy_ = 0;
};

/// Of a run without a flush: throughput and steady bubble, by the halves of each pipeline's worker
/// 0.
void add_rates(Simulation& simulation, const std::vector<MiddleHalf>& middle);

/// Makespan, ideal, bubbles and span from the workers' times.
void add_figures(Simulation& simulation);

/// Events by worker and time; millions that come nearly in order of time are moved once.
void sort_events(Simulation& simulation);

/// Method, sizes and unit, and of each worker peaks, weight versions and stages. Throws Plan as
/// audit_rows.
void describe(Simulation& simulation, const PlanIndex& index, const Costs& costs);

}  // namespace hetu
