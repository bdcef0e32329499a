// The options of `hetu choose`, and what they come to; hetu.schedule.choose reads the same words.
#pragma once
#include <string>
#include <vector>

#include "cli/plan_options.h"
#include "pipeline/choose/rank.h"

namespace hetu::cli {

/// What was typed.
struct ChooseOptions {
  PlanOptions plan;  ///< costs, links, stragglers, limits
  RankOptions rank;
  int top = 10;
  std::string format = "text";
};

/// The rows of the table, bound to `o`.
std::vector<Option> choose_options(ChooseOptions& o);

/// Every method as the options say. Throws InvalidArgument, Config, Io.
Ranking ranking_of(ChooseOptions& o);

}  // namespace hetu::cli
