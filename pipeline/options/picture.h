// Simulated plans as pictures, with the terminal's width and colours.
#pragma once
#include <string>

#include "pipeline/options/plan_options.h"
#include "pipeline/render/render.h"

namespace hetu {

/// Columns and colour of standard output; plain and 100 columns wide if that is no terminal or the
/// grid goes to a file.
GridOptions terminal_grid(bool to_file);

/// "1f1b: 4 stages, 8 micro-batches".
std::string picture_title(const std::string& method, int stages, int micro_batches);

/// Grid over time. Columns and colour follow standard output unless it goes to a file.
std::string grid_over_time(const PlanOptions& o, const Simulation& simulation);

/// Order-only grid of a plan.
std::string grid_of_rows(const PlanOptions& o, const Schedule& plan);

PictureStyle style_of(const std::string& style);

/// The row sets in one of these formats.
std::string page(const std::string& format, const std::vector<TimelineRowSet>& sets,
                 const SvgOptions& options);

/// A simulated plan in one of these formats; `plan` is what was simulated.
std::string page_of_run(const PlanOptions& o, const Simulation& simulation, const Schedule& plan);

/// A simulated plan, with events, as `o.format` says: a page, a trace, else a grid over time.
std::string picture_of_run(const PlanOptions& o, const Simulation& simulation,
                           const Schedule& plan);

/// A plan that failed its proof, as far as it runs, with what the diagnosis names marked. Throws as
/// run_refused.
std::string page_of_refused(const PlanOptions& o, const Schedule& plan,
                            const std::string& diagnosis);

}  // namespace hetu
