// Figures of simulated plans, with the terminal's width and colours.
#pragma once
#include <string>

#include "pipeline/options/plan_options.h"
#include "pipeline/render/render.h"

namespace hetu {

/// Returns grid options with the width and colour of standard output. Without a terminal, or if the
/// grid goes to a file, the grid is plain and 100 columns wide.
GridOptions terminal_grid(bool to_file);

/// Returns the unit of figures of plain time units: "units".
TimeUnit plain_units();

/// Returns the sizes of a plan: "4 stages, 8 micro-batches", or "4 workers, 8 stages, 8
/// micro-batches" if workers and stages differ in number.
std::string sizes_text(const Schedule& plan);

/// Returns a title such as "1f1b: 4 stages, 8 micro-batches".
std::string figure_title(const Schedule& plan);
/// As above, unless --title gives one.
std::string figure_title(const PlanOptions& o, const Schedule& plan);

/// Returns a grid over time of a simulated plan, in the width and colour of standard output unless
/// it goes to a file.
std::string grid_over_time(const PlanOptions& o, const Simulation& simulation,
                           const Schedule& plan);

/// Returns a grid of a plan's instructions in order, without time.
std::string grid_of_rows(const PlanOptions& o, const Schedule& plan);

/// Returns the style for a value of --style.
FigureStyle style_of(const std::string& style);

/// Writes the row sets as a page in the given format (svg, pdf, png or html).
std::string page(const std::string& format, const std::vector<TimelineRowSet>& sets,
                 const SvgOptions& options);

/// Writes a simulated plan as a page in the format `o.format`. `plan` is the plan that was
/// simulated.
std::string page_of_run(const PlanOptions& o, const Simulation& simulation, const Schedule& plan);

/// Writes a simulated plan, with events, in the format `o.format`: a page, a trace, or else a grid
/// over time.
std::string figure_of_run(const PlanOptions& o, const Simulation& simulation, const Schedule& plan);

/// Writes a plan that failed its proof as a page. It shows the part that runs, and marks the places
/// of the diagnosis. Throws as run_refused.
std::string page_of_refused(const PlanOptions& o, const Schedule& plan,
                            const std::string& diagnosis);

}  // namespace hetu
