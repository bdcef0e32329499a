// Training without a flush at each step equals, bit for bit, a slow reference. The reference
// replays, in one process, the weight versions that the verifier derived.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "tests/executor/replay.h"

namespace hetu {
namespace {

using testing_replay::difference;
using testing_replay::optimizer;
using testing_replay::Outcome;
using testing_replay::pipelined;
using testing_replay::Reference;
using testing_replay::Setting;

// The reference adds gradients micro-batch by micro-batch and use by use. Pipelines use the same
// order, with two exceptions: two pipelines with several micro-batches each, and two pipelines with
// a tied weight on two stages of each.
void expect_equal(const Setting& s) {
  const Outcome got = pipelined(s);
  const Outcome want = Reference(s, got).run();
  const bool exact =
      s.replicas.empty() && (s.pipelines == 1 || (s.micro_batches == 1 && !s.model.tied));
  ASSERT_EQ(got.tensors.size(), want.tensors.size());
  for (const auto& [name, values] : want.tensors) {
    ASSERT_EQ(got.tensors.count(name), 1U) << name;
    const std::vector<float>& other = got.tensors.at(name);
    if (exact)
      EXPECT_EQ(std::memcmp(values.data(), other.data(), values.size() * 4), 0) << name;
    else
      EXPECT_LE(difference(values, other), 1e-4) << name;
  }
  EXPECT_EQ(got.run_steps, s.runs);
  ASSERT_EQ(got.losses.size(), want.losses.size());
  const double slack = !exact ? 1e-4 : s.pipelines * s.micro_batches > 1 ? 1e-12 : 0;
  for (std::size_t i = 0; i < want.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], want.losses[i], slack) << i;
}

struct Case {
  std::string method;
  int stages;
  int pipelines;
  OptimizerConfig::Kind kind;
  bool tied;
  bool skip;
};

class Replay : public testing::TestWithParam<Case> {};

TEST_P(Replay, EqualsTheReplayOfItsVersionsBitwise) {
  const Case& c = GetParam();
  Setting s;
  s.method = c.method;
  s.stages = c.stages;
  s.pipelines = c.pipelines;
  if (c.method == "pipedream-2bw") {
    s.micro_batches = 4;
    s.batch_size = 8;
  }
  s.optimizer = optimizer(c.kind);
  s.model.tied = c.tied;
  s.model.skip = c.skip;
  s.runs = {13, 2, 1, 21};
  expect_equal(s);
}

std::vector<Case> cases() {
  using Kind = OptimizerConfig::Kind;
  std::vector<Case> out;
  int n = 0;
  for (const char* method : {"pipedream", "pipedream-2bw"}) {
    for (const int stages : {1, 2, 3, 4}) {
      for (const int pipelines : {1, 2}) {
        for (const bool tied : {false, true}) {
          const Kind kind = std::array{Kind::Sgd, Kind::Momentum, Kind::AdamW}[n % 3];
          out.push_back({method, stages, pipelines, kind, tied, n++ % 2 == 0});
        }
      }
    }
  }
  return out;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return std::string(c.method == "pipedream" ? "pipedream" : "two_versions") + "_" +
         std::to_string(c.pipelines) + "x" + std::to_string(c.stages) + "_" +
         optimizer_name(c.kind) + (c.tied ? "_tied" : "") + (c.skip ? "_skip" : "");
}

INSTANTIATE_TEST_SUITE_P(Grid, Replay, testing::ValuesIn(cases()), case_name);

// Covers convolutions, and running statistics that forwards replace in ascending order of
// micro-batches.
TEST(Repeated, BatchNormsEqualTheReplayBitwise) {
  for (const int stages : {1, 2, 4}) {
    for (const char* method : {"pipedream", "pipedream-2bw"}) {
      Setting s;
      s.method = method;
      s.stages = stages;
      if (s.method == "pipedream-2bw") s.micro_batches = 4;
      s.batch_size = s.micro_batches * 3;
      s.images = true;
      s.model.tied = false;
      s.optimizer = optimizer(OptimizerConfig::Kind::Momentum);
      s.runs = {11, 1, 8};
      SCOPED_TRACE(s.method + " over " + std::to_string(stages));
      expect_equal(s);
    }
  }
}

// A recompute must reproduce its forward, with the same weight version, fields and dropout, while
// the fields of later micro-batches have already been fed.
enum class Model { Tokens, TokensTwice, Images };
class Recomputed : public testing::TestWithParam<std::tuple<std::string, int, Model>> {};

TEST_P(Recomputed, EqualsTheReplayOfItsVersions) {
  const auto& [method, stages, model] = GetParam();
  Setting s;
  s.method = method;
  s.stages = stages;
  s.recompute = true;
  s.images = model == Model::Images;
  s.pipelines = model == Model::TokensTwice ? 2 : 1;
  if (method == "pipedream-2bw") s.micro_batches = model == Model::Tokens ? 8 : 4;
  s.batch_size = 3 * s.micro_batches;
  s.model.tied = !s.images && stages % 2 == 0;
  s.model.skip = true;
  s.optimizer =
      optimizer(s.images ? OptimizerConfig::Kind::Momentum : OptimizerConfig::Kind::AdamW);
  s.runs = {13, 1, 6};
  expect_equal(s);
}

INSTANTIATE_TEST_SUITE_P(
    Grid, Recomputed,
    testing::Combine(testing::Values("pipedream", "pipedream-2bw"), testing::Values(1, 2, 3, 4),
                     testing::Values(Model::Tokens, Model::TokensTwice, Model::Images)));

// Stages with several replicas compute the same sums in another order.
TEST(Replicas, EqualOneProcessWithTheSameMicroBatches) {
  for (const char* method : {"gpipe", "1f1b"}) {
    for (const std::vector<int>& replicas :
         std::vector<std::vector<int>>{{1, 2}, {2, 1}, {1, 3, 2}, {2, 1, 2, 1}}) {
      for (const bool tied : {false, true}) {
        Setting one;
        one.method = method;
        one.stages = 1;
        one.micro_batches = 6;
        one.batch_size = 12;
        one.optimizer = optimizer(OptimizerConfig::Kind::Momentum);
        one.model.tied = tied;
        one.model.skip = !tied;
        one.runs = {8};
        Setting many = one;
        many.stages = static_cast<int>(replicas.size());
        many.replicas = replicas;
        const Outcome a = pipelined(one), b = pipelined(many);
        ASSERT_EQ(a.losses.size(), b.losses.size());
        for (std::size_t i = 0; i < a.losses.size(); ++i) {
          EXPECT_NEAR(a.losses[i], b.losses[i], 1e-6 * std::max(1.0, a.losses[i])) << method;
          EXPECT_NEAR(a.norms[i], b.norms[i], 1e-5 * std::max(1.0, a.norms[i])) << method;
        }
        for (const auto& [name, values] : a.tensors)
          EXPECT_LE(difference(values, b.tensors.at(name)), 1e-5) << name << " " << method;
      }
    }
  }
}

// Without a flush, each micro-batch of a step may use its own weight version, which the verifier
// knows. If all versions are equal (a run of one step), the result equals one process again.
TEST(Replicas, WithoutAFlushUpdateOncePerRoundOnEveryStage) {
  Setting s;
  s.replicas = {1, 2};
  s.micro_batches = 4;
  s.batch_size = 8;
  s.optimizer = optimizer(OptimizerConfig::Kind::AdamW);
  s.model.tied = false;
  s.runs = {1, 1, 1};
  Setting one = s;
  one.method = "gpipe";
  one.replicas.clear();
  one.stages = 1;
  one.optimizer.clip_norm = s.optimizer.clip_norm = 0;
  one.runs = {3};
  const Outcome a = pipelined(one), b = pipelined(s);
  for (std::size_t i = 0; i < a.losses.size(); ++i) EXPECT_NEAR(a.losses[i], b.losses[i], 1e-5);
  for (const std::vector<int>& replicas :
       std::vector<std::vector<int>>{{1, 2}, {2, 1}, {2, 1, 2}, {1, 4}}) {
    s.stages = static_cast<int>(replicas.size());
    s.replicas = replicas;
    s.runs = {30, 3};
    const Outcome c = pipelined(s);
    EXPECT_EQ(c.run_steps, s.runs);
    EXPECT_EQ(c.losses.size(), 33U);
    for (const double loss : c.losses) EXPECT_LT(loss, 4.0);
  }
}

// Replays the versions that each micro-batch of a step used, one gradient after the other.
TEST(Replicas, WithoutAFlushEqualTheReplay) {
  for (const std::vector<int>& replicas :
       std::vector<std::vector<int>>{{1, 2}, {2, 1}, {2, 1, 2}, {1, 4}}) {
    Setting s;
    s.stages = static_cast<int>(replicas.size());
    s.replicas = replicas;
    s.micro_batches = 4;
    s.batch_size = 8;
    s.optimizer = optimizer(OptimizerConfig::Kind::Momentum);
    s.model.tied = false;
    // Dropout depends on the offset in the batch, which a single micro-batch lacks.
    s.model.dropout = 0;
    s.runs = {17, 3};
    for (const bool recompute : {false, true}) {
      s.recompute = recompute;
      SCOPED_TRACE("replicas " + testing::PrintToString(replicas) + (recompute ? ", R" : ""));
      expect_equal(s);
    }
  }
}

// All workers stop at the same step, and the next run continues the count from there.
TEST(Stop, DrainsEveryWorkerAfterTheSameStep) {
  for (const int pipelines : {1, 2}) {
    Setting s;
    s.stages = 3;
    s.pipelines = pipelines;
    s.optimizer = optimizer(OptimizerConfig::Kind::Sgd);
    s.runs = {100000};
    s.stop_at = 37;
    const Outcome got = pipelined(s);
    ASSERT_EQ(got.run_steps.size(), 1U);
    EXPECT_GT(got.run_steps[0], s.stop_at);
    EXPECT_LE(got.run_steps[0], s.stop_at + 12 * s.stages + 24);
    EXPECT_EQ(static_cast<int>(got.losses.size()), got.run_steps[0]);
    Setting exact = s;
    exact.runs = {got.run_steps[0]};
    exact.stop_at = -1;
    EXPECT_EQ(pipelined(exact).tensors, got.tensors) << "a stop differs from a run of that length";
  }
}

}  // namespace
}  // namespace hetu
