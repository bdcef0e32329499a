// Simulated plans as pictures, with the terminal's width and colours.
#pragma once
#include <string>

#include "python/cli/plan_options.h"

namespace hetu::cli {

/// Grid over time. Columns and colour follow standard output unless it goes to a file.
std::string grid_over_time(const PlanOptions& o, const Simulation& simulation);

/// Order-only grid of a plan.
std::string grid_of_rows(const PlanOptions& o, const Schedule& plan);

std::string svg_picture(const Simulation& simulation, const Schedule& plan);

}  // namespace hetu::cli
