// Pictures of a plan or a run: text grids for a terminal and SVG for a page. They read trace events
// only, so that the simulator's and the interpreter's pictures are the same; nothing here knows a
// method's name.
#pragma once
#include <string>
#include <vector>

#include "graph/base/trace.h"
#include "pipeline/schedule.h"

namespace hetu {

/// How times are written: `us` microseconds make one `name`. An empty name picks us, ms or s by the
/// longest time.
struct TimeUnit {
  std::string name;
  double us = 1;
};

/// A place to be marked as wrong: the instruction at `index` of the worker's row (compute and
/// updates, in order of time; in render_rows the cell), or, where index is -1, whatever runs at
/// time_us.
struct Mark {
  int worker = 0;
  int index = -1;
  double time_us = -1;
  std::string text;         ///< one line, printed below the picture
  std::size_t row_set = 0;  ///< which of render_svg's row sets
};

struct GridOptions {
  int columns = 100;   ///< no line is longer, except by a title or a mark's text; >= 20
  bool color = false;  ///< ANSI colours, 256 of them
  std::string title;
  TimeUnit unit;
  std::vector<Mark> marks;
};

/// A text grid over time: a header (makespan, busy, bubble), one row per worker, a key. Cells read
/// `F0` (`2F0` where a worker holds several stages) where they fit, else the kind's letter; `.` is
/// idle. Messages and collectives are left out. Makespan and busy as in spec/contract.md: compute
/// only. Throws InvalidArgument: columns < 20, a negative duration, a time that is not finite.
std::string render_grid(const std::vector<TraceEvent>& events, const GridOptions& options = {});

/// An order-only grid: the n-th column holds each worker's n-th instruction; folded into blocks of
/// columns that fit. Throws InvalidArgument: columns < 20.
std::string render_rows(const Schedule& schedule, const GridOptions& options = {});

/// One plan or one run: its rows are drawn under a title, below the row sets before it, on the same
/// time axis.
struct TimelineRowSet {
  std::string title;
  std::vector<TraceEvent> events;
  std::vector<double> peak_activations;  ///< per worker, in micro-batches; may be empty
};

struct SvgOptions {
  std::string title;
  TimeUnit unit;
  int width = 0;  ///< of the picture, in pixels; 0: from the number of events, 720 to 1800
  std::vector<Placement>
      placements;  ///< of one pipeline; tells directions and chunks apart; may be empty
  int workers_per_pipeline = 0;  ///< > 0: a gap and a name between pipelines side by side
  std::vector<Mark> marks;
};

/// One SVG: a row per worker with its stages, micro-batches, kinds, idle time, steps, messages and
/// collectives (thin lanes), busy share and peak activations, over one time axis. Readable in grey.
/// The same input gives the same bytes. Throws InvalidArgument: no events at all, a negative
/// duration, a time that is not finite.
std::string render_svg(const std::vector<TimelineRowSet>& sets, const SvgOptions& options = {});

/// Which steps of a trace to draw: `steps` of them from `first`; first -1: around the middle; steps
/// 0: all of them; steps -1: two, or one where a source has no more.
struct StepWindow {
  int first = -1;
  int steps = -1;
};

/// The most activations that each worker held at once, in order of start: an F adds 1 / chunks, a B
/// takes as much, I and W half of that each; backwards of a half_micros plan count half. In
/// micro-batches on one worker.
std::vector<double> peak_activations(const std::vector<TraceEvent>& events, const Schedule& plan);

/// The row sets of a trace, predicted above measured, each cut to the window and shifted so that
/// the chosen step starts at time 0. A source that lacks the chosen steps is drawn from its own
/// middle one; the titles say which steps are drawn and of how many. With the trace's plan the sets
/// carry their peak activations, of all steps. Throws InvalidArgument: an empty trace, or a first
/// step that no source has.
std::vector<TimelineRowSet> timeline_rows(const Trace& trace, const StepWindow& window = {},
                                          const Schedule* plan = nullptr);

}  // namespace hetu
