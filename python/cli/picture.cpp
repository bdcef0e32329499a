#include "python/cli/picture.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "graph/base/error.h"
#include "pipeline/render.h"

namespace hetu::cli {
namespace {

GridOptions grid_options(const PlanOptions& o) {
  GridOptions grid;
  if (o.output.empty() && ::isatty(STDOUT_FILENO) != 0) {
    grid.color = true;
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20)
      grid.columns = size.ws_col;
  }
  return grid;
}

TimeUnit unit_of(const std::string& name) { return {name.empty() ? "units" : name, 1000}; }

std::string title(const std::string& method, int stages, int micro_batches) {
  return fmt::format("{}: {} stages, {} micro-batches", method, stages, micro_batches);
}

}  // namespace

std::string grid_over_time(const PlanOptions& o, const Simulation& s) {
  GridOptions grid = grid_options(o);
  grid.title = title(s.method, s.stages, s.micro_batches);
  grid.unit = unit_of(s.time_unit);
  return render_grid(s.events, grid);
}

std::string grid_of_rows(const PlanOptions& o, const Schedule& plan) {
  GridOptions grid = grid_options(o);
  grid.title = title(plan.method, plan.stages, plan.micro_batches);
  return render_rows(plan, grid);
}

std::string svg_picture(const Simulation& s, const Schedule& plan) {
  TimelineRowSet set;
  set.title = "predicted";
  set.events = s.events;
  for (const WorkerTiming& w : s.workers) set.peak_activations.push_back(w.peak_activations);
  SvgOptions svg;
  svg.title = title(s.method, s.stages, s.micro_batches);
  svg.unit = unit_of(s.time_unit);
  svg.placements = plan.placements;
  if (s.pipelines > 1) svg.workers_per_pipeline = static_cast<int>(plan.workers.size());
  return render_svg({set}, svg);
}

}  // namespace hetu::cli
