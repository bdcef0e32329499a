// Simulated plans as pictures, with the terminal's width and colours.
#pragma once
#include <string>

#include "pipeline/render.h"
#include "python/cli/plan_options.h"

namespace hetu::cli {

/// Columns and colour of standard output; plain and 100 columns wide if that is no terminal or the
/// grid goes to a file.
GridOptions terminal_grid(bool to_file);

/// "1f1b: 4 stages, 8 micro-batches".
std::string picture_title(const std::string& method, int stages, int micro_batches);

/// Grid over time. Columns and colour follow standard output unless it goes to a file.
std::string grid_over_time(const PlanOptions& o, const Simulation& simulation);

/// Order-only grid of a plan.
std::string grid_of_rows(const PlanOptions& o, const Schedule& plan);

std::string svg_picture(const Simulation& simulation, const Schedule& plan);

}  // namespace hetu::cli
