// Tests the results of a traced training run: its prediction, and the costs of the model's blocks.
#include "executor/job/run_trace.h"

#include <gmock/gmock.h>

#include <cstdio>

#include "base/error.h"
#include "base/text_file.h"
#include "executor/job/job.h"
#include "pipeline/compare/compare.h"
#include "pipeline/ir/plan_file.h"
#include "tests/executor/small_model.h"
#include "tests/executor/test_batches.h"
#include "tests/executor/test_options.h"
#include "tests/executor/worker_threads.h"
#include "tests/temporary_folder.h"

namespace hetu {
namespace {

constexpr int kSteps = 6;

// Returns the trace of a run over two pipelines, with a thread per worker.
std::string traced(const char* method, int stages, const testing_model::Sizes& model) {
  JobOptions options = test_options();
  options.pipelines = 2;
  options.stages = stages;
  options.method = method;
  options.micro_batches = 8;
  options.batch_size = 32;
  OptimizerConfig optimizer;
  const TemporaryFolder folder;
  const std::string path = folder / "trace.json";
  const auto work = [&](comm::Transport& links) {
    Job trainer(testing_model::language_model(model), optimizer, options, links);
    trainer.record(true);
    for (int step = 0; step < kSteps; ++step) {
      const testing_model::Tokens t = testing_model::tokens(model, 64, step);
      trainer.train(rows_of(t, model.length, trainer.plan().pipeline * 32, 32));
    }
    trainer.write_trace(path);
  };
  EXPECT_EQ(on_worker_threads(2 * stages, work), "");
  return read_text(path);
}

class RunTrace : public testing::TestWithParam<const char*> {};

TEST_P(RunTrace, HoldsTheCostsOfItsBlocks) {
  testing_model::Sizes model;
  model.blocks = 8;
  model.width = 96;
  model.length = 24;
  const std::string text = traced(GetParam(), 2, model);
  const Costs costs = parse_costs(text, "trace");
  ASSERT_EQ(costs.blocks.size(), 8U);
  StageCost whole{.forward = 0, .input_grad = 0, .weight_grad = 0};
  double stages = 0, backward = 0;
  for (const BlockCost& b : costs.blocks) {
    EXPECT_GT(b.cost.forward, 0);
    EXPECT_GT(b.cost.input_grad, 0);
    EXPECT_GT(b.cost.weight_grad, 0);
    EXPECT_GT(b.cost.activation_bytes, 0);
    EXPECT_GT(b.cost.weight_bytes, 2 * 4 * 2 * 96 * 96);
    EXPECT_GT(b.cost.reduce_grad, 0);
    EXPECT_EQ(b.cost.bytes_out > 0, &b != &costs.blocks.back());
    whole.forward += b.cost.forward;
    whole.input_grad += b.cost.input_grad;
    whole.weight_grad += b.cost.weight_grad;
  }
  for (const StageCost& s : costs.stages) {
    stages += s.forward;
    backward += s.input_grad + s.weight_grad;
  }
  // The trace is written and read in microseconds, which limits the accuracy.
  EXPECT_NEAR(whole.forward / stages, 1, 1e-6);
  EXPECT_NEAR((whole.input_grad + whole.weight_grad) / backward, 1, 1e-6);
  for (const StageCost& s : costs.stages) EXPECT_NE(s.input_grad, s.weight_grad);
  // Four samples of 24 x 96 floats cross each cut. The last block has no boundary after it.
  EXPECT_EQ(costs.blocks[2].cost.bytes_out, 4 * 24 * 96 * 4.0);
  EXPECT_EQ(recut(costs, 4).stages.size(), 4U);
}

TEST_P(RunTrace, CanBeComparedWithItsPlan) {
  const std::string text = traced(GetParam(), 3, {});
  const Trace trace = trace_from_json(text, "trace");
  const Comparison c = compare(trace, *plan_of_trace(trace, "trace"));
  SCOPED_TRACE(to_text(c));
  EXPECT_EQ(c.runs.size() + c.warm_up, kSteps);
  EXPECT_EQ(c.unplanned, 0);
  EXPECT_EQ(c.workers.size(), 6U);
  double sum = 0;
  for (const Loss& loss : c.last.losses) sum += loss.us;
  EXPECT_NEAR(sum, c.last.late_us, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Methods, RunTrace, testing::Values("1f1b", "zb-h1"), [](const auto& each) {
  return std::string(each.param) == "1f1b" ? "OneFOneB" : "ZbH1";
});

}  // namespace
}  // namespace hetu
