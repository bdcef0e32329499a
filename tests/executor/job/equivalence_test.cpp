// Pipelined training equals training without a pipeline. The weights after some steps agree bit for
// bit wherever one replica adds the gradients of a parameter in micro-batch order.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.h"
#include "executor/job/job.h"
#include "executor/job/make_plan.h"
#include "net/transport/inproc.h"
#include "ops/registry.h"
#include "pipeline/generate/generate.h"
#include "tests/executor/small_model.h"
#include "tests/executor/test_options.h"
#include "tests/executor/train_together.h"

namespace hetu {
namespace {

using namespace testing_model;  // NOLINT

struct Case {
  const char* method;
  int stages;
  bool adamw;
  bool tied;
  bool skip;
};

class OnePipeline : public testing::TestWithParam<Case> {};

TEST_P(OnePipeline, EqualsOneProcessBitwise) {
  const Case& c = GetParam();
  Setting one;
  one.optimizer = c.adamw ? adamw() : sgd();
  one.model.tied = c.tied;
  one.model.skip = c.skip;
  Setting many = one;
  many.method = c.method;
  many.stages = c.stages;
  const Outcome a = train(one), b = train(many);
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (const auto& [name, weight] : a.weights) {
    ASSERT_EQ(b.weights.count(name), 1U) << name;
    EXPECT_EQ(std::memcmp(weight.data(), b.weights.at(name).data(), weight.size() * 4), 0)
        << name << " differs by " << difference(weight, b.weights.at(name));
  }
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_LT(a.losses.back(), a.losses.front() + 1);
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const char* method : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
    for (const int stages : {2, 3, 4}) {
      for (const bool adam : {false, true}) {
        for (const bool tied : {false, true}) {
          for (const bool skip : {false, true}) out.push_back({method, stages, adam, tied, skip});
        }
      }
    }
  }
  return out;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  std::string method = info.param.method[0] == '1' ? "one_f_one_b" : info.param.method;
  std::replace(method.begin(), method.end(), '-', '_');
  return method + "_" + std::to_string(info.param.stages) + (info.param.adamw ? "_adamw" : "_sgd") +
         (info.param.tied ? "_tied" : "") + (info.param.skip ? "_skip" : "");
}

INSTANTIATE_TEST_SUITE_P(Grid, OnePipeline, testing::ValuesIn(cases()), case_name);

// The gradient of a residual sum is passed on unchanged to both of its inputs: the block itself and
// the block before it.
TEST(Residuals, EqualOneProcessBitwise) {
  Setting one;
  one.model.norms = false;
  const Outcome wanted = train(one);
  for (const char* method : {"1f1b", "zb-h1"})
    for (const int stages : {2, 3, 4}) {
      Setting many = one;
      many.method = method;
      many.stages = stages;
      expect_equal(wanted, train(many), true, true, fmt::format("{}, {} stages", method, stages));
    }
}

// Returns the bfloat16 dtype that this processor computes: native, or emulated.
const char* bf16() { return lacks_for_bfloat16().empty() ? "bf16" : "bf16-emulated"; }

// Training with and without --fuse gives the same bits in every dtype that this processor computes.
// The test covers one process and three stages, with four micro-batches per step.
TEST(Fused, EqualsUnfusedBitwise) {
  const std::set<std::string> dtypes = {"float32", "bf16-emulated", "fp16-emulated", bf16()};
  for (const std::string& dtype : dtypes) {
    Setting apart;
    apart.optimizer = adamw();
    apart.configure = [=](JobOptions& o) {
      o.dtype = dtype;
      // a fixed scale at which no update is skipped
      if (dtype == "fp16-emulated") o.loss_scale = "256";
      o.fuse = "off";
    };
    const Outcome wanted = train(apart);
    for (const char* device : {"cpu", "far"}) {
      Setting joined = apart, cut = apart;
      joined.configure = cut.configure = [=](JobOptions& o) {
        apart.configure(o);
        o.fuse = "on";
      };
      joined.device = cut.device = device;
      cut.method = "zb-h1";
      cut.stages = 3;
      const std::string where = fmt::format("{}, {}", dtype, device);
      expect_equal(wanted, train(joined), true, true, where);
      expect_equal(wanted, train(cut), true, true, "3 stages, " + where);
    }
  }
}

// The graph is converted to mixed precision before it is cut. No method, cut or number of threads
// may change a bit. Messages across a cut are half as large.
TEST(MixedPrecision, EqualsOneProcessBitwise) {
  for (const char* method : {"gpipe", "1f1b", "zb-h1"}) {
    for (int c = 0; c < 12; ++c) {
      const std::string dtype = c < 8 ? bf16() : "fp16-emulated";
      Setting one;
      one.optimizer = (c & 1) != 0 ? adamw() : sgd();
      one.model.tied = (c & 2) != 0;
      one.model.skip = (c & 4) != 0;
      one.configure = [&](JobOptions& o) {
        o.dtype = dtype;
        // The initial dynamic scale would skip some updates.
        if (dtype == "fp16-emulated") o.loss_scale = "256";
      };
      Setting many = one, wide = one;
      many.method = method;
      many.stages = c % 3 == 0 ? 3 : 2;
      many.configure = [&](JobOptions& o) {
        one.configure(o);
        o.threads = 3;
      };
      wide.configure = [](JobOptions&) {};
      const Outcome a = train(one), b = train(many), f = train(wide);
      const std::string where = fmt::format("{} in {}, case {}", method, dtype, c);
      expect_equal(a, b, true, (c & 1) != 0, where);
      EXPECT_NE(a.losses, f.losses) << "float32, " << where;
      EXPECT_NEAR(a.losses.back(), f.losses.back(), 0.02 * f.losses.back()) << where;
    }
  }
}

// A weight that is constant between steps is rounded once per step; pipedream rounds it in every
// micro-batch. With one stage both are the same training, including validations between the steps.
TEST(MixedPrecision, RoundsWeightsOfToday) {
  Setting rests;
  rests.optimizer = sgd();
  rests.optimizer.clip_norm = 0;
  rests.method = "gpipe";
  rests.micro_batches = 1;
  rests.configure = [](JobOptions& o) { o.dtype = bf16(); };
  Setting moves = rests;
  moves.method = "pipedream";
  const Outcome a = train(rests), b = train(moves);
  for (const auto& [name, weight] : a.weights)
    EXPECT_EQ(std::memcmp(weight.data(), b.weights.at(name).data(), weight.size() * 4), 0) << name;
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.validated, b.validated);
}

