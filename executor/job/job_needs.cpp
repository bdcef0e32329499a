#include "executor/job/job_needs.h"

#include <algorithm>

#include "base/error.h"
#include "executor/stage/optimizer.h"
#include "pipeline/ir/run_length.h"

namespace hetu {
namespace {

const char* description(Trait trait) {
  switch (trait) {
    case Trait::SeveralPipelines:
      return "at least 2 pipelines";
    case Trait::Flush:
      return "a method in which all stages update once per step";
    case Trait::SeparateUpdates:
      return "a method whose stages update one by one, without a flush";
    case Trait::WorkerUpdates:
      return "updates by the workers";
    case Trait::WorkerTables:
      return "embedding tables on the workers";
    case Trait::UntiedStages:
      return "stages that share no weight";
    case Trait::SingleCopies:
      return "a method that has each stage once in a pipeline";
    case Trait::GradientSums:
      return "workers that sum gradients";
    case Trait::OptimizerStates:
      return "an optimizer with states";
    case Trait::ElementwiseOptimizer:
      return "an optimizer that takes no norm of a parameter";
    case Trait::NoClipping:
      return "an optimizer without clip_norm";
    case Trait::DenseUpdates:
      return "updates of whole tables";
  }
  HETU_ASSERT(false);
  return "";
}

bool has_copies(const Schedule& plan) {
  return std::any_of(plan.placements.begin(), plan.placements.end(),
                     [](const Placement& p) { return p.replica > 0; });
}

// Returns true if the stages of a job update one by one, and a run may have any number of steps.
bool updates_one_by_one(const JobPlan& job) {
  return job.asynchronous && run_grain(job.over_steps(least_steps(job.one_step))) == 1;
}

std::string without_sums(const JobPlan& job) {
  if (job.how.averages()) return "the pipelines average weights";
  if (job.how.has_servers()) return "the pipelines share weights over servers";
  return holds(job.lowered, Kind::ReduceGrad) ? "" : "each stage has one copy";
}

std::string tie_of(const JobPlan& job) {
  if (job.how.tied.empty()) return "";
  const StagePair& tie = job.how.tied.front();
  return fmt::format("stages {} and {} share one", tie.first, tie.second);
}

std::string table_on_servers(const JobPlan& job) {
  if (job.tables.empty()) return "";
  const auto parameter = static_cast<std::size_t>(job.tables.front().parameter);
  return fmt::format("table '{}' is on parameter servers", job.graph.parameters[parameter].name);
}

// Returns what the job has in place of the trait; empty if it has the trait.
std::string lack_of(const JobPlan& job, Trait trait) {
  const std::string& method = job.one_step.method;
  const OptimizerConfig& optimizer = job.optimizer;
  const auto unless = [](bool has, std::string lack) { return has ? std::string() : lack; };
  switch (trait) {
    case Trait::SeveralPipelines:
      return unless(job.options.pipelines >= 2, "the job has 1");
    case Trait::Flush:
      return unless(!job.asynchronous, fmt::format("'{}' updates stage by stage", method));
    case Trait::SeparateUpdates:
      return unless(updates_one_by_one(job),
                    fmt::format("'{}' sums gradients once per step", method));
    case Trait::WorkerUpdates:
      return unless(!job.how.has_servers() || job.one_step.version_rule == VersionRule::Wave,
                    "parameter servers run the optimizer (--sync-method ps)");
    case Trait::WorkerTables:
      return table_on_servers(job);
    case Trait::UntiedStages:
      return tie_of(job);
    case Trait::SingleCopies:
      return unless(!has_copies(job.one_step), fmt::format("'{}' has copies", method));
    case Trait::GradientSums:
      return without_sums(job);
    case Trait::OptimizerStates:
      return unless(optimizer_states(optimizer.kind) > 0,
                    fmt::format("{} has none", optimizer_name(optimizer.kind)));
    case Trait::ElementwiseOptimizer:
      return unless(is_elementwise(optimizer.kind),
                    fmt::format("{} does", optimizer_name(optimizer.kind)));
    case Trait::NoClipping:
      return unless(optimizer.clip_norm == 0, fmt::format("it is {}", optimizer.clip_norm));
    case Trait::DenseUpdates:
      return unless(!optimizer.lazy_rows, "lazy_rows updates only rows that were read");
  }
  HETU_ASSERT(false);
  return "";
}

}  // namespace

void check_needs(const JobPlan& job, const Feature& feature) {
  for (const Need& need : feature.needs) {
    const std::string lack = lack_of(job, need.trait);
    require(lack.empty(), "{} needs {}, but {}. {}.", feature.name, description(need.trait), lack,
            need.remedy);
  }
}

}  // namespace hetu
