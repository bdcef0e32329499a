// The command line of schedule, verify, simulate and rehearse: a METHOD or FILE and options of a
// plan (pipeline/options/plan_options.h), and those of a command's own.
#pragma once
#include <string>
#include <vector>

#include "cli/options.h"
#include "pipeline/options/plan_options.h"

namespace hetu::cli {

/// Parses arguments of one of the commands; throws InvalidArgument. Exactly one METHOD or FILE.
PlanOptions parse_plan_options(const std::vector<std::string>& arguments, const Fields& own = {});

/// Usage, the options, and the methods with what is legal for each.
std::string plan_help(const char* command, const char* meaning, const Fields& own = {});

}  // namespace hetu::cli
