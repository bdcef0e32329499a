// The command line of schedule, verify, simulate and rehearse: a METHOD or FILE and options of a
// plan (pipeline/options/plan_options.h), and those of a command's own.
#pragma once
#include <string>
#include <vector>

#include "cli/options.h"
#include "pipeline/options/output_format.h"
#include "pipeline/options/plan_options.h"

namespace hetu::cli {

/// Parses arguments of one of the commands: options and exactly one METHOD or FILE. `formats` are
/// those that the command writes; `format` of the result is one of them. Throws InvalidArgument.
PlanOptions parse_plan_options(const std::vector<std::string>& arguments, const Fields& own = {},
                               const std::vector<OutputFormat>& formats = plan_formats());

/// Usage, the options, and the methods with what is legal for each.
std::string plan_help(const char* command, const char* meaning, const Fields& own = {});

}  // namespace hetu::cli
