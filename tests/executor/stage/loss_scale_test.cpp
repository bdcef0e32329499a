// Tests the loss scale of float16: its rule, and that an overflow in one micro-batch of one stage
// of one pipeline skips the update everywhere.
#include "executor/stage/loss_scale.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <mutex>
#include <vector>

#include "executor/job/job.h"
#include "executor/job/job_check.h"
#include "graph/builder.h"
#include "ops/registry.h"
#include "tests/executor/small_model.h"
#include "tests/executor/test_batches.h"
#include "tests/executor/train_together.h"
#include "tests/executor/worker_threads.h"

namespace hetu {
namespace {

using testing_model::adamw;

TEST(LossScale, HalvesAndDoubles) {
  LossScale scale{LossScaling{}};
  EXPECT_EQ(scale.scale(), 1048576);
  scale.ended(false);
  EXPECT_TRUE(scale.skips());
  EXPECT_EQ(scale.scale(), 524288);
  for (int step = 1; step < LossScale::kWindow; ++step) scale.ended(true);
  EXPECT_FALSE(scale.skips());
  EXPECT_EQ(scale.scale(), 524288);
  scale.ended(true);
  EXPECT_EQ(scale.scale(), 1048576);
  for (int step = 0; step < 30; ++step) scale.ended(false);
  EXPECT_EQ(scale.scale(), 1);
  EXPECT_EQ(scale.state().skipped, 31);
  scale.resume({64, LossScale::kWindow - 1, 3});
  scale.ended(true);
  EXPECT_EQ(scale.scale(), 128);
  EXPECT_EQ(scale.state().skipped, 3);
}

TEST(LossScale, ANumberStays) {
  LossScale scale(parse_loss_scaling("1024"));
  for (int step = 0; step < LossScale::kWindow + 1; ++step) scale.ended(true);
  scale.ended(false);
  EXPECT_TRUE(scale.skips());
  scale.resume({7, 8, 9});
  EXPECT_EQ(scale.scale(), 1024);
  EXPECT_EQ(scale.state().skipped, 9);
  for (const char* wrong : {"", "dynamo", "0.5", "1e13", "12x", "nan"})
    EXPECT_THROW(parse_loss_scaling(wrong), Error) << wrong;
  EXPECT_THROW(scale.resume({0, 0, 0}), Error);
}

constexpr int kWidth = 8;

// Three linear layers, each in a block of its own. `boost` multiplies the output of the first layer
// and the gradient of its weight, and nothing after them.
Graph boosted_model(double factor = 0.01) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, kWidth});
  const ValueId boost = b.placeholder("boost", DType::Float32, {kBatch, 1});
  // The layer has no bias: multiplied by the boost, a bias would saturate tanh.
  const ValueId w =
      b.parameter("first.weight", {kWidth, kWidth}, {Initializer::Kind::Normal, 0, 0.2});
  ValueId h = b.apply("mul", {b.apply("linear", {x, w}, {}, "first"), boost});
  h = b.apply("tanh", {h});
  b.cut();
  h = b.apply("tanh", {testing_model::dense(b, h, kWidth, kWidth, "second")});
  b.cut();
  const ValueId y = testing_model::dense(b, h, kWidth, 1, "third");
  const ValueId loss = b.apply("scale", {b.apply("sum", {y})}, {{"factor", factor}});
  b.fetch("loss", loss);
  b.differentiate(loss);
  return b.finish();
}

struct JobCase {
  std::string method = "1f1b";
  int pipelines = 2, stages = 3;
  std::string loss_scale = "dynamic";
  std::string device = {};
};

struct Ended {
  std::vector<StepResult> steps;
  std::vector<std::map<std::string, std::vector<float>>> weights;  // after each step
  LossScale::State scale;
};

constexpr int kRows = 8, kMicros = 4, kSteps = 4;
constexpr int kOverflows = 2;  // step at which the gradient overflows

// Returns the boost of a row. In step kOverflows, one row of the last pipeline's third micro-batch
// is boosted. Its input is scaled down by the same factor, so that the forward is unchanged and the
// gradient behind the boost overflows.
float boost_of(int step, int row, int rows) {
  return step == kOverflows && row == rows - 3 ? 4e4F : 1.0F;
}

Ended run(const JobCase& job, const LossScale::State* resumed = nullptr) {
  Ended out;
  std::mutex mutex;
  const auto work = [&](comm::Transport& links) {
    JobOptions options = test_options();
    options.method = job.method;
    options.pipelines = job.pipelines;
    options.stages = job.stages;
    options.micro_batches = kMicros / job.pipelines;
    options.batch_size = kRows / job.pipelines;
    options.dtype = "fp16-emulated";
    options.loss_scale = job.loss_scale;
    options.threads = 1;
    if (!job.device.empty()) options.device = job.device;
    Job trainer(boosted_model(), adamw(), options, links);
    if (resumed != nullptr) trainer.resume_loss_scale(*resumed);
    for (int step = 0; step < kSteps; ++step) {
      std::vector<float> x, boost;
      for (int row = 0; row < kRows; ++row) {
        boost.push_back(boost_of(step, row, kRows));
        for (int i = 0; i < kWidth; ++i)
          x.push_back(std::sin(static_cast<float>(step * 31 + row * kWidth + i)) / boost.back());
      }
      const int first = trainer.plan().pipeline * kRows / job.pipelines;
      Batch batch;
      add_rows(batch, "x", x, first, kRows / job.pipelines, kRows);
      add_rows(batch, "boost", boost, first, kRows / job.pipelines, kRows);
      const StepResult result = trainer.train(batch);
      const std::lock_guard lock(mutex);
      if (links.worker() == 0) out.steps.push_back(result);
      out.weights.resize(kSteps);
      for (const StateTensor& t : trainer.state())
        out.weights[static_cast<std::size_t>(step)][t.name + t.state] = t.values.values();
    }
    const std::lock_guard lock(mutex);
    if (links.worker() == 0) out.scale = trainer.loss_scale().state();
  };
  EXPECT_EQ(on_worker_threads(job.pipelines * job.stages, work), "");
  return out;
}

