// The events of a trace assigned to its plan: predicted and measured times for each position of
// each pipeline. Read by the comparison of both.
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

/// A time span in microseconds since the start of the run.
struct Span {
  double start_us = 0;
  double end_us = -1;
  /// Returns true if the span has been set.
  bool there() const { return end_us >= start_us; }
  double duration_us() const { return end_us - start_us; }
};

/// The times of one run of the plan: one step or, for asynchronous plans, several. The times of
/// both sources begin at their own first compute instruction.
struct RunTimes {
  int first_step = 0;
  std::array<std::vector<Span>, 2>
      spans;          ///< by TraceSource, then by pipeline * index.size() + position
  int unplanned = 0;  ///< measured events that are not in the plan

  /// Returns the span of a cell, which is pipeline * index.size() + position.
  const Span& at(TraceSource source, std::int64_t cell) const {
    return spans[static_cast<std::size_t>(source)][cell];
  }
  /// Returns the end of the last compute instruction.
  double makespan_us(TraceSource source, const PlanIndex& index) const;
  /// Returns the end of the last compute instruction, update or collective.
  double step_us(TraceSource source, const PlanIndex& index) const;
};

/// Returns all runs of a trace, ascending. A run begins at each step in which the prediction has a
/// forward of micro-batch 0. Runs without events of one source are omitted. Throws InvalidArgument
/// if there are no predicted events, no measured events, or no run with both.
std::vector<RunTimes> times_of_runs(const Trace& trace, const PlanIndex& index, int pipelines);

}  // namespace hetu
