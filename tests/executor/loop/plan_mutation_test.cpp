// A comparison with one process is useful only if it can fail. These tests introduce three mistakes
// into the programs or batches of workers, and the comparison must find each of them.
#include <gmock/gmock.h>

#include <algorithm>

#include "executor/job/make_plan.h"
#include "executor/stage/train_stages.h"
#include "executor/sync/all_reduce.h"
#include "pipeline/generate/generate.h"
#include "pipeline/lower/lower.h"
#include "pipeline/verify/verify.h"
#include "tests/executor/train_together.h"

namespace hetu {
namespace {

using namespace testing_model;  // NOLINT

constexpr int kStages = 2, kPipelines = 2, kSteps = 3;

// Changes a worker's row in one step.
using Change = std::function<void(std::vector<Action>& row, int worker, int step)>;
// Changes the batch that a worker reads in one step.
using ChangeBatch = std::function<void(Tokens& batch, int worker, int step)>;

Setting setting() {
  Setting s;
  s.stages = kStages;
  s.pipelines = kPipelines;
  s.optimizer.rate.base = 0.5;
  s.model.tied = false;
  s.steps = kSteps;
  return s;
}

CompileOptions compile_options(const Setting& s, const Graph& graph, int stage) {
  CompileOptions o;
  o.first_block = balance_stages(graph, kStages);
  o.stage = stage;
  o.micro_batch = s.batch_size / s.micro_batches;
  o.micro_batches = o.saved_copies = s.micro_batches;
  o.prepare = backend("cpu").prepare;
  return o;
}

// Does the work of a Job at each step, on rows that `change` may alter. Returns the weights
// after the last step.
Weights trained(
    const Change& change, const ChangeBatch& change_batch = [](auto&, int, int) {}) {
  const Setting s = setting();
  const Graph graph = language_model(s.model);
  Lowering how;
  how.pipelines = kPipelines;
  how.reduce_scalars = true;
  const Schedule plan =
      lower(generate("1f1b", {.stages = kStages, .micro_batches = s.micro_batches}), how);
  Weights weights;
  std::mutex mutex;
  const auto work = [&](comm::Transport& links) {
    const int worker = links.worker(), stage = worker % kStages, pipeline = worker / kStages;
    std::vector<std::unique_ptr<StagePlan>> plans(kStages);
    plans[stage] =
        std::make_unique<StagePlan>(compile_stage(graph, compile_options(s, graph, stage)));
    StagesOptions run;
    run.plan = &plan;
    run.pipeline = pipeline;
    run.pipelines = kPipelines;
    run.workers_per_pipeline = kStages;
    run.micro_batches = run.micro_ids = s.micro_batches;
    run.seed = options_of(s).seed;
    const std::unique_ptr<Device> device = open_device("cpu");
    TrainStages stages(graph, std::move(plans), s.optimizer, run, *device, links);
    comm::Reducer reducer(links);
    AllReduce sums(stages, links, reducer);
    Feeds feeds(stages, nullptr, s.batch_size);
    for (int step = 0; step < kSteps; ++step) {
      Tokens batch = batch_of(s, step);
      change_batch(batch, worker, step);
      const Batch fields = part_of(s, batch, pipeline);
      const Feeds::Reading reading(feeds, fields);
      Row row = bind_row(plan, worker, kPipelines);
      for (auto* part : {&row.prologue, &row.body, &row.drain}) change(*part, worker, step);
      Interpreter::Links with{links, {&sums}};
      with.feeds = &feeds;
      Interpreter loop(std::move(row), stages, with);
      loop.run_step(step);
      loop.finish();
    }
    const std::lock_guard lock(mutex);
    for (const StateTensor& t : stages.state()) weights.emplace(t.name, t.values.values());
  };
  EXPECT_EQ(on_worker_threads(kStages * kPipelines, work), "");
  return weights;
}

// Returns the distance of the worst tensor, measured as docs/equality.md defines it for several
// pipelines.
double distance_from_one_process(const Weights& got) {
  Setting one = setting();
  one.stages = one.pipelines = 1;
  one.micro_batches *= kPipelines;
  one.batch_size *= kPipelines;
  const Weights wanted = train(one).weights;
  EXPECT_EQ(got.size(), wanted.size());
  double worst = 0;
  for (const auto& [name, weight] : wanted)
    worst = std::max(worst, difference(got.at(name), weight) / std::max(1.0, norm(weight)));
  return worst;
}

void drop(std::vector<Action>& row, Kind kind) {
  row.erase(
      std::remove_if(row.begin(), row.end(), [&](const Action& a) { return a.instr.kind == kind; }),
      row.end());
}

TEST(PlanMutation, NoneIsEqual) {
  EXPECT_LE(distance_from_one_process(trained([](auto&, int, int) {})), 1e-6);
}

TEST(PlanMutation, ADroppedGradientSumIsFound) {
  for (int stage = 0; stage < kStages; ++stage) {
    const Change lost = [&](std::vector<Action>& row, int worker, int step) {
      if (step == 1 && worker % kStages == stage) drop(row, Kind::ReduceGrad);
    };
    EXPECT_GT(distance_from_one_process(trained(lost)), 1e-4) << "stage " << stage;
  }
}

// The first stage of a pipeline swaps two micro-batches, and the last stage does not. Inputs and
// labels no longer match.
TEST(PlanMutation, SwappedMicroBatchesAreFound) {
  const Setting s = setting();
  const auto swapped = [&](Tokens& batch, int worker, int step) {
    if (worker != 0 || step != 1) return;
    const std::int64_t micro = s.batch_size / s.micro_batches * s.model.length;
    std::swap_ranges(batch.ids.begin(), batch.ids.begin() + micro, batch.ids.begin() + micro);
  };
  EXPECT_GT(distance_from_one_process(trained([](auto&, int, int) {}, swapped)), 1e-4);
}

// An update is omitted, so that the next steps use stale weights.
TEST(PlanMutation, AStaleWeightIsFound) {
  const Change stale = [](std::vector<Action>& row, int worker, int step) {
    if (step == 1 && worker % kStages == 0) drop(row, Kind::Update);
  };
  EXPECT_GT(distance_from_one_process(trained(stale)), 1e-4);
}

}  // namespace
}  // namespace hetu
