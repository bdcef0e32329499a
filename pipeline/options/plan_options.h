// The options that schedule, verify, simulate and rehearse share, for the tool and for Python, and
// the functions that evaluate them: the plan, its costs, and its simulation.
#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/fields.h"
#include "pipeline/cost/cost.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/fill_rule.h"
#include "pipeline/ir/schedule.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"
#include "pipeline/simulate/simulate_groups.h"
#include "pipeline/verify/verify.h"

namespace hetu {

/// Costs given by options, or the file that has them. Values that are not given come from the file.
struct CostOptions {
  double forward = StageCost().forward;
  double backward = StageCost().input_grad + StageCost().weight_grad;
  double input_grad = StageCost().input_grad;
  double weight_grad = StageCost().weight_grad;
  double recompute = StageCost().recompute;
  double update = StageCost().update;
  double allreduce = Costs().allreduce;
  double latency = LinkCost().latency;
  double bytes = StageCost().bytes_out;
  double bandwidth = LinkCost().bandwidth;
  std::string costs = {};
  BlockTable table = {};
};

/// Returns the options of costs.
Fields fields(CostOptions& costs);

/// Calls the user's function MODULE:FUNCTION with these sizes, and returns the text of its plan
/// (CSV or JSON). Throws InvalidArgument if the function refuses the sizes, and Config if there is
/// no such function.
using PlanFunction =
    std::function<std::string(const std::string& name, int stages, int micro_batches)>;

/// The options of a plan. `given` holds the names of the options that were set.
struct PlanOptions {
  std::string source = {};          ///< a METHOD, a FILE or MODULE:FUNCTION
  PlanFunction plan_function = {};  ///< for MODULE:FUNCTION; empty: this interface has none
  Sizes sizes = {};                 ///< of a METHOD, and properties that a FILE doesn't contain
  int replicas = 1;                 ///< copies of the model in a FILE
  std::string version_rule = {};
  CostOptions costs = {};
  std::vector<double> speed = {};
  Partition partition = {};
  SimulateOptions run = {};
  SyncPlace sync = kSyncPlace;  ///< if not set, a lowered FILE keeps its own
  int pipelines = 1;
  /// if not set, hetpipe for plans with wave versions on several pipelines
  std::string sync_method = "allreduce";
  int staleness = 0;            ///< staleness bound D of hetpipe
  groups::Options policy = {};  ///< for sync methods that average in groups
  std::string fill = {};  ///< rule of K-FAC's work, see pipeline/fill/curvature.h; "": no such work
  int factor_layers = 1;  ///< layers with factors on each model stage
  std::string inverses = inverse_makers_name(InverseMakers::Owners);
  std::int64_t curvature_every = 1;
  bool lowered = false;
  std::string format = {}, output = {}, style = "timeline", title = {};
  double width_mm = 0;   ///< width of an image; 0: by its contents
  double height_mm = 0;  ///< height of an image; 0: by its contents
  std::set<std::string> given = {};

  /// Returns true if the option was set.
  bool has(const char* name) const { return given.count(name) > 0; }
};

/// Returns the options, in the order of --help. Setting an option adds its name to `o.given`.
Fields fields(PlanOptions& o);

/// Checks rules between the options, for all interfaces. Throws InvalidArgument.
void check_plan_options(const PlanOptions& o);

/// Returns true for a source of the form MODULE:FUNCTION that is not an existing file.
bool is_plan_function(const std::string& source);

/// Returns the plan of a METHOD, FILE or MODULE:FUNCTION, with recompute if requested. The plan is
/// not lowered unless the FILE is. Throws InvalidArgument, Config, Io.
Schedule plan_of(const PlanOptions& o);

/// As above, for a text in CSV or JSON. `o.source` names it in error texts.
Schedule plan_from_text(const PlanOptions& o, const std::string& text);

/// Refuses options that affect how a plan is made, for commands that take a finished plan. Throws
/// InvalidArgument.
void refuse_sizes(const PlanOptions& o);

/// Returns the plan, lowered by the options. A plan that is lowered already is returned as it is.
Schedule lowered_plan(const PlanOptions& o, const Schedule& plan);

/// Returns the costs of the options, without redistribution over stages.
Costs costs_of(const PlanOptions& o);

/// Returns true if --costs names a profile, which has the costs of several micro-batch sizes.
bool has_profile(const CostOptions& given);

/// Checks that the costs contain bytes if a memory limit in bytes is given. Throws InvalidArgument.
void check_bytes_known(const PlanOptions& o, const Costs& costs);

/// Returns the costs for a plan with `model_stages` stages. Costs that consist of blocks are
/// redistributed over the stages, by the partition if one is given. With `apart`, each pipeline may
/// have its own partition.
Costs costs_for(const PlanOptions& o, int model_stages, bool apart = false);
/// As above, for a plan that may be lowered.
Costs costs_for(const PlanOptions& o, const Schedule& plan);

/// Verifies the plan as given and as lowered, within the memory limit. Returns the report of the
/// lowered plan. Throws Plan.
VerifyReport prove(const PlanOptions& o, const Schedule& plan, const Schedule& lowered);

/// Simulates a lowered plan with the options' costs and stragglers.
Simulation simulated(const PlanOptions& o, const Schedule& lowered, bool events);

/// Returns true for page formats: svg, pdf, png and html.
bool is_page(const std::string& format);

/// Returns true for formats of fixed pages: svg, pdf and png.
bool is_image(const std::string& format);

/// Checks that the style profile is used with images only. Throws InvalidArgument.
void check_style(const std::string& style, const std::string& format);

/// Returns true for sync methods that share weights over servers: hetpipe and ps.
bool is_of_servers(const std::string& sync_method);

/// Returns true if the sync method averages weights in groups.
bool averages_in_groups(const PlanOptions& o);

/// Returns the option --group-log, and checks that it is only given if pipelines average in groups.
OptionField group_log_field(std::string& path);
void check_group_log(const std::string& path, const PlanOptions& o);

/// Returns the group policy: the options' constants, completed by the sync method. The sizes are
/// left for the plan.
groups::Options policy_of(const PlanOptions& o);

/// Simulates a lowered plan whose pipelines average in groups.
GroupSimulation simulated_groups(const PlanOptions& o, const Schedule& lowered, bool events);

/// Returns a trace file of a run, with plan, costs and version in its metadata.
std::string trace_text(std::vector<TraceEvent> events, const Schedule& plan, const Costs& costs);

}  // namespace hetu
