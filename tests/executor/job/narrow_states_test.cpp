// Tests optimizer states in bfloat16. Every plan trains to the bits of one process, also on "far",
// with half of the bytes. Optimizers without support refuse the option.
#include <gmock/gmock.h>

#include "executor/compile/lifetime.h"
#include "executor/job/make_plan.h"
#include "tests/executor/train_together.h"

namespace hetu {
namespace {

using namespace testing_model;  // NOLINT

OptimizerConfig optimizer(const char* name) {
  OptimizerConfig c;
  c.kind = parse_optimizer(name);
  c.rate = {LearningRate::Kind::Constant, 0.02, 3};
  c.clip_norm = 0.3;
  return c;
}

Setting setting(const char* name) {
  Setting s;
  s.optimizer = optimizer(name);
  s.configure = [](JobOptions& o) { o.state_dtype = "bf16"; };
  return s;
}

struct Grid {
  const char* method;
  int stages;
  const char* optimizer;
  bool tied;
};

class NarrowStates : public testing::TestWithParam<Grid> {};

TEST_P(NarrowStates, TrainToTheBitsOfOneProcess) {
  const Grid& c = GetParam();
  Setting one = setting(c.optimizer);
  one.model.tied = c.tied;
  Setting many = one, wide = one;
  many.method = c.method;
  many.stages = c.stages;
  many.configure = [&](JobOptions& o) {
    one.configure(o);
    o.threads = 3;
  };
  wide.configure = [](JobOptions&) {};
  const Outcome a = train(one), f = train(wide);
  expect_equal(a, train(many), true, true, c.method);
  many.device = many.device == "far" ? "cpu" : "far";
  expect_equal(a, train(many), true, true, "on far");
  EXPECT_NE(a.losses, f.losses);
  EXPECT_NEAR(a.losses.back(), f.losses.back(), 0.02 * f.losses.back());
}

INSTANTIATE_TEST_SUITE_P(
    Methods, NarrowStates,
    testing::Values(Grid{"1f1b", 3, "momentum", true}, Grid{"gpipe", 2, "nesterov", false},
                    Grid{"zb-h1", 4, "adagrad", true}, Grid{"1f1b", 2, "adam", false},
                    Grid{"zb-h1", 2, "amsgrad", true}, Grid{"1f1b", 4, "adamw", true},
                    Grid{"gpipe", 3, "lamb", true}, Grid{"1f1b", 2, "bertadam", false}));

// Copies of a stage, in one pipeline and in several, must have the same bits. train() compares
// them.
TEST(NarrowStatesOf, CopiesAreTheSame) {
  for (const char* method : {"chimera", "1f1b"}) {
    Setting s = setting("adamw");
    s.method = method;
    s.stages = s.pipelines = 2;
    const Outcome cpu = train(s);
    s.device = "far";
    expect_equal(cpu, train(s), true, true, method);
  }
}

// If steps overlap, each update is rounded with random bits of its own.
TEST(NarrowStatesOf, OnePipedreamStageIsGpipe) {
  Setting rests = setting("adam");
  rests.optimizer.clip_norm = 0;
  rests.method = "gpipe";
  rests.micro_batches = 1;
  Setting moves = rests;
  moves.method = "pipedream";
  const Outcome a = train(rests), b = train(moves);
  for (const auto& [name, weight] : a.weights) EXPECT_EQ(weight, b.weights.at(name)) << name;
  EXPECT_EQ(a.losses, b.losses);
}

JobPlan plan(const char* name, const char* states,
             const std::function<void(JobOptions&)>& configure = {}) {
  JobOptions options = options_of(setting(name));
  options.state_dtype = states;
  if (configure) configure(options);
  return make_plan(language_model({}), optimizer(name), options,
                   {0, options.stages * options.pipelines});
}

TEST(NarrowStatesOf, APlanTakesHalfOfTheBytes) {
  for (const char* name : {"momentum", "adam", "amsgrad"}) {
    const JobPlan wide = plan(name, "float32"), narrow = plan(name, "bf16");
    std::int64_t want = 0;
    for (const StageParameter& p : narrow.stage_plans[0]->parameters)
      want += align_up(p.elements * 2) * optimizer_states(parse_optimizer(name));
    const MemoryPlan &a = wide.stage_plans[0]->memory, &b = narrow.stage_plans[0]->memory;
    EXPECT_EQ(b.optimizer, want) << name;
    // The bound allows for alignment.
    EXPECT_LT(b.optimizer, 0.6 * static_cast<double>(a.optimizer)) << name;
    EXPECT_EQ(a.peak() - b.peak(), a.optimizer - b.optimizer) << name;
    EXPECT_EQ(wide.stage_plans[0]->arena_bytes - narrow.stage_plans[0]->arena_bytes,
              a.optimizer - b.optimizer);
  }
}

TEST(NarrowStatesOf, WhoHasNoneAreRefused) {
  const auto refused = [](const char* name, const char* states, const char* says,
                          const std::function<void(JobOptions&)>& configure = {}) {
    EXPECT_THAT([&] { plan(name, states, configure); },
                testing::ThrowsMessage<Error>(testing::HasSubstr(says)));
  };
  refused("sgd", "bf16", "--state-dtype bf16 needs an optimizer with states, but sgd has none");
  refused("adam", "bfloat", "bf16");
  refused(
      "adam", "bf16",
      "--state-dtype bf16 needs updates by the workers, but parameter servers run the optimizer",
      [](JobOptions& o) {
        o.sync_method = "ps";
        o.servers = Servers{};
      });
}

}  // namespace
}  // namespace hetu
