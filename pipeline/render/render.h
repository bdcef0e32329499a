// Figures of a plan or a run: text grids for a terminal, and SVG, PDF, PNG and HTML for a page.
// They read only trace events, so that figures of the simulator and of the interpreter have the
// same form. No code here depends on a method's name.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/trace.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// The unit in which times are written: `us` microseconds are one `name`. With an empty name, the
/// renderer chooses us, ms or s by the longest time.
struct TimeUnit {
  std::string name;
  double us = 1;
};

/// A place to mark as wrong. With index >= 0 it is the instruction at `index` of the worker's row:
/// among compute and updates in order of time, or the cell in render_rows. With index -1 it is the
/// event that runs at time_us.
struct Mark {
  int worker = 0;
  int index = -1;
  double time_us = -1;
  std::string text;         ///< one line, printed below the figure
  std::size_t row_set = 0;  ///< index of the row set of render_svg
};

/// Options of render_grid and render_rows.
struct GridOptions {
  int columns = 100;   ///< at least 20; only titles and texts of marks make longer lines
  bool color = false;  ///< 256 ANSI colours
  std::string title;
  TimeUnit unit;
  std::vector<Mark> marks;
};

/// Returns a text grid over time: a header (makespan, busy, bubble), one row per worker, and a
/// legend. Cells read `F0`, or `2F0` if a worker holds several stages, where they fit; otherwise
/// they show the kind's letter. `.` is idle time. Messages and collectives are omitted. Makespan
/// and busy count only compute, as in spec/contract.md. Throws InvalidArgument for fewer than 20
/// columns, a negative duration or a time that is not finite.
std::string render_grid(const std::vector<TraceEvent>& events, const GridOptions& options = {});

/// Returns a grid of instructions in order, without time: column n holds each worker's n-th
/// instruction. Long rows are broken into blocks of columns. Throws InvalidArgument for fewer than
/// 20 columns.
std::string render_rows(const Schedule& schedule, const GridOptions& options = {});

/// An input that an event waited for: the index of the producing event in the row set, or -1 if it
/// is not drawn, and its text form.
struct EventInput {
  int event = -1;
  std::string cell;
};

/// One plan or one run. Its rows are drawn under a title, below earlier row sets, on the same time
/// axis.
struct TimelineRowSet {
  std::string title;
  std::vector<TraceEvent> events;
  std::vector<double> peak_activations;              ///< per worker, in micro-batches; may be empty
  std::vector<std::vector<EventInput>> inputs = {};  ///< per event; empty: unknown
  std::vector<Placement> placements = {};  ///< of one pipeline; empty: those of SvgOptions
  int workers_per_pipeline = 0;            ///< 0: that of SvgOptions
};

/// Fills `inputs` of a set whose events ran this plan (lowered or not, as the events are). For each
/// event it looks up the result of producers() among the events of the same step and pipeline. If a
/// receive has no event, its send takes its place. Throws Plan for invalid placements.
void add_inputs(TimelineRowSet& set, const Schedule& plan);

/// Style of a figure. Timeline shows everything.
///
/// Profile is the profiling figure of Chimera's scripts, for SVG and PDF only. It has one row per
/// worker, "GPU 1" first, and shows compute and gradient sync in colours. Red lines mark where the
/// first worker begins a step. The title contains the utilization of the first step: the time
/// covered by events that end before the second step, divided by the step's length, as a mean over
/// workers.
enum class FigureStyle : std::uint8_t { Timeline, Profile };

/// Options of render_svg, render_pdf and render_html. `height` and `is_beside` are for SVG, PDF and
/// PNG in the style Timeline.
struct SvgOptions {
  FigureStyle style = FigureStyle::Timeline;
  std::string title;
  TimeUnit unit;
  /// width in pixels (see pixels_of_mm), at least 150; 0: 720 to 1800, by the number of events
  double width = 0;
  double height = 0;       ///< height in pixels, to which rows are scaled; 0: by the number of rows
  bool is_beside = false;  ///< row sets stand side by side, in the order of reading
  std::vector<Placement>
      placements;  ///< of one pipeline; distinguishes directions and chunks; may be empty
  int workers_per_pipeline = 0;  ///< > 0: pipelines are separated by a gap and a name
  std::vector<Mark> marks;       ///< only for Timeline
};

/// Returns a figure as SVG. It has a row per worker over one time axis. The row shows stages,
/// micro-batches, kinds, idle time, steps, busy share and peak activations. Messages and
/// collectives are thin lanes. It is readable in grey. The same input gives the same bytes. Throws
/// InvalidArgument if there are no events, a duration is negative, or a time is not finite.
std::string render_svg(const std::vector<TimelineRowSet>& sets, const SvgOptions& options = {});

/// Returns the figure of render_svg as one PDF page. Throws as render_svg; Unsupported in a build
/// without cairo.
std::string render_pdf(const std::vector<TimelineRowSet>& sets, const SvgOptions& options = {});

/// Returns the figure of render_svg as a PNG image with 300 dots per inch. Throws as render_pdf.
std::string render_png(const std::vector<TimelineRowSet>& sets, const SvgOptions& options = {});

/// Returns the pixels of a width in millimetres: 96 pixels are an inch.
constexpr double pixels_of_mm(double mm) { return mm * 96 / 25.4; }

/// Returns a self-contained HTML file with the same rows. The time axis zooms and pans. The
/// instruction under the pointer is shown with its times and inputs. It is readable in grey, light
/// and dark. The same input gives the same bytes. Throws as render_svg.
std::string render_html(const std::vector<TimelineRowSet>& sets, const SvgOptions& options = {});

/// The steps of a trace to draw: `steps` steps from `first` on. first -1: around the middle. steps
/// 0: all steps. steps -1: two steps, or one if a source has no more.
struct StepWindow {
  int first = -1;
  int steps = -1;
};

/// Returns the most activations that each worker held at once, in micro-batches on one worker. In
/// order of start, an F adds 1 / chunks, a B removes as much, and I and W each remove half of that.
/// Backwards of a half_micros plan count half.
std::vector<double> peak_activations(const std::vector<TraceEvent>& events, const Schedule& plan);

/// Returns the row sets of a trace, predicted above measured. Each is cut to the window and shifted
/// so that the first chosen step starts at time 0. A source that lacks the chosen steps shows its
/// own middle steps. The titles name the steps shown and the total. With the trace's plan, the sets
/// contain the peak activations over all steps. Throws InvalidArgument for an empty trace, or if no
/// source has the first step.
std::vector<TimelineRowSet> timeline_rows(const Trace& trace, const StepWindow& window = {},
                                          const Schedule* plan = nullptr);

}  // namespace hetu
