// Training with messages and gradient sums that go directly between memories of devices has the
// bits of the CPU. The tests use the device "far" and a library that stands in for NCCL.
#include "executor/job/gpu_messages.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/executor/sync/average_together.h"
#include "tests/executor/train_together.h"
#include "tests/stand_ins/fake_nccl.h"

namespace hetu {
namespace {

using namespace testing_model;  // NOLINT
using testing::AllOf;
using testing::HasSubstr;

// Must be set before the environment is read.
const bool kLibrary = setenv("HETU_NCCL", HETU_FAKE_NCCL, 1) == 0;

const comm::FakeNccl& fake() {
  static const comm::FakeNccl one = comm::load_fake_nccl();
  return one;
}

struct Trained {
  const char* method;
  int stages;
  int pipelines = 1;
  int chunks = 0;
  const char* sums = "running";
};

Setting setting_of(const Trained& c) {
  Setting s;
  s.method = c.method;
  s.stages = c.stages;
  s.pipelines = c.pipelines;
  s.chunks = c.chunks;
  s.model.blocks = 8;
  s.model.skip = true;
  s.optimizer = adamw();
  return s;
}

class Direct : public testing::TestWithParam<Trained> {};

TEST_P(Direct, TrainsToTheBitsOfTheCpu) {
  ASSERT_TRUE(kLibrary);
  Setting s = setting_of(GetParam());
  s.device = "cpu";
  s.configure = [](JobOptions& o) { o.sums = GetParam().sums; };
  const Outcome cpu = train(s);
  s.device = "far";
  s.configure = [](JobOptions& o) {
    o.sums = GetParam().sums;
    o.gpu_messages = "nccl";
  };
  const long before = fake().moved();
  const Outcome direct = train(s);
  EXPECT_GT(fake().moved() - before, 5L * s.micro_batches) << "nothing went by NCCL";
  EXPECT_EQ(fake().live(), 0);
  expect_equal(cpu, direct, /*bitwise=*/true, /*adam=*/true, s.method);
}

INSTANTIATE_TEST_SUITE_P(Methods, Direct,
                         testing::Values(Trained{"1f1b", 3}, Trained{"1f1b", 2, 2},
                                         Trained{"chimera", 4, 1}, Trained{"zb-v", 2},
                                         Trained{"dualpipev", 2, 2},
                                         Trained{"1f1b", 2, 3, 0, "tree"},
                                         Trained{"chimera", 4, 2, 0, "tree"}));

testing_average::Setting averaging_setting() {
  testing_average::Setting s;
  s.optimizer = testing_average::optimizer(OptimizerConfig::Kind::Momentum);
  s.runs = {20, 3, 12};
  return s;
}

void by_nccl(JobOptions& o) {
  o.device = "far";
  o.gpu_messages = "nccl";
}

// All pipelines meet after each update, so the order of additions is fixed.
TEST(DirectMeans, OfAllHaveTheBitsOfTheHosts) {
  ASSERT_TRUE(kLibrary);
  for (const int stages : {1, 2}) {
    testing_average::Setting s = averaging_setting();
    s.stages = stages;
    s.policy.sync_period = 1;
    const auto host = testing_average::train(s);
    s.configure = by_nccl;
    const long before = fake().moved();
    const auto direct = testing_average::train(s);
    EXPECT_GT(fake().moved() - before, 100L);
    EXPECT_EQ(fake().live(), 0);
    EXPECT_EQ(host.tensors, direct.tensors);
    EXPECT_EQ(host.losses, direct.losses);
  }
}

// Four pipelines form more groups than there are cached communicators.
TEST(DirectMeans, OfGroupsThatChangeAreKept) {
  ASSERT_TRUE(kLibrary);
  for (const bool overlap : {true, false})
    for (const auto weights : {groups::Weights::Uniform, groups::Weights::Staleness}) {
      testing_average::Setting s = averaging_setting();
      s.pipelines = 4;
      s.policy.max_group = 2;
      s.policy.weights = weights;
      s.overlap = overlap;
      s.slow = {1, 4, 2, 1};
      s.configure = by_nccl;
      const int made = fake().made();
      const auto got = testing_average::train(s);
      testing_average::expect_sound(s, got);
      EXPECT_GT(got.groups.size(), 20U);
      EXPECT_GT(fake().made() - made, 3);
      EXPECT_EQ(fake().live(), 0);
    }
}

TEST(DirectMeans, GoThroughHostMemoryWherePartnersAreAskedAtAnyTime) {
  Averaging how;
  EXPECT_TRUE(averages_go_direct(how));
  how.policy.method = groups::Method::AdPsgd;
  EXPECT_FALSE(averages_go_direct(how));
  how.policy.method = groups::Method::PartialReduce;
  how.apart.emplace();
  EXPECT_FALSE(averages_go_direct(how));
}

// An explicit request is refused on a device without support. The automatic choice is not.
TEST(DirectTraining, IsRefusedWhereMemoryIsTheHosts) {
  Setting s = setting_of({"1f1b", 2});
  s.device = "cpu";
  s.configure = [](JobOptions& o) { o.gpu_messages = "nccl"; };
  const auto said = on_worker_threads(2, [&](comm::Transport& links) {
    Job trainer(language_model(s.model), s.optimizer, options_of(s), links);
  });
  EXPECT_EQ(said,
            "--gpu-messages nccl: worker 0: device cpu has no memory of its own; use "
            "--gpu-messages host");
}

TEST(DirectTraining, WhatHasNoSuchSumsGoesThroughHostMemory) {
  JobOptions options;
  EXPECT_EQ(why_by_host(options), "");
  options.wire = "bf16";
  EXPECT_EQ(why_by_host(options), "--wire bf16");
  options.payload = "one-byte:p2p";
  EXPECT_EQ(why_by_host(options), "--payload one-byte:p2p");
}

// The worker in the middle of the pipeline dies in the third step.
TEST(DirectTraining, AWorkerThatDiesIsNamedWithin10Seconds) {
  Setting s = setting_of({"1f1b", 3});
  s.device = "far";
  s.configure = [](JobOptions& o) { o.gpu_messages = "nccl"; };
  comm::Options quick;
  quick.timeout_s = 60;
  auto transports = comm::make_inproc(3, quick);
  std::vector<std::string> said(3);
  std::vector<std::thread> threads;
  std::int64_t died = 0;
  for (int w = 0; w < 3; ++w)
    threads.emplace_back([&, w] {
      comm::Transport& links = *transports[w];
      try {
        Job trainer(language_model(s.model), s.optimizer, options_of(s), links);
        for (int step = 0; step < 5; ++step) {
          const Tokens batch = batch_of(s, step);
          if (w == 1 && step == 2) {
            died = comm::now_ns();
            fail(Code::Internal, "lightning");
          }
          trainer.train(part_of(s, batch, trainer.plan().pipeline));
        }
      } catch (const std::exception& e) {
        said[w] = e.what();
        links.abort(1, e.what());
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_LT(comm::now_ns() - died, 10'000'000'000);
  for (const int w : {0, 2})
    EXPECT_THAT(said[w], AllOf(HasSubstr("worker 1"), HasSubstr("lightning"))) << w;
  EXPECT_EQ(fake().live(), 0);
}

}  // namespace
}  // namespace hetu
