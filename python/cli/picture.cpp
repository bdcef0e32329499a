#include "python/cli/picture.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "graph/base/error.h"
#include "pipeline/render.h"

namespace hetu::cli {
namespace {

TimeUnit unit_of(const std::string& name) { return {name.empty() ? "units" : name, 1000}; }

}  // namespace

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

std::string picture_title(const std::string& method, int stages, int micro_batches) {
  return fmt::format("{}: {} stages, {} micro-batches", method, stages, micro_batches);
}

std::string grid_over_time(const PlanOptions& o, const Simulation& s) {
  GridOptions grid = terminal_grid(!o.output.empty());
  grid.title = picture_title(s.method, s.stages, s.micro_batches);
  grid.unit = unit_of(s.time_unit);
  return render_grid(s.events, grid);
}

std::string grid_of_rows(const PlanOptions& o, const Schedule& plan) {
  GridOptions grid = terminal_grid(!o.output.empty());
  grid.title = picture_title(plan.method, plan.stages, plan.micro_batches);
  return render_rows(plan, grid);
}

std::string svg_picture(const Simulation& s, const Schedule& plan) {
  TimelineRowSet set;
  set.title = "predicted";
  set.events = s.events;
  for (const WorkerTiming& w : s.workers) set.peak_activations.push_back(w.peak_activations);
  SvgOptions svg;
  svg.title = picture_title(s.method, s.stages, s.micro_batches);
  svg.unit = unit_of(s.time_unit);
  svg.placements = plan.placements;
  if (s.pipelines > 1) svg.workers_per_pipeline = static_cast<int>(plan.workers.size());
  return render_svg({set}, svg);
}

}  // namespace hetu::cli
