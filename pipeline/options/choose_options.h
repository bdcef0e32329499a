// Options of a choice among methods, shared by `hetu choose` and hetu.schedule.choose, and the
// functions that evaluate them.
#pragma once
#include <string>
#include <vector>

#include "pipeline/choose/rank.h"
#include "pipeline/choose/search.h"
#include "pipeline/options/plan_options.h"

namespace hetu {

/// The options of a choice.
struct ChooseOptions {
  PlanOptions plan;  ///< costs, links, stragglers and limits
  RankOptions rank;
  std::int64_t batch_size = 0;  ///< samples per pipeline and step; 0: as in the costs
  int workers = 0;              ///< total; above 0: search over grids, without `stages`
  int global_batch = 0;         ///< for a search: samples per step, over all pipelines
  int blocks = 0;  ///< for a search with a CSV of blocks: number of blocks of the model
  int top = 10;
  std::string format = {};  ///< text, json or csv; "": text
};

/// Returns the options, in the order of --help.
Fields fields(ChooseOptions& o);

/// Ranks every method by the options. Throws InvalidArgument, Config, Io.
Ranking ranking_of(ChooseOptions& o);

/// Searches every grid of `o.workers`. Throws as ranking_of.
Search search_of(ChooseOptions& o);

/// Returns the ranking or the search, in the format `o.format`.
std::string choice_of(ChooseOptions& o);

}  // namespace hetu
