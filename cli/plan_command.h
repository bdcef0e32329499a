// The command line that schedule, verify, simulate and rehearse share: a METHOD or FILE, the
// options of a plan (pipeline/options/plan_options.h), and options of the command itself.
#pragma once
#include <string>
#include <vector>

#include "cli/options.h"
#include "pipeline/options/output_format.h"
#include "pipeline/options/plan_options.h"

namespace hetu::cli {

/// Parses options and exactly one METHOD or FILE. `own` are the fields of the command itself.
/// `formats` are the formats that the command writes; `format` of the result is one of them. Throws
/// InvalidArgument.
PlanOptions parse_plan_options(const std::vector<std::string>& arguments, const Fields& own = {},
                               const std::vector<OutputFormat>& formats = plan_formats());

/// Returns the help of a command: usage, options, and the methods with the sizes that each allows.
/// `formats` are those of parse_plan_options().
std::string plan_help(const char* command, const char* meaning, const Fields& own = {},
                      const std::vector<OutputFormat>& formats = plan_formats());
/// As above. The help doesn't list the options with the names `left_out`.
std::string plan_help(const char* command, const char* meaning, const Fields& own,
                      const std::vector<OutputFormat>& formats,
                      const std::vector<std::string>& left_out);

/// Returns the options of a command that writes these formats, with their suffixes in the meaning
/// of -o.
std::vector<Option> with_suffixes(std::vector<Option> options,
                                  const std::vector<OutputFormat>& formats);

}  // namespace hetu::cli
