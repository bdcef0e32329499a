// What is asked of a plan: the options that schedule, verify, simulate and rehearse share, for the
// tool and for Python alike; and what they come to: a plan, its costs, and how to run it.
#pragma once
#include <cstdint>
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

/// Costs by options, or the file that has them. Of a FILE and of what is not told, its own count.
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

Fields fields(CostOptions& costs);

/// What was told; `given` has the names of it.
struct PlanOptions {
  std::string source = {};  ///< METHOD or FILE
  Sizes sizes = {};         ///< of a METHOD, and what a FILE does not say of itself
  int replicas = 1;         ///< of the model in a FILE
  std::string version_rule = {};
  CostOptions costs = {};
  std::vector<double> speed = {};
  Partition partition = {};
  SimulateOptions run = {};
  SyncPlace sync = kSyncPlace;  ///< not given: of a lowered FILE, as it has it
  int pipelines = 1;
  std::string sync_method = "allreduce";  ///< not given: of versions by waves, hetpipe
  int staleness = Lowering().staleness;   ///< of hetpipe, D
  groups::Options policy = {};            ///< of the sync methods that average in groups
  std::string fill = {};  ///< K-FAC's work, see pipeline/fill/curvature.h; none if empty
  int factor_layers = 1;  ///< on each model stage
  std::string inverses = inverse_makers_name(InverseMakers::Owners);
  std::int64_t curvature_every = 1;
  bool lowered = false;
  std::string format = {}, output = {}, style = "timeline";
  std::set<std::string> given = {};

  bool has(const char* name) const { return given.count(name) > 0; }
};

/// What may be told, in the order of --help; what is told enters `o.given`.
Fields fields(PlanOptions& o);

/// The rules between the options, however they were told. Throws InvalidArgument.
void check_plan_options(const PlanOptions& o);

/// The plan of a METHOD or of a FILE, recomputed if asked for; as given, not lowered. Throws
/// InvalidArgument, Config, Io.
Schedule plan_of(const PlanOptions& o);

/// The plan that a text holds, CSV or JSON, as from a FILE; `o.source` names it in messages.
Schedule plan_from_text(const PlanOptions& o, const std::string& text);

/// Refuses, by name, an option that goes into the making of a plan: for a plan that is made. Throws
/// InvalidArgument.
void refuse_sizes(const PlanOptions& o);

/// The plan lowered as the options say, or as it is if it is lowered already.
Schedule lowered_plan(const PlanOptions& o, const Schedule& plan);

/// The costs of the options, as they stand there.
Costs costs_of(const PlanOptions& o);

/// Throws InvalidArgument if a memory limit in bytes is given and the costs contain no bytes to
/// compare with it.
void check_bytes_known(const PlanOptions& o, const Costs& costs);

/// The same for a plan of so many model stages: costs that know their blocks are cut anew, by the
/// partition if one is told. `apart`: pipelines may be cut each in its own way.
Costs costs_for(const PlanOptions& o, int model_stages, bool apart = false);
/// The same for a plan, lowered or not.
Costs costs_for(const PlanOptions& o, const Schedule& plan);

/// Proves the plan as given and lowered, within the memory limit. Returns the report of the lowered
/// one. Throws Plan.
VerifyReport prove(const PlanOptions& o, const Schedule& plan, const Schedule& lowered);

/// Predicts a lowered plan under the options' costs and stragglers.
Simulation simulated(const PlanOptions& o, const Schedule& lowered, bool events);

/// True for formats that have pages: svg, pdf and html.
bool is_page(const std::string& format);

/// Throws InvalidArgument: the style profile in another format than svg and pdf.
void check_style(const std::string& style, const std::string& format);

/// True of a sync method by which pipelines share their weights over servers: hetpipe, ps.
bool is_of_servers(const std::string& sync_method);

/// True if pipelines average their weights in groups, by the sync method.
bool averages_in_groups(const PlanOptions& o);

/// --group-log of the commands that run such pipelines, and its refusal where there are none.
OptionField group_log_field(std::string& path);
void check_group_log(const std::string& path, const PlanOptions& o);

/// How such pipelines find together: the constants of the options, and what the method makes of
/// them. Sizes are the plan's.
groups::Options policy_of(const PlanOptions& o);

/// The same for such pipelines.
GroupSimulation simulated_groups(const PlanOptions& o, const Schedule& lowered, bool events);

/// A trace file of a run of a plan, with plan, costs and version in its metadata.
std::string trace_text(std::vector<TraceEvent> events, const Schedule& plan, const Costs& costs);

}  // namespace hetu
