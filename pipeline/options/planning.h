// Evaluates the options of the planner, for `hetu plan` and hetu.schedule.plan.
#pragma once
#include <string>
#include <vector>

#include "pipeline/options/planner_options.h"
#include "pipeline/planner/export.h"

namespace hetu {

/// An answer in the format `o.format`, and as text.
struct Planning {
  bool fits = false;  ///< true if there is a plan
  std::string text;
  std::string formatted;            ///< empty if `format` is flags or html, and there is no plan
  std::vector<ExportedFile> files;  ///< of `o.exports`; none if there is no plan
};

/// Completes the request by the options. Returns the costs, which `o` must outlive. Adds to `notes`
/// what was assumed, one line each. Throws InvalidArgument, Config, Io.
CostsOfSize request_of(PlannerOptions& o, std::vector<std::string>& notes);

/// Searches, formats the answer, and exports the plan. JSON has the keys `explanation`, `exports`
/// (texts by the names of files) and `compared`, if the options ask for them. Throws as
/// request_of(), exported() and parse_given_plan().
Planning planning_of(PlannerOptions& o);

}  // namespace hetu
