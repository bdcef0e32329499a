// Options of the planner, shared by `hetu plan` and hetu.schedule.plan.
#pragma once
#include <string>
#include <vector>

#include "base/fields.h"
#include "pipeline/options/plan_options.h"
#include "pipeline/planner/planner.h"

namespace hetu {

/// The options of a planning.
struct PlannerOptions {
  PlanOptions plan;  ///< costs, speed, memory limit, sync and output
  PlanRequest request;
  std::string machines_file;  ///< workers and links; "": from the other options
  int workers = 0;            ///< 0: as many as the machines, the speeds or the costs name
  int blocks = 0;             ///< of the model, for a CSV of one block; 0: the costs name blocks
  bool no_recompute = false;
  std::string planner = "search";   ///< or pipedream
  std::vector<std::string> levels;  ///< for pipedream: COUNT:BANDWIDTH, the innermost level first
  double budget_millions = 60;      ///< most instructions to simulate, in millions
  bool each = false;                ///< also search the best plan of each method
  int top = 12;
  std::string format = {};           ///< text, json, html or flags; "": text
  bool explain = false;              ///< also why: times, links and other machines
  std::vector<std::string> exports;  ///< systems to write the plan for (export_systems())
  std::string export_to = {};        ///< folder of their files; "": they are printed
  std::string blocks_are = {};       ///< content of the costs' blocks (parse_model_blocks)
  std::string compare_with = {};     ///< a plan of another system (parse_given_plan); "": none
};

/// Returns the options, in the order of --help.
Fields fields(PlannerOptions& o);

}  // namespace hetu
