#include "pipeline/options/figure.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/quantity.h"
#include "pipeline/cost/cost.h"
#include "pipeline/render/refused.h"
#include "pipeline/render/render.h"

namespace hetu {
namespace {

constexpr double kUnitUs = 1000;  // microseconds in events per time unit of a simulation

TimeUnit unit_of(const std::string& name) { return {name.empty() ? "units" : name, kUnitUs}; }

// Appends copies of a step, each shifted by the period.
void repeat(std::vector<TraceEvent>& events, int steps, double period_us) {
  const std::vector<TraceEvent> one = events;
  for (int step = 1; step < steps; ++step) {
    for (TraceEvent e : one) {
      e.step = step;
      e.start_us += step * period_us;
      events.push_back(std::move(e));
    }
  }
}

}  // namespace

FigureStyle style_of(const std::string& style) {
  return style == "profile" ? FigureStyle::Profile : FigureStyle::Timeline;
}

GridOptions terminal_grid(bool to_file) {
  GridOptions grid;
  if (!to_file && ::isatty(STDOUT_FILENO) != 0) {
    grid.color = true;
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20)
      grid.columns = size.ws_col;
  }
  return grid;
}

TimeUnit plain_units() { return unit_of(""); }

std::string sizes_text(const Schedule& plan) {
  const int stages = model_stages(plan);
  return fmt::format("{}{}, {}",
                     stages == plan.stages ? "" : quantity(plan.stages, "worker") + ", ",
                     quantity(stages, "stage"), quantity(plan.micro_batches, "micro-batch"));
}

std::string figure_title(const Schedule& plan) {
  return fmt::format("{}: {}", plan.method, sizes_text(plan));
}

std::string figure_title(const PlanOptions& o, const Schedule& plan) {
  return o.title.empty() ? figure_title(plan) : o.title;
}

std::string grid_over_time(const PlanOptions& o, const Simulation& s, const Schedule& plan) {
  GridOptions grid = terminal_grid(!o.output.empty());
  grid.title = figure_title(o, plan);
  grid.unit = unit_of(s.time_unit);
  return render_grid(s.events, grid);
}

std::string grid_of_rows(const PlanOptions& o, const Schedule& plan) {
  GridOptions grid = terminal_grid(!o.output.empty());
  grid.title = figure_title(o, plan);
  return render_rows(plan, grid);
}

std::string page(const std::string& format, const std::vector<TimelineRowSet>& sets,
                 const SvgOptions& options) {
  return format == "html"  ? render_html(sets, options)
         : format == "pdf" ? render_pdf(sets, options)
         : format == "png" ? render_png(sets, options)
                           : render_svg(sets, options);
}

std::string page_of_run(const PlanOptions& o, const Simulation& s, const Schedule& plan) {
  TimelineRowSet set;
  set.title = "predicted";
  set.events = s.events;
  for (const WorkerTiming& w : s.workers) set.peak_activations.push_back(w.peak_activations);
  if (o.format == "html") add_inputs(set, plan);
  // A synchronous plan is one step; after its flush, the next step is identical.
  if (o.style == "profile" && s.steps == 1) repeat(set.events, 3, s.step_time * kUnitUs);
  SvgOptions options;
  options.style = style_of(o.style);
  options.width = pixels_of_mm(o.width_mm);
  options.height = pixels_of_mm(o.height_mm);
  options.title = figure_title(o, plan);
  options.unit = unit_of(s.time_unit);
  options.placements = plan.placements;
  if (s.pipelines > 1) options.workers_per_pipeline = static_cast<int>(plan.workers.size());
  return page(o.format, {set}, options);
}

std::string figure_of_run(const PlanOptions& o, const Simulation& s, const Schedule& plan) {
  if (is_page(o.format)) return page_of_run(o, s, plan);
  if (o.format == "trace") return trace_text(s.events, plan, costs_for(o, plan));
  std::string text = grid_over_time(o, s, plan);
  // The user can't see otherwise which blocks of the costs became a stage.
  if (o.costs.costs.empty() || o.has("partition")) return text;
  const Costs costs = costs_of(o);
  const std::vector<int> cut = blocks_per_stage(costs, model_stages(plan));
  if (!cut.empty() && costs.cuts.empty())
    text += fmt::format("blocks per stage (--partition): {}\n", fmt::join(cut, ","));
  return text;
}

std::string page_of_refused(const PlanOptions& o, const Schedule& plan,
                            const std::string& diagnosis) {
  const RefusedRun refused = run_refused(plan, diagnosis, costs_for(o, plan), o.run);
  SvgOptions options;
  options.title = figure_title(o, plan) + ": refused";
  options.width = pixels_of_mm(o.width_mm);
  options.height = pixels_of_mm(o.height_mm);
  options.unit = unit_of(costs_of(o).unit);
  options.placements = plan.placements;
  options.marks = refused.marks;
  return page(o.format, {refused.set}, options);
}

}  // namespace hetu
