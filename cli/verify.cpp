// `hetu verify`: proves a plan and prints one line with its figures.
#include "pipeline/verify/verify.h"

#include <algorithm>

#include "base/error.h"
#include "base/progress_line.h"
#include "base/quantity.h"
#include "base/text_file.h"
#include "cli/command.h"
#include "cli/plan_command.h"
#include "executor/compile/sum_layout.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/options/figure.h"

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

// Returns the first model stage of which a copy computes gradients in another order than that of
// micro-batches, or -1.
int reordered_stage(const Schedule& plan) {
  std::vector<int> last(plan.placements.size(), -1);
  for (const Program& row : plan.workers) {
    for (const Instr& i : unroll(row)) {
      if (i.kind != Kind::Backward && i.kind != Kind::WeightGrad) continue;
      if (i.micro < last[i.stage]) return plan.placements[i.stage].model_stage;
      last[i.stage] = i.micro;
    }
  }
  return -1;
}

// Returns the order in which gradients are added, and the number of terms of a stage's sum with
// --sums tree, after the check that each micro-batch is in it once. The terms are left out for
// plans that --sums tree refuses.
std::string sums(const Schedule& plan) {
  if (is_asynchronous(plan) || plan.steps > 1 || plan.lowering.has_servers()) return "";
  const int reordered = reordered_stage(plan);
  const std::string order =
      reordered < 0
          ? "; gradients added in the order of micro-batches"
          : fmt::format(
                "; gradients of stage {} added in another order than that of micro-batches, "
                "which changes last bits",
                reordered);
  SumLayout layout;
  try {
    layout = sum_layout(plan, plan.lowering.pipelines);
  } catch (const Error& e) {
    if (e.code() == Code::InvalidArgument) return order;
    throw;
  }
  std::size_t most = 0;
  for (int stage = 0; stage < model_stages(plan); ++stage) {
    std::size_t terms = 0;
    for (const SumCopy& copy : layout.copies)
      terms += copy.model_stage == stage ? copy.parts.size() : 0;
    most = std::max(most, terms);
  }
  return order +
         fmt::format(" (with --sums tree: {} term{} per stage)", most, most == 1 ? "" : "s");
}

// Says that a file's sizes were counted, because a file that lacks a whole micro-batch is a valid
// plan of fewer.
std::string counted(const PlanOptions& o) {
  if (o.has("micro_batches") || is_plan_function(o.source) || find_method(o.source) != nullptr)
    return "";
  const std::string text = read_text(o.source);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || text[first] == '{') return "";
  return " (counted in the file; --micro-batches M checks the number)";
}

// Names the shared options that change neither a plan nor its proof.
std::vector<std::string> of_figures_and_runs() {
  std::vector<std::string> names = {"format", "style", "width", "height", "title"};
  Stragglers stragglers;
  for (const OptionField& f : fields(stragglers)) names.push_back(f.name);
  groups::Options policy;
  for (const OptionField& f : without(fields(policy), {"method", "seed"})) names.push_back(f.name);
  return names;
}

std::vector<OutputFormat> formats() { return {{"", {".txt"}}}; }

}  // namespace

int verify_command(const Arguments& arguments) {
  if (wants_help(arguments)) {
    put(plan_help(
            "verify",
            "Verifies a plan: each micro-batch once per stage, no deadlock, one weight version, "
            "within memory. Of the options of hetu simulate, which verify accepts too, the list "
            "below leaves out those of figures and of runs, because they change no proof.",
            {}, formats(), of_figures_and_runs()),
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
  const std::string text =
      fmt::format("{}: valid: {}{}, {}; peak activations {}; weight versions {}{}{}\n", plan.method,
                  sizes_text(plan), counted(o),
                  o.run.send_slots == kUnboundedSlots ? "unbounded send slots"
                                                      : quantity(o.run.send_slots, "send slot"),
                  peaks(report), versions, staleness(lowered, report), sums(lowered));
  progress.close();
  put(text, o.output);
  return 0;
}

}  // namespace hetu::cli
