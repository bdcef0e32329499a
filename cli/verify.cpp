// `hetu verify`: proves a plan and prints one line with its figures.
#include "pipeline/verify/verify.h"

#include <algorithm>

#include "base/error.h"
#include "base/progress_line.h"
#include "cli/command.h"
#include "cli/plan_command.h"
#include "executor/compile/sum_layout.h"
#include "pipeline/ir/run_length.h"

namespace hetu::cli {
namespace {

// Returns the peaks of all workers if they fit on the line, and otherwise the largest peak.
std::string peaks(const VerifyReport& report) {
  constexpr std::size_t kMost = 16;
  const auto most =
      std::max_element(report.peak_activations.begin(), report.peak_activations.end());
  if (report.peak_activations.size() > kMost)
    return fmt::format("at most {} (worker {})", *most, most - report.peak_activations.begin());
  std::string text;
  for (const double p : report.peak_activations)
    text += fmt::format("{}{}", text.empty() ? "" : " ", p);
  return text;
}

// Returns the staleness of plans with versions by waves or with parameter servers. Staleness is the
// largest number of updates that the weights of a forward lack.
std::string staleness(const Schedule& plan, const VerifyReport& report) {
  const bool servers = plan.lowering.has_servers(),
             any = plan.lowering.staleness() == kAnyStaleness;
  if (plan.version_rule != VersionRule::Wave && !servers) return "";
  std::string text = fmt::format("; staleness {} local", report.local_staleness);
  if (servers) text += any ? ", any global" : fmt::format(", {} global", report.global_staleness);
  return text;
}

// Returns how many partial sums the gradient sum of a stage consists of with --sums tree, after the
// check that each micro-batch is in it once. Empty for plans that --sums tree refuses.
std::string sums(const Schedule& plan) {
  if (is_asynchronous(plan) || plan.steps > 1 || plan.lowering.has_servers()) return "";
  SumLayout layout;
  try {
    layout = sum_layout(plan, plan.lowering.pipelines);
  } catch (const Error& e) {
    if (e.code() == Code::InvalidArgument) return "";
    throw;
  }
  std::size_t most = 0;
  for (int stage = 0; stage < model_stages(plan); ++stage) {
    std::size_t terms = 0;
    for (const SumCopy& copy : layout.copies)
      terms += copy.model_stage == stage ? copy.parts.size() : 0;
    most = std::max(most, terms);
  }
  return fmt::format("; gradient sums of {} micro-batches in {} term{}", layout.total, most,
                     most == 1 ? "" : "s");
}

std::vector<OutputFormat> formats() { return {{"", {".txt"}}}; }

}  // namespace

int verify_command(const Arguments& arguments) {
  if (wants_help(arguments)) {
    put(plan_help(
            "verify",
            "Verifies a plan: each micro-batch once per stage, no deadlock, one weight version, "
            "within memory.",
            {}, formats()),
        "");
    return 0;
  }
  const PlanOptions o = parse_plan_options(arguments, {}, formats());
  require(o.format.empty(), "--format is for schedule and simulate; verify prints one line");
  const ProgressLine progress("hetu verify", "");
  const Schedule plan = plan_of(o);
  const Schedule lowered = lowered_plan(o, plan);
  const VerifyReport report = prove(o, plan, lowered);
  int versions = 1;
  for (const StageNeeds& n : report.stages) versions = std::max(versions, n.weight_versions);
  const std::string text = fmt::format(
      "{}: valid: {} stages, {} micro-batches, {} send slots; peak activations {}; weight versions "
      "{}{}{}\n",
      plan.method, plan.stages, plan.micro_batches,
      o.run.send_slots == kUnboundedSlots ? "unbounded" : std::to_string(o.run.send_slots),
      peaks(report), versions, staleness(lowered, report), sums(lowered));
  progress.close();
  put(text, o.output);
  return 0;
}

}  // namespace hetu::cli
