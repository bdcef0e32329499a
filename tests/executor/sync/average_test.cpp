// Tests pipelines that average their weights, each at its own pace: which groups they form, and at
// which step they stop.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/executor/sync/average_together.h"

namespace hetu {
namespace {

using namespace testing_average;  // NOLINT

double difference(const Tensors& a, const Tensors& b) {
  double most = 0;
  for (const auto& [name, values] : a) {
    if (name.find('/') != std::string::npos) continue;
    const std::vector<float>& other = b.at(name);
    for (std::size_t i = 0; i < values.size(); ++i)
      most = std::max(most, std::abs(double{values[i]} - other[i]));
  }
  return most;
}

TEST(PartialReduce, AnySizeMeetsStopsAndEndsAsOne) {
  for (const int stages : {1, 2, 4}) {
    for (const int pipelines : {2, 3}) {
      for (const int period : {1, 3, 10}) {
        for (const bool overlap : {true, false}) {
          Setting s;
          s.stages = stages;
          s.pipelines = pipelines;
          s.policy.sync_period = period;
          s.overlap = overlap;
          s.optimizer = optimizer(OptimizerConfig::Kind::Momentum);
          s.runs = {20, 3, 1, 12};
          SCOPED_TRACE(testing::Message() << pipelines << "x" << stages << ", P = " << period
                                          << (overlap ? "" : ", blocking"));
          expect_sound(s, train(s));
        }
      }
    }
  }
}

TEST(AdPsgd, MeetsInPairsThatNobodyWaitsFor) {
  for (const auto method : {groups::Method::AdPsgd, groups::Method::AdPsgdLockstep}) {
    for (const int stages : {1, 3}) {
      for (const int pipelines : {2, 3, 4}) {
        Setting s;
        s.stages = stages;
        s.pipelines = pipelines;
        s.policy.method = method;
        s.optimizer = optimizer(OptimizerConfig::Kind::Momentum);
        s.runs = {20, 1, 12};
        s.slow = {1, 4, 1, 2};
        SCOPED_TRACE(testing::Message()
                     << groups::method_name(method) << " " << pipelines << "x" << stages);
        const Outcome got = train(s);
        expect_sound(s, got);
        EXPECT_GT(got.groups.size(), 10U);
        for (const auto& [at, members] : got.groups) EXPECT_EQ(members.size(), 2U);
        if (method == groups::Method::AdPsgd) {
          EXPECT_LT(got.lengths[0][1], got.lengths[0][0]);
        }
      }
    }
  }
}

TEST(PartialReduce, ASlowPipelineDoesFewerUpdates) {
  Setting s;
  s.optimizer = optimizer(OptimizerConfig::Kind::AdamW);
  s.runs = {60, 40};
  s.slow = {1, 6, 1};
  const Outcome got = train(s);
  expect_sound(s, got);
  for (const std::vector<int>& run : got.lengths) {
    EXPECT_LT(run[1], run[0]);
    EXPECT_LT(run[1], run[2]);
  }
}

TEST(PartialReduce, WhoLagsCountsLess) {
  Setting s;
  s.policy.weights = groups::Weights::Staleness;
  s.policy.stale_share = 0.5;
  s.optimizer = optimizer(OptimizerConfig::Kind::Momentum);
  s.runs = {40, 12};
  s.slow = {1, 6, 1};
  const Outcome got = train(s);
  expect_sound(s, got);
  int weighted = 0;
  for (const auto& [at, members] : got.groups) {
    for (const auto& [pipeline, m] : members) {
      EXPECT_EQ(m.weights, members.begin()->second.weights);
      if (!m.weights.empty()) ++weighted;
    }
  }
  EXPECT_GT(weighted, 0);
}

TEST(PartialReduce, WithAPeriodOfOneEqualsTheSumOfGradients) {
  for (const auto kind : {OptimizerConfig::Kind::Sgd, OptimizerConfig::Kind::Momentum}) {
    for (const int stages : {1, 2, 3}) {
      Setting s;
      s.stages = stages;
      s.optimizer = optimizer(kind);
      s.policy.sync_period = 1;
      s.runs = {25, 8};
      const Outcome averaged = train(s);
      expect_sound(s, averaged);
      for (const auto& [at, members] : averaged.groups)
        EXPECT_EQ(members.size(), static_cast<std::size_t>(s.pipelines));
      s.average = false;
      EXPECT_LE(difference(averaged.tensors, train(s).tensors), 1e-5) << optimizer_name(kind);
    }
  }
}

}  // namespace
}  // namespace hetu
