// Options of the planner, shared by `hetu plan` and hetu.schedule.plan, and the functions that
// evaluate them.
#pragma once
#include <string>
#include <vector>

#include "base/fields.h"
#include "pipeline/options/plan_options.h"
#include "pipeline/planner/export.h"
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
  int top = 12;
  std::string format = {};           ///< text, json or flags; "": text
  std::vector<std::string> exports;  ///< systems to write the plan for (export_systems())
  std::string export_to = {};        ///< folder of their files; "": they are printed
  std::string blocks_are = {};       ///< content of the costs' blocks (parse_model_blocks)
  std::string compare_with = {};     ///< a plan of another system (parse_given_plan); "": none
};

/// Returns the options, in the order of --help.
Fields fields(PlannerOptions& o);

/// Reads machines from JSON: {"unit": …, "workers": [{"speed": …, "memory_limit": …, "host": …},
/// …], "link": {…}, "link_in_host": {…}}. `link` is that of a cost file, with `pairs`.
/// `link_in_host` holds for workers of the same host. Throws Config.
Machines parse_machines(const std::string& text, const std::string& origin);

/// Completes the request by the options. Returns the costs, which `o` must outlive. Adds to `notes`
/// what was assumed, one line each. Throws InvalidArgument, Config, Io.
CostsOfSize request_of(PlannerOptions& o, std::vector<std::string>& notes);

/// An answer in the format `o.format`, and as text.
struct Planning {
  bool fits = false;  ///< true if there is a plan
  std::string text, formatted;
  std::vector<ExportedFile> files;  ///< of `o.exports`; none if there is no plan
};

/// Searches, formats the answer, and exports the plan. JSON has the key `exports`, with texts by
/// the names of files, and `compared`, if the options ask for them. Throws as request_of(),
/// exported() and parse_given_plan(), and InvalidArgument if `o.format` is flags and there is no
/// plan.
Planning planning_of(PlannerOptions& o);

}  // namespace hetu
