// The options that schedule, verify, simulate and rehearse share, and what they come to: a plan,
// its costs, and how to run it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "pipeline/cost/cost.h"
#include "pipeline/ir/schedule.h"
#include "pipeline/simulate/simulate.h"
#include "pipeline/simulate/simulate_groups.h"
#include "pipeline/verify/verify.h"

namespace hetu::cli {

/// What was typed. Empty optionals were not given.
struct PlanOptions {
  std::string source;  ///< METHOD or FILE
  std::optional<int> stages, micro_batches, chunks, pairs, replicas, steps;
  std::vector<int> stage_replicas;
  std::optional<std::string> concat, pair_semantics, version_rule;
  bool with_recompute = false, runtime_rule = false, lowered = false;
  std::optional<double> forward, backward, input_grad, weight_grad, recompute, latency;
  std::optional<double> update, allreduce, bytes, bandwidth;
  std::string costs;
  BlockTable table;
  std::optional<double> limit_micros, limit_bytes;
  std::optional<std::string> sync;  ///< none: eager-opt, or as a lowered FILE has it
  std::string sync_method = "allreduce";
  int pipelines = 1;
  groups::Options policy;  ///< of the sync methods that average in groups
  std::string of_preduce;  ///< an option that was given and is partial reduce's alone
  std::optional<bool> overlap;
  std::vector<double> speed;
  int send_slots = kUnboundedSlots;
  SimulateOptions run;
  std::string style = "timeline";
  std::string format, output;
};

/// The rows of the table, bound to `o`.
std::vector<Option> plan_options(PlanOptions& o);

/// Parses arguments of one of the commands, which may have options of its own; throws
/// InvalidArgument. Exactly one METHOD or FILE.
PlanOptions parse_plan_options(const std::vector<std::string>& arguments,
                               const std::vector<Option>& own = {});

/// Usage, the options, and the methods with what is legal for each.
std::string plan_help(const char* command, const char* meaning,
                      const std::vector<Option>& own = {});

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

/// The same for a plan of so many model stages: costs that know their blocks are cut anew.
Costs costs_for(const PlanOptions& o, int model_stages);

/// Proves the plan as given and lowered, within the memory limit. Returns the report of the lowered
/// one. Throws Plan.
VerifyReport prove(const PlanOptions& o, const Schedule& plan, const Schedule& lowered);

/// Predicts a lowered plan under the options' costs and stragglers.
Simulation simulated(const PlanOptions& o, const Schedule& lowered, bool events);

/// True for formats that have pages: svg, pdf and html.
bool is_page(const std::string& format);

/// Throws InvalidArgument: the style profile in another format than svg and pdf.
void check_style(const std::string& style, const std::string& format);

/// True if pipelines average their weights in groups, by the sync method.
bool averages_in_groups(const PlanOptions& o);

/// --group-log of the commands that run such pipelines, and its refusal where there are none.
Option group_log_option(std::string& path);
void check_group_log(const std::string& path, const PlanOptions& o);

/// How such pipelines find together: the constants of the options, and what the method makes of
/// them. Sizes are the plan's.
groups::Options policy_of(const PlanOptions& o);

/// The same for such pipelines.
GroupSimulation simulated_groups(const PlanOptions& o, const Schedule& lowered, bool events);

/// A trace file of a run of a plan, with plan, costs and version in its metadata.
std::string trace_text(std::vector<TraceEvent> events, const Schedule& plan, const Costs& costs);

}  // namespace hetu::cli
