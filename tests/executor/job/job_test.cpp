// Tests the errors of a trainer and its report of a loss that is not a number. Validation must not
// train.
#include "executor/job/job.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/error.h"
#include "executor/job/job_check.h"
#include "net/transport/inproc.h"
#include "pipeline/generate/generate.h"
#include "tests/executor/small_model.h"
#include "tests/executor/test_batches.h"
#include "tests/executor/test_options.h"
#include "tests/executor/train_together.h"

namespace hetu {
namespace {

using namespace testing_model;  // NOLINT

TEST(Job, RefusesABatchThatMicroBatchesDoNotDivide) {
  auto transports = comm::make_inproc(1);
  JobOptions options = test_options();
  options.batch_size = 10;
  options.micro_batches = 4;
  EXPECT_THAT([&] { Job(language_model({}), sgd(), options, *transports[0]); },
              testing::ThrowsMessage<Error>(
                  testing::HasSubstr("--batch-size 10 is not a multiple of --micro-batches 4")));
}

TEST(Job, RefusesAPlanOverTheMemoryLimit) {
  auto transports = comm::make_inproc(1);
  JobOptions options = test_options();
  options.batch_size = 4;
  options.micro_batches = 2;
  options.limit_bytes = 1000;
  EXPECT_THAT(
      [&] { Job(language_model({}), sgd(), options, *transports[0]); },
      testing::ThrowsMessage<Error>(testing::HasSubstr("over the limit of 0.0 MiB (1000 bytes)")));
}

// The check needs no links and covers every worker: here the last stage needs the most memory.
TEST(Job, CheckRefusesWhatAWorkerWould) {
  JobOptions options = test_options();
  options.stages = 4;
  options.batch_size = 4;
  options.micro_batches = 2;
  options.threads = 1;  // The scratch memory of kernels depends on the number of threads.
  const Graph graph = language_model({});
  std::vector<std::int64_t> peaks(4);
  const auto measure = [&](comm::Transport& links) {
    peaks[static_cast<std::size_t>(links.worker())] =
        Job(graph, sgd(), options, links).plan().memory.peak();
  };
  EXPECT_EQ(on_worker_threads(4, measure), "");
  const auto most = std::max_element(peaks.begin(), peaks.end());
  options.limit_bytes = *most;
  EXPECT_NO_THROW(check_job(graph, sgd(), options));
  --options.limit_bytes;
  EXPECT_THAT([&] { check_job(graph, sgd(), options); },
              testing::ThrowsMessage<Error>(testing::HasSubstr(
                  fmt::format("worker {} (pipeline 0, stage", most - peaks.begin()))));
  options.limit_bytes = 0;
  options.plan = generate("1f1b", {.stages = 3, .micro_batches = 2});
  EXPECT_THAT([&] { check_job(graph, sgd(), options); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("the schedule is for 3 workers")));
  options.plan = generate("interleaved-1f1b", {.stages = 4, .micro_batches = 4, .chunks = 2});
  options.micro_batches = 4;
  EXPECT_THAT([&] { check_job(graph, sgd(), options); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("8 stages do not fit")));
  Program& second = options.plan->workers[1];
  std::vector<Instr> row = unroll(second);
  row.pop_back();
  second = {std::move(row), {}, 0, 0, {}};
  EXPECT_THAT([&] { check_job(graph, sgd(), options); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("is missing")));
}

TEST(Job, CheckRefusesStragglersAndAveragesThatDoNotFit) {
  testing_model::Sizes sizes;
  sizes.tied = false;
  const Graph graph = language_model(sizes);
  JobOptions options;
  options.method = "pipedream";
  options.stages = options.pipelines = 2;
  options.batch_size = 4;
  options.averaging.emplace();
  const auto check = [&] { check_job(graph, sgd(), options); };
  EXPECT_NO_THROW(check());
  options.stragglers.slow.push_back({.pipeline = 2, .factor = 2});
  EXPECT_THAT(check, testing::ThrowsMessage<Error>(
                         testing::HasSubstr("there is no pipeline 2; the job has")));
  options.stragglers.slow[0] = {.pipeline = 1, .factor = 0.5};
  EXPECT_THAT(check, testing::ThrowsMessage<Error>(
                         testing::HasSubstr("can only slow a worker down, got 0.5")));
  options.stragglers.slow.clear();
  options.averaging->policy.sync_period = 0;
  EXPECT_THAT(check,
              testing::ThrowsMessage<Error>(testing::HasSubstr("--sync-period must be >= 1")));
}

TEST(Job, NamesStageMicroAndStepOfANanLoss) {
  auto transports = comm::make_inproc(1);
  JobOptions options = test_options();
  options.batch_size = 4;
  options.micro_batches = 2;
  OptimizerConfig wild;
  wild.rate.base = 1e15;
  Job trainer(language_model({}), wild, options, *transports[0]);
  const Tokens batch = tokens({}, 4, 0);
  const Batch fields = rows_of(batch, testing_model::Sizes().length, 0, 4);
  EXPECT_THAT(
      [&] {
        for (int i = 0; i < 10; ++i) trainer.train(fields);
      },
      testing::ThrowsMessage<Error>(testing::ContainsRegex(
          "(loss is -?(nan|inf) at stage 0, micro-batch [01], step [0-9])|norm is")));
}

TEST(Job, ValidationChangesNothingAndIsWithoutDropout) {
  auto transports = comm::make_inproc(1);
  JobOptions options = test_options();
  options.batch_size = 4;
  options.micro_batches = 2;
  Job trainer(language_model({}), sgd(), options, *transports[0]);
  const Tokens batch = tokens({}, 4, 0);
  const Batch fields = rows_of(batch, testing_model::Sizes().length, 0, 4);
  const double before = trainer.validate(fields).at("loss");
  EXPECT_EQ(before, trainer.validate(fields).at("loss"));
  EXPECT_EQ(trainer.step(), 0);
  const double with_dropout = trainer.train(fields).at("loss");
  EXPECT_NE(before, with_dropout);
  EXPECT_NE(before, trainer.validate(fields).at("loss"));
}

}  // namespace
}  // namespace hetu