// An update rounds the weights that it writes. Weights that the caller sets after an update must be
// rounded too.
TEST(MixedPrecision, RoundsWeightsThatWereSet) {
  Setting s;
  s.optimizer = adamw();
  s.method = "gpipe";
  s.configure = [](JobOptions& o) { o.dtype = bf16(); };
  auto transports = comm::make_inproc(1);
  Job trainer(language_model(s.model), s.optimizer, options_of(s), *transports[0]);
  const Tokens batch = batch_of(s, 0);
  const Batch fields = part_of(s, batch, 0);
  const double at_start = trainer.validate(fields).at("loss");
  Weights start;
  for (const StateTensor& t : trainer.state())
    if (t.state.empty()) start[t.name] = t.values.values();
  trainer.train(fields);
  EXPECT_NE(trainer.validate(fields).at("loss"), at_start);
  trainer.train(fields);
  for (const StateTensor& t : trainer.state())
    if (t.state.empty()) t.values.write(start.at(t.name).data());
  EXPECT_EQ(trainer.validate(fields).at("loss"), at_start);
}

// Returns 1F1B with every backward split into I and W, where each W is delayed by `delay`
// instructions. With `mixed`, every third backward stays whole.
Schedule split_backward(int stages, int micros, std::size_t delay, bool mixed) {
  Schedule s = generate("1f1b", {.stages = stages, .micro_batches = micros});
  for (Program& program : s.workers) {
    std::vector<Instr> row, waiting;
    for (Instr i : unroll(program)) {
      if (i.kind == Kind::Backward && !(mixed && i.micro % 3 == 1)) {
        i.kind = Kind::InputGrad;
        row.push_back(i);
        i.kind = Kind::WeightGrad;
        waiting.push_back(i);
      } else {
        row.push_back(i);
      }
      if (waiting.size() > delay) {
        row.push_back(waiting.front());
        waiting.erase(waiting.begin());
      }
    }
    row.insert(row.end(), waiting.begin(), waiting.end());
    program = {std::move(row), {}, 0, 0, {}};
  }
  return s;
}

