// Training on a GPU equals that on the CPU, and pipelines have the bits of one stage. Skipped, with
// the reason printed, where there is no GPU. With HETU_GPU_TEST_DEVICE=far it trains on that
// device, to test the tests.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>

#include "executor/device/device.h"
#include "tests/executor/conv_model.h"
#include "tests/executor/train_together.h"

namespace hetu::test {
namespace {

using testing_model::adamw;
using testing_model::expect_equal;
using testing_model::Outcome;
using testing_model::Setting;
using testing_model::sgd;
using testing_model::train;

std::string training_device() {
  const char* const other = std::getenv("HETU_GPU_TEST_DEVICE");
  return other != nullptr ? other : "cuda";
}

class GpuTraining : public testing::Test {
 protected:
  void SetUp() override {
    if (training_device() == "cuda" && !cuda_problem().empty()) GTEST_SKIP() << cuda_problem();
  }
};

void expect_near(const std::vector<double>& losses, const std::vector<double>& want, double part) {
  ASSERT_EQ(losses.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(losses[i], want[i], part * std::fabs(want[i])) << "step " << i;
}

TEST_F(GpuTraining, LossesOf100StepsAreTheCpus) {
  for (const OptimizerConfig& optimizer : {sgd(), adamw()}) {
    Setting s;
    s.method = "gpipe";
    s.optimizer = optimizer;
    s.steps = 100;
    s.device = "cpu";
    const Outcome cpu = train(s);
    s.device = training_device();
    const Outcome gpu = train(s);
    expect_near(gpu.losses, cpu.losses, 1e-4);
  }
}

/// Returns settings of one stage with AdamW, changed by `configure`.
Setting on_gpu(const std::function<void(JobOptions&)>& configure) {
  Setting s;
  s.method = "gpipe";
  s.optimizer = adamw();
  s.steps = 20;
  s.device = training_device();
  s.configure = configure;
  return s;
}

TEST_F(GpuTraining, GraphsOfStageFunctionsHaveTheSameBits) {
  const auto graphs = [](const char* how) {
    return on_gpu([=](JobOptions& o) { o.cuda_graphs = how; });
  };
  expect_equal(train(graphs("off")), train(graphs("on")), /*bitwise=*/true, /*adam=*/true,
               "graphs");
}

// A state that is rounded in the other direction differs by one part in 256.
TEST_F(GpuTraining, StatesOfTwoBytesAreTheCpus) {
  Setting s = on_gpu([](JobOptions& o) { o.state_dtype = "bf16"; });
  const Outcome gpu = train(s);
  s.device = "cpu";
  expect_near(gpu.losses, train(s).losses, 1e-3);
}

TEST_F(GpuTraining, Tf32LosesNearFloat32) {
  if (training_device() != "cuda") GTEST_SKIP() << "TF32 is of device cuda alone";
  const Outcome wide = train(on_gpu([](JobOptions&) {}));
  const Outcome tf32 = train(on_gpu([](JobOptions& o) { o.dtype = "tf32"; }));
  expect_near(tf32.losses, wide.losses, 2e-2);
  EXPECT_NE(tf32.losses, wide.losses) << "products are not rounded";
}

/// Returns the losses of a small residual network. Its last stage reports them.
std::vector<double> residual_losses(const std::string& device, int stages, int steps,
                                    const std::string& dtype = "float32", double rate = 0.05) {
  JobOptions options = test_options();
  options.device = device;
  options.method = "1f1b";
  options.stages = stages;
  options.micro_batches = 4;
  options.batch_size = 16;
  options.seed = 5;
  options.threads = 1;
  options.dtype = dtype;
  OptimizerConfig optimizer = sgd();
  optimizer.rate.base = rate;
  std::vector<std::vector<double>> told(static_cast<std::size_t>(stages));
  const auto work = [&](comm::Transport& links) {
    Job job(testing_model::residual_model(), optimizer, options, links);
    for (int step = 0; step < steps; ++step) {
      const testing_model::Images batch =
          testing_model::images(static_cast<int>(options.batch_size), step);
      const Batch fields = rows_of(batch, 0, options.batch_size, options.batch_size);
      told[static_cast<std::size_t>(links.worker())].push_back(job.train(fields).at("loss"));
    }
  };
  EXPECT_EQ(on_worker_threads(stages, work), "");
  return told.front();
}

// At this rate, the CPU's own kernels and its reference kernels agree to 1e-7 over 100 steps. At
// 0.05 they differ from step 24 on, where a value falls on the other side of a ReLU, by up to 2e-4.
TEST_F(GpuTraining, ResidualNetworksLoseAsOnTheCpu) {
  constexpr double kRate = 0.03;
  expect_near(residual_losses(training_device(), 1, 100, "float32", kRate),
              residual_losses("cpu", 1, 100, "float32", kRate), 1e-4);
}

TEST_F(GpuTraining, ResidualNetworksOfThreeStagesAreOneStage) {
  EXPECT_EQ(residual_losses(training_device(), 3, 10), residual_losses(training_device(), 1, 10));
}

TEST_F(GpuTraining, ConvolutionsOfTf32LoseNearFloat32) {
  if (training_device() != "cuda") GTEST_SKIP() << "TF32 is of device cuda alone";
  const std::vector<double> wide = residual_losses("cuda", 1, 4);
  const std::vector<double> tf32 = residual_losses("cuda", 1, 4, "tf32");
  expect_near(tf32, wide, 2e-2);
  EXPECT_NE(tf32, wide) << "they are not rounded";
}

// Mixed precision by the GPU's own types, or by emulation on the device that tests the test.
TEST_F(GpuTraining, TwoByteFloatsLoseAsFloat32) {
  const std::string by = training_device() == "cuda" ? "" : "-emulated";
  const std::vector<double> wide = residual_losses(training_device(), 2, 1);
  for (const char* dtype : {"bf16", "fp16"}) {
    SCOPED_TRACE(dtype);
    std::vector<double> narrow = residual_losses(training_device(), 2, 30, dtype + by);
    EXPECT_TRUE(
        std::all_of(narrow.begin(), narrow.end(), [](double x) { return std::isfinite(x); }));
    // A dynamic scale skips updates at first, so only the first losses are alike.
    EXPECT_NEAR(narrow.front(), wide.front(), 0.02 * wide.front());
    EXPECT_LT(narrow.back(), 0.9 * narrow.front());
  }
}

struct MethodCase {
  const char* method;
  int stages;
  int chunks = 0;       // 0: the method's default
  bool bitwise = true;  // gradients of one replica, added in ascending order
  bool recompute = false;
};

class GpuMethods : public GpuTraining, public testing::WithParamInterface<MethodCase> {};

// Workers are threads, each with its own queue on the same GPU.
TEST_P(GpuMethods, AreOneStage) {
  const MethodCase& method_case = GetParam();
  Setting one;
  one.method = "gpipe";  // 1f1b of one stage would be the CPU's
  one.model.blocks = 8;
  one.model.skip = true;
  one.optimizer = adamw();
  one.device = training_device();
  one.micro_batches = 8;
  one.batch_size = 16;
  Setting many = one;
  many.method = method_case.method;
  many.stages = method_case.stages;
  many.chunks = method_case.chunks;
  many.recompute = method_case.recompute;
  expect_equal(train(one), train(many), method_case.bitwise, /*adam=*/true, method_case.method);
}

INSTANTIATE_TEST_SUITE_P(
    Methods, GpuMethods,
    testing::Values(MethodCase{"gpipe", 4}, MethodCase{"1f1b", 4},
                    MethodCase{"1f1b", 2, 0, true, true}, MethodCase{"interleaved-1f1b", 2, 4},
                    MethodCase{"interleaved-zb", 4, 2}, MethodCase{"hanayo", 4, 2},
                    MethodCase{"zb-1p", 4}, MethodCase{"zb-2p", 4}, MethodCase{"zb-v", 4},
                    MethodCase{"v-half", 4}, MethodCase{"v-min", 4}, MethodCase{"dualpipev", 4},
                    MethodCase{"auto", 2, 2}, MethodCase{"looped-bfs", 4, 2, false},
                    MethodCase{"varuna", 4}, MethodCase{"chimera", 4, 0, false},
                    MethodCase{"dualpipe", 4, 0, false}, MethodCase{"gems", 2, 0, false}),
    [](const auto& one) {
      std::string name = fmt::format("{}_{}", one.param.method, one.index);
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace hetu::test
