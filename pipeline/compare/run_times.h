// The events of a trace laid over its plan: for each position of each pipeline, when it was
// predicted to run and when it ran. Read by the comparison of both.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "base/trace.h"
#include "pipeline/ir/plan_index.h"

namespace hetu {

inline constexpr TraceSource kPlan = TraceSource::Predicted, kRun = TraceSource::Measured;

/// Microseconds since the start of the run.
struct Span {
  double start_us = 0;
  double end_us = -1;
  bool there() const { return end_us >= start_us; }
  double duration_us() const { return end_us - start_us; }
};

/// One run of the plan: a step, or, for asynchronous plans, several. Both sources
/// count from the start of their own first compute instruction.
struct RunTimes {
  int first_step = 0;
  std::array<std::vector<Span>, 2>
      spans;          ///< by TraceSource; by pipeline * index.size() + position
  int unplanned = 0;  ///< measured events that the plan does not have

  const Span& at(TraceSource source, std::int64_t cell) const {
    return spans[static_cast<std::size_t>(source)][cell];
  }
  /// End of the last compute instruction.
  double makespan_us(TraceSource source, const PlanIndex& index) const;
  /// End of the last compute instruction, update or collective.
  double step_us(TraceSource source, const PlanIndex& index) const;
};

/// All runs of a trace, ascending; a run begins where the prediction has a forward of micro-batch
/// 0. Steps of which a source has nothing are left out. Throws InvalidArgument: no predicted or no
/// measured events, or none that both have.
std::vector<RunTimes> times_of_runs(const Trace& trace, const PlanIndex& index, int pipelines);

}  // namespace hetu
