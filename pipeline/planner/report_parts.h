// Texts that the planner's reports share.
#pragma once
#include <string>
#include <vector>

#include "pipeline/planner/explain.h"
#include "pipeline/planner/planner.h"

namespace hetu {

constexpr double kMiB = 1 << 20;

/// Returns a time with its unit: "12.30 ms", or "12.3 units" for plain time units.
std::string time_text(double time, const std::string& unit);

/// Returns the blocks of the stages at a place of a pipeline: "0-3, 8-11".
std::string blocks_at(const PlanChoice& choice, int place);

/// Returns a line, with its end, that says how far the plan can be from the optimum.
std::string certificate_of(const PlanAnswer& answer);

/// Returns a verdict's outcome beside the plan with the step time `best`: its time, the least time
/// that it can have, or why it has no plan.
std::string outcome_of(const PlanVerdict& verdict, double best, const std::string& unit);

/// Returns what a change of the machines brings, beside the plan with this step time.
std::string outcome_of(const WhatIf& what_if, double step_time, const std::string& unit);

/// Returns the most telling verdict of each method, without the chosen configuration.
std::vector<const PlanVerdict*> best_by_method(const PlanAnswer& answer);

}  // namespace hetu
