// Pictures of a plan or a run: text grids for a terminal, SVG, PDF and HTML for a page. They read
// trace events only, so that the simulator's and the interpreter's pictures are the same; nothing
// here knows a method's name.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/trace.h"
#include "pipeline/ir/schedule.h"

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

/// Something an event waited for: the index of its event in the row set, or, where that is not
/// drawn, -1; and its text form.
struct EventInput {
  int event = -1;
  std::string cell;
};

/// One plan or one run: its rows are drawn under a title, below the row sets before it, on the same
/// time axis.
struct TimelineRowSet {
  std::string title;
  std::vector<TraceEvent> events;
  std::vector<double> peak_activations;              ///< per worker, in micro-batches; may be empty
  std::vector<std::vector<EventInput>> inputs = {};  ///< per event; empty: not known
};

/// Fills `inputs` of a set whose events ran this plan (lowered or not, as the events are): for each
/// event what producers() names, looked up among the events of the same step and pipeline;
/// a receive that no event shows is passed over for its send. Throws Plan: placements that are no
/// plan's.
void add_inputs(TimelineRowSet& set, const Schedule& plan);

/// Timeline: everything. Profile: the profiling picture of Chimera's scripts; one row per worker
/// ("GPU 1" first), what computes and gradient sync in their colours, red lines where the first
/// worker begins a step, and in the title the use of the first step: mean over workers of the time
/// covered by events that end before the second, over its length. SVG and PDF only.
enum class PictureStyle : std::uint8_t { Timeline, Profile };

/// Of render_svg, render_pdf and render_html.
struct SvgOptions {
  PictureStyle style = PictureStyle::Timeline;
  std::string title;
  TimeUnit unit;
  int width = 0;  ///< of the picture, in pixels; 0: from the number of events, 720 to 1800
  std::vector<Placement>
      placements;  ///< of one pipeline; tells directions and chunks apart; may be empty
  int workers_per_pipeline = 0;  ///< > 0: a gap and a name between pipelines side by side
  std::vector<Mark> marks;       ///< Timeline only
};

/// One SVG: a row per worker with its stages, micro-batches, kinds, idle time, steps, messages and
/// collectives (thin lanes), busy share and peak activations, over one time axis. Readable in grey.
/// The same input gives the same bytes. Throws InvalidArgument: no events at all, a negative
/// duration, a time that is not finite.
std::string render_svg(const std::vector<TimelineRowSet>& sets, const SvgOptions& options = {});

/// The picture of render_svg as one PDF page. Throws as render_svg; Unsupported in a build without
/// cairo.
std::string render_pdf(const std::vector<TimelineRowSet>& sets, const SvgOptions& options = {});

/// One HTML file that needs nothing else: the same rows on a time axis that zooms and pans; the
/// instruction under the pointer is shown with its times and inputs. Readable in grey, light and
/// dark. The same input gives the same bytes. Throws as render_svg.
std::string render_html(const std::vector<TimelineRowSet>& sets, const SvgOptions& options = {});

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
