// What every picture of trace events needs to know first: how many workers, when it ends, how busy
// each one was, and in which unit to write times.
#pragma once
#include <string>
#include <vector>

#include "base/trace.h"
#include "pipeline/render/render.h"

namespace hetu {

/// Extent and use of the workers. Times are in microseconds, on the events' own clock.
struct Usage {
  int workers = 0;
  double start = 0;          ///< of the first event
  double compute_end = 0;    ///< of the last compute event; start, if there is none
  double end = 0;            ///< of the last event
  std::vector<double> busy;  ///< per worker: time covered by compute events
  double makespan() const { return compute_end - start; }
  /// Mean share of the makespan that workers compute, 0 to 1.
  double utilisation() const;
};

/// Reads the extent off the events. Throws InvalidArgument: a worker < 0, a time that is not
/// finite, a duration < 0.
Usage usage_of(const std::vector<TraceEvent>& events);

/// Of each step, how long it takes from the first event that a profile draws to the last, ms.
std::vector<double> iteration_times(const std::vector<TraceEvent>& events);

/// The unit, or, where it has no name, us, ms or s, whichever suits a span of span_us.
TimeUnit resolve_unit(const TimeUnit& unit, double span_us);

/// At most `digits` behind the point, no trailing zeros, never "-0".
std::string short_number(double value, int digits);

/// "2F0", "F0" without the stage, "UPDATE" as "2UPDATE": the text form of an event's instruction.
std::string cell_of(const TraceEvent& event, bool with_stage);

/// Per worker the indices of its main-lane events (compute, updates, other work) in order of start,
/// then of end.
std::vector<std::vector<std::size_t>> main_rows(const std::vector<TraceEvent>& events, int workers);

/// Per worker the placement ids that its main-lane events name, ascending.
std::vector<std::vector<int>> stages_of(const std::vector<TraceEvent>& events, int workers);

}  // namespace hetu