TEST(LossScale, AnOverflowAnywhereIsSkippedEverywhere) {
  for (const auto& [method, device] : {std::pair("1f1b", ""), {"zb-h1", "far"}, {"gpipe", ""}}) {
    const Ended ended = run({method, 2, 3, "dynamic", device});
    ASSERT_EQ(ended.steps.size(), std::size_t{kSteps});
    for (int step = 0; step < kSteps; ++step) {
      const StepResult& r = ended.steps[static_cast<std::size_t>(step)];
      EXPECT_EQ(r.skipped, step == kOverflows) << method << ", step " << step;
      EXPECT_EQ(r.loss_scale, step < kOverflows ? 1048576 : 524288) << method << ", step " << step;
      EXPECT_TRUE(std::isfinite(r.at("loss")));
      EXPECT_EQ(std::isfinite(r.gradient_norm), step != kOverflows);
      if (step == 0) continue;
      const auto now = static_cast<std::size_t>(step);
      for (const auto& [name, values] : ended.weights[now]) {
        const bool same = ended.weights[now - 1].at(name) == values;
        EXPECT_EQ(same, step == kOverflows) << method << ", " << name << ", step " << step;
        for (const float v : values) EXPECT_TRUE(std::isfinite(v)) << name;
      }
    }
    // Learning rates count updates, not steps.
    EXPECT_EQ(ended.steps[kOverflows].learning_rate, ended.steps[kOverflows - 1].learning_rate);
    EXPECT_EQ(ended.scale.skipped, 1);
    EXPECT_EQ(ended.scale.clean, 1);
  }
}

// The scale cancels out. Without an overflow, a power of two changes only bits below the smallest
// number of float16.
TEST(LossScale, ChangesNoUpdate) {
  const Ended large = run({"1f1b", 2, 3, "65536"}), small = run({"1f1b", 2, 3, "8192"});
  for (const auto& [name, values] : large.weights[kOverflows - 1]) {
    const std::vector<float>& other = small.weights[kOverflows - 1].at(name);
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(values[i], other[i], 1e-4 * (1 + std::fabs(values[i]))) << name;
  }
  const Ended one = run({"1f1b", 1, 1, "65536"}), three = run({"1f1b", 1, 3, "65536"});
  EXPECT_EQ(one.weights, three.weights);
}

TEST(LossScale, GoesOnFromACheckpoint) {
  const LossScale::State saved{256, LossScale::kWindow - 2, 0};
  const Ended ended = run({"1f1b", 1, 1}, &saved);
  EXPECT_EQ(ended.steps[0].loss_scale, 256);
  EXPECT_EQ(ended.steps[1].loss_scale, 512);  // kWindow steps without an overflow
}

// A scale of 1 can't be reduced further, so the job ends.
TEST(LossScale, WhatOverflowsAtOneIsAnError) {
  const auto work = [&](comm::Transport& links) {
    JobOptions options = test_options();
    options.method = "gpipe";
    options.micro_batches = 1;
    options.batch_size = kRows;
    options.dtype = "fp16-emulated";
    options.loss_scale = "1";
    Job trainer(boosted_model(1e4), adamw(), options, links);
    const std::vector<float> x(kRows * kWidth, 1e-5F);
    std::vector<float> boost(kRows, 6e4F);
    Batch batch;
    add_field(batch, "x", x.data(), x.size());
    add_field(batch, "boost", boost.data(), boost.size());
    trainer.train(batch);
  };
  EXPECT_THAT(on_worker_threads(1, work), testing::HasSubstr("the norm of the gradient of 'first"));
}

TEST(LossScale, IsRefusedWhereAnUpdateCannotBeLeftOut) {
  const auto said = [](const std::function<void(JobOptions&)>& configure) {
    JobOptions options = test_options();
    options.stages = 2;
    options.micro_batches = 1;
    options.batch_size = kRows;
    options.method = "1f1b";
    options.dtype = "fp16-emulated";
    configure(options);
    try {
      check_job(boosted_model(), adamw(), options);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("taken");
  };
  EXPECT_EQ(said([](JobOptions&) {}), "taken");
  EXPECT_THAT(said([](JobOptions& o) { o.method = "pipedream"; }),
              testing::HasSubstr("'pipedream' updates stage by stage. Choose --dtype bf16"));
  EXPECT_THAT(said([](JobOptions& o) { o.dtype = "fp16"; }),
              testing::HasSubstr("use --dtype bf16 or float32, or fp16-emulated"));
  EXPECT_THAT(said([](JobOptions& o) {
                o.dtype = "tf32";
                o.loss_scale = "dynamic";
              }),
              testing::HasSubstr("--dtype tf32 needs the matrix units of a GPU, but --device is"));
  EXPECT_THAT(said([](JobOptions& o) { o.loss_scale = "much"; }),
              testing::HasSubstr("--loss-scale must be dynamic or a fixed number"));
  EXPECT_THAT(said([](JobOptions& o) {
                o.dtype = "bf16-emulated";
                o.loss_scale = "8";
              }),
              testing::HasSubstr("--loss-scale applies only to --dtype fp16 and fp16-emulated"));
}

}  // namespace
}  // namespace hetu
