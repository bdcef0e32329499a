#include "executor/stage/learning_rate.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"

namespace hetu {
namespace {

using Kind = LearningRate::Kind;

LearningRate rate(Kind kind, std::int64_t warmup) {
  LearningRate r;
  r.kind = kind;
  r.base = 0.5;
  r.warmup = warmup;
  r.total = 110;
  r.every = 30;
  r.gamma = 0.2;
  r.power = 2;
  r.floor = 0.1;
  r.milestones = {10, 40};
  return r;
}

constexpr Kind kKinds[] = {Kind::Constant,  Kind::Linear,     Kind::Step,
                           Kind::MultiStep, Kind::Polynomial, Kind::Cosine};

TEST(LearningRate, WarmsUpInAStraightLineAndThenFollowsItsShape) {
  for (const Kind kind : kKinds) {
    check_rate(rate(kind, 10));
    for (int u = 1; u <= 10; ++u) {
      EXPECT_DOUBLE_EQ(rate(kind, 10).at(u), 0.5 * u / 10) << rate_name(kind) << u;
    }
    // After a warm-up the rates equal those of the same kind without a warm-up, over the same
    // number of updates.
    LearningRate plain = rate(kind, 0);
    plain.total = 100;
    for (int u = 1; u <= 130; ++u) {
      EXPECT_DOUBLE_EQ(rate(kind, 10).at(10 + u), plain.at(u)) << rate_name(kind) << u;
    }
    LearningRate half = rate(kind, 10);
    half.factor = 0.5;
    EXPECT_DOUBLE_EQ(half.at(33), rate(kind, 10).at(33) / 2);
  }
}

TEST(LearningRate, WarmsUpByAShareAsBertDid) {
  LearningRate bert{Kind::BertLinear, 3e-5, 0, 1000};
  bert.share = 0.1;
  check_rate(bert);
  EXPECT_DOUBLE_EQ(bert.at(1), 0);
  EXPECT_DOUBLE_EQ(bert.at(51), 1.5e-5);
  EXPECT_DOUBLE_EQ(bert.at(101), 3e-5);
  EXPECT_DOUBLE_EQ(bert.at(551), 1.5e-5);
  EXPECT_DOUBLE_EQ(bert.at(1001), 0);
  EXPECT_DOUBLE_EQ(bert.at(5000), 0);

  // Source: train.sh of PipeFisher, 7038 steps with a warm-up share of .2843. The checks cover
  // steps 0, 1999, 2000 and 7037.
  LearningRate lamb{Kind::Nvlamb, 6e-3, 0, 7038};
  lamb.share = 0.2843;
  lamb.power = 0.5;
  check_rate(lamb);
  EXPECT_NEAR(lamb.at(1), 6e-3 / 7038 / 0.2843, 1e-12);
  EXPECT_NEAR(lamb.at(2000), 6e-3 * (2000.0 / 7038) / 0.2843, 1e-12);
  // the drop that the published schedule has
  EXPECT_NEAR(lamb.at(2001), 6e-3 * std::sqrt(1 - 2001.0 / 7038), 1e-12);
  EXPECT_DOUBLE_EQ(lamb.at(7038), 0);
  lamb.factor = 0.5;
  EXPECT_NEAR(lamb.at(2001), 3e-3 * std::sqrt(1 - 2001.0 / 7038), 1e-12);

  lamb.warmup = 5;
  EXPECT_THROW(check_rate(lamb), Error);
  lamb.warmup = 0;
  lamb.total = 0;
  EXPECT_THROW(check_rate(lamb), Error);
}

TEST(LearningRate, HasItsPublishedValues) {
  const LearningRate warmup{Kind::Constant, 1e-5, 2000};
  EXPECT_DOUBLE_EQ(warmup.at(101), 5.05e-7);  // first epoch line of SD-PIPE's log
  EXPECT_DOUBLE_EQ(warmup.at(2000), 1e-5);
  EXPECT_DOUBLE_EQ(warmup.at(50000), 1e-5);
  const LearningRate linear{Kind::Linear, 1.0, 10, 110};
  EXPECT_DOUBLE_EQ(linear.at(60), 0.5);
  EXPECT_DOUBLE_EQ(linear.at(110), 0);
  EXPECT_DOUBLE_EQ(linear.at(200), 0);
  const LearningRate steps = rate(Kind::MultiStep, 0);
  EXPECT_DOUBLE_EQ(steps.at(10), 0.5);
  EXPECT_DOUBLE_EQ(steps.at(11), 0.1);
  EXPECT_DOUBLE_EQ(steps.at(41), 0.02);
  LearningRate wave = rate(Kind::Cosine, 0);
  EXPECT_DOUBLE_EQ(wave.at(56), 0.3);
  EXPECT_DOUBLE_EQ(wave.at(111), 0.1);
  EXPECT_DOUBLE_EQ(wave.at(400), 0.1);
  EXPECT_DOUBLE_EQ(rate(Kind::Polynomial, 0).at(56), 0.125);
  EXPECT_DOUBLE_EQ(rate(Kind::Polynomial, 0).at(500), 0);
}

// SD-PIPE sets the rate lr * 0.2^(e // 30) after epoch e, so it takes effect in epoch e + 1. Epoch
// 0 is the warm-up.
TEST(LearningRate, GivesSdPipesEpochs) {
  constexpr int kIterations = 5004;
  LearningRate r{Kind::Step, 0.01, kIterations};
  r.every = 30LL * kIterations;
  r.gamma = 0.2;
  for (int epoch = 0; epoch < 100; ++epoch) {
    const double last = epoch == 0 ? 0.01 : 0.01 * std::pow(0.2, (epoch - 1) / 30);
    EXPECT_DOUBLE_EQ(r.at((epoch + 1LL) * kIterations), last) << epoch;
    if (epoch) {
      EXPECT_DOUBLE_EQ(r.at(epoch * std::int64_t{kIterations} + 1), last) << epoch;
    }
  }
}

TEST(LearningRate, RefusesWhatMakesNoSense) {
  for (const Kind kind : {Kind::Linear, Kind::Polynomial, Kind::Cosine}) {
    EXPECT_THAT(
        [&] { check_rate(rate(kind, 110)); },
        testing::ThrowsMessage<Error>(testing::HasSubstr("total must be larger than the warm-up")));
  }
  LearningRate r = rate(Kind::MultiStep, 0);
  r.milestones = {40, 10};
  EXPECT_THROW(check_rate(r), Error);
  r.milestones = {};
  EXPECT_THROW(check_rate(r), Error);
  r = rate(Kind::Step, 0);
  r.every = 0;
  EXPECT_THROW(check_rate(r), Error);
  r = rate(Kind::Cosine, 0);
  r.floor = 1;
  EXPECT_THROW(check_rate(r), Error);
  for (const Kind kind : kKinds) EXPECT_EQ(parse_rate(rate_name(kind)), kind);
  EXPECT_THAT([] { parse_rate("staircase"); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("known: constant, linear")));
}

}  // namespace
}  // namespace hetu