// A whole backward that overtakes a W changes the order of the sums and nothing else.
TEST(SplitBackward, EqualsOneProcess) {
  for (int c = 0; c < 3 * 3 * 8; ++c) {
    const int stages = 1 << (c / 24);
    const std::size_t delay = std::array{0, 1, 3}[c / 8 % 3];
    const bool mixed = (c & 1) != 0;
    Setting one;
    one.optimizer = adamw();
    one.model.tied = (c & 2) != 0;
    one.model.skip = (c & 4) != 0;
    Setting many = one;
    many.stages = stages;
    many.plan = split_backward(stages, one.micro_batches, delay, mixed);
    const Outcome a = train(one), b = train(many);
    const auto where = fmt::format("{} stages, delay {}, tied {}, skip {}, mixed {}", stages, delay,
                                   one.model.tied, one.model.skip, mixed);
    for (const auto& [name, weight] : a.weights) {
      const std::vector<float>& other = b.weights.at(name);
      if (mixed && delay > 0) {
        EXPECT_LT(difference(weight, other), 1e-5) << name << ", " << where;
      } else {
        EXPECT_EQ(std::memcmp(weight.data(), other.data(), weight.size() * 4), 0)
            << name << ", " << where;
      }
    }
    if (!mixed || delay == 0) {
      EXPECT_EQ(a.losses, b.losses) << where;
    }
  }
}

// Gradients are rounded for the transfer. Every holder of a weight must have the same bits, which
// train() checks. They are near those of float32, but not equal. The option is refused if no
// gradient is transferred.
TEST(TwoPipelines, SumGradientsInTwoBytes) {
  for (const char* method : {"1f1b", "chimera", "dp"}) {
    Setting wide;
    wide.optimizer = sgd();
    wide.method = method;
    wide.stages = std::string(method) == "dp" ? 1 : 2;
    wide.pipelines = std::string(method) == "chimera" ? 1 : 2;
    wide.steps = 10;
    Setting narrow = wide;
    narrow.configure = [](JobOptions& o) { o.wire = "bf16"; };
    const Outcome a = train(wide), b = train(narrow);
    EXPECT_NE(a.losses, b.losses) << method;
    EXPECT_NEAR(a.losses.back(), b.losses.back(), 0.01 * a.losses.back()) << method;
  }
  const auto refused = [](int pipelines, const char* sync_method) {
    JobOptions o = test_options();
    o.wire = "bf16";
    o.stages = 2;
    o.pipelines = pipelines;
    o.micro_batches = 4;
    o.batch_size = 8;
    o.sync_method = sync_method;
    if (o.sync_method == "ps") o.servers = Servers{};
    testing_model::Sizes untied;
    untied.tied = false;
    make_plan(language_model(untied), {}, o, {0, 2 * pipelines});
  };
  EXPECT_NO_THROW(refused(2, "allreduce"));
  EXPECT_THAT([&] { refused(1, "allreduce"); },
              testing::ThrowsMessage<Error>(testing::HasSubstr(
                  "--wire bf16 needs workers that sum gradients, but each stage has one copy")));
  EXPECT_THAT([&] { refused(2, "ps"); }, testing::ThrowsMessage<Error>(testing::HasSubstr(
                                             "but the pipelines share weights over servers")));
}

TEST(TwoPipelines, EqualOneProcessWithTwiceTheBatch) {
  for (const bool adam : {false, true}) {
    for (const char* method : {"gpipe", "1f1b", "zb-h1"}) {
      for (const int stages : {1, 2}) {
        Setting one;
        one.optimizer = adam ? adamw() : sgd();
        one.steps = 20;
        one.batch_size = 16;
        one.micro_batches = 8;
        Setting grid = one;
        grid.method = method;
        grid.pipelines = 2;
        grid.stages = stages;
        grid.batch_size = 8;
        grid.micro_batches = 4;
        const Outcome a = train(one), b = train(grid);
        for (std::size_t i = 0; i < a.losses.size(); ++i) {
          EXPECT_NEAR(a.losses[i], b.losses[i], 1e-6 * std::max(1.0, a.losses[i]))
              << method << " step " << i;
        }
        if (adam) continue;
        for (const auto& [name, weight] : a.weights) {
          EXPECT_LE(difference(weight, b.weights.at(name)), std::max(1e-6, 1e-6 * norm(weight)))
              << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace hetu
