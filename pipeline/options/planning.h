// Evaluates the options of the planner, for `hetu plan` and hetu.schedule.plan.
#pragma once
#include <string>

#include "pipeline/options/planner_options.h"

namespace hetu {

/// An answer in the format `o.format`, and as text.
struct Planning {
  bool fits = false;  ///< true if there is a plan
  std::string text;
  std::string formatted;  ///< empty if `format` is flags or html, and there is no plan
};

/// Completes the request by the options, searches, and formats the answer. Throws InvalidArgument,
/// Config, Io.
Planning planning_of(PlannerOptions& o);

}  // namespace hetu
