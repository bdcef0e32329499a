// What is asked of a choice among methods, by `hetu choose` and by hetu.schedule.choose, and what
// it comes to.
#pragma once
#include <string>
#include <vector>

#include "pipeline/choose/rank.h"
#include "pipeline/choose/search.h"
#include "pipeline/options/plan_options.h"

namespace hetu {

/// What was told.
struct ChooseOptions {
  PlanOptions plan;  ///< costs, links, stragglers, limits
  RankOptions rank;
  std::int64_t batch_size = 0;  ///< samples per pipeline and step; 0: as the costs have them
  int workers = 0;              ///< in all; above 0: grids are searched, without `stages`
  int global_batch = 0;         ///< of such a search: samples per step, of all pipelines
  int blocks = 0;               ///< of such a search by a CSV of blocks: those of the model
  int top = 10;
  std::string format = {};  ///< text or json; "": text
};

/// What may be told, in the order of --help.
Fields fields(ChooseOptions& o);

/// Every method as the options say. Throws InvalidArgument, Config, Io.
Ranking ranking_of(ChooseOptions& o);

/// Every grid of `o.workers`. Throws as ranking_of.
Search search_of(ChooseOptions& o);

/// What is asked for, as `o.format` says.
std::string choice_of(ChooseOptions& o);

}  // namespace hetu
