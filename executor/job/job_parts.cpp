#include "executor/job/job_parts.h"

#include "base/log.h"
#include "config/env.h"
#include "executor/job/cuts.h"

namespace hetu {

StagesOptions stages_options(const JobPlan& plan) {
  const JobOptions& job = plan.options;
  StagesOptions how;
  how.pipeline = plan.pipeline;
  how.pipelines = plan.linked;
  how.plan = &plan.lowered;
  if (plan.curvature) how.cycle = &plan.curvature->cycle;
  how.workers_per_pipeline = plan.width();
  how.segments = segments_of(plan.graph, job);
  how.sums = plan.sums;
  how.micro_batches = job.micro_batches;
  how.shares = job.shares;
  how.micro_batch = job.batch_size / job.micro_batches;
  how.micro_ids = plan.micro_ids;
  how.by_version = plan.asynchronous;
  how.seed = job.seed;
  return how;
}

WavesOptions waves_of(const JobPlan& plan, TrainStages& stages) {
  const StageHere& here = plan.stages.front();
  const SharedStage stage{plan.pipeline, here.stage, stages.parameter_slices(here.placement),
                          stages.newest_weights(here.placement).elements};
  return {plan.pipeline,
          here.stage,
          shared_parts(plan.graph, segments_of(plan.graph, plan.options), plan.lowered, stage),
          plan.options.staleness,
          plan.optimizer,
          plan.options.servers->observe};
}

std::unique_ptr<StragglerInjector> open_injector(const JobPlan& plan, bool speaks) {
  Stragglers chosen = plan.options.stragglers;
  // The variable of SD-PIPE applies only if --hetero was not given.
  if (chosen.hetero == 0 && env().debug_hetero > 0) {
    chosen.hetero = env().debug_hetero;
    if (speaks)
      log(Level::Info, "DEBUG_HETERO={0:g}: trains as with --hetero {0:g}", chosen.hetero);
  }
  if (chosen.hetero == 0 && chosen.slow.empty()) return nullptr;
  return std::make_unique<StragglerInjector>(chosen, plan.number(), plan.width());
}

void warn_of_ties(const JobPlan& plan) {
  for (const StagePair& tie : plan.how.tied)
    log(Level::Warning,
        "stages {} and {} share a weight: each update waits for both, so stages are idle in "
        "between; untie the weight to run '{}' without stalls",
        tie.first, tie.second, plan.lowered.method);
}

}  // namespace hetu
