// Properties of trace events that every figure needs: the number of workers, the end, the busy time
// of each worker, and the time unit.
#pragma once
#include <string>
#include <vector>

#include "base/trace.h"
#include "pipeline/render/render.h"

namespace hetu {

/// Extent of a set of events and use of its workers. Times are microseconds on the events' own
/// clock.
struct Usage {
  int workers = 0;
  double start = 0;          ///< start of the first event
  double compute_end = 0;    ///< end of the last compute event; `start` if there is none
  double end = 0;            ///< end of the last event
  std::vector<double> busy;  ///< per worker: time covered by compute events
  /// Returns the time from the first event to the end of the last compute event.
  double makespan() const { return compute_end - start; }
  /// Returns the mean share of the makespan in which workers compute, 0 to 1.
  double utilisation() const;
};

/// Computes the extent of events. Throws InvalidArgument for a worker < 0, a time that is not
/// finite, or a duration < 0.
Usage usage_of(const std::vector<TraceEvent>& events);

/// Returns the length of each step in ms, from the first event that a profile draws to the last.
std::vector<double> iteration_times(const std::vector<TraceEvent>& events);

/// Returns the unit. If it has no name, returns us, ms or s by the length of span_us.
TimeUnit resolve_unit(const TimeUnit& unit, double span_us);

/// Formats a number with at most `digits` decimals, without trailing zeros, and never as "-0".
std::string short_number(double value, int digits);

/// Returns the text form of an event's instruction: "2F0", "F0" without the stage, "2UPDATE" for an
/// update.
std::string cell_of(const TraceEvent& event, bool with_stage);

/// Returns, per worker, the indices of its main-lane events (compute, updates, other work) in order
/// of start, then of end.
std::vector<std::vector<std::size_t>> main_rows(const std::vector<TraceEvent>& events, int workers);

/// Returns, per worker, the placement ids of its main-lane events, ascending.
std::vector<std::vector<int>> stages_of(const std::vector<TraceEvent>& events, int workers);

}  // namespace hetu
