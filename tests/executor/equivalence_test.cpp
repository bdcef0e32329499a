// Pipelined training equals unpipelined training: weights after some steps, bit for bit wherever
// one replica adds the gradients of a parameter in micro-batch order.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "executor/comm/inproc.h"
#include "executor/trainer.h"
#include "graph/base/error.h"
#include "pipeline/generate.h"
#include "tests/executor/small_model.h"

namespace hetu {
namespace {

using testing_model::Sizes;
using testing_model::Tokens;

using Weights = std::map<std::string, std::vector<float>>;

struct Outcome {
  Weights weights;
  std::vector<double> losses;
  std::vector<double> norms;
};

struct Setting {
  std::string method = "1f1b";
  int pipelines = 1;
  int stages = 1;
  int chunks = 0;
  int pairs = 1;
  std::string concat = "direct";
  SyncPlace sync = SyncPlace::EagerOpt;
  bool recompute = false;
  int micro_batches = 4;
  std::int64_t batch_size = 8;  // per pipeline
  OptimizerConfig optimizer;
  Sizes model;
  int steps = 5;
  std::optional<Schedule> plan;
};

OptimizerConfig sgd() {
  OptimizerConfig c;
  c.rate.base = 0.5;
  c.clip_norm = 0.3;
  return c;
}

OptimizerConfig adamw() {
  OptimizerConfig c;
  c.kind = OptimizerConfig::Kind::AdamW;
  c.rate = {LearningRate::Kind::Constant, 0.02, 3};
  c.weight_decay = 0.1;
  c.clip_norm = 0.3;
  return c;
}

// Trains with one thread per worker; the outcome of all workers together.
Outcome train(const Setting& s) {
  auto transports = comm::make_inproc(s.pipelines * s.stages);
  Outcome outcome;
  std::mutex mutex;
  std::vector<std::thread> workers;
  std::string error;
  for (auto& transport : transports) {
    workers.emplace_back([&, t = transport.get()] {
      try {
        TrainerOptions options;
        options.method = s.method;
        options.plan = s.plan;
        options.pipelines = s.pipelines;
        options.stages = s.stages;
        options.chunks = s.chunks;
        options.pairs = s.pairs;
        options.concat = s.concat;
        options.sync = s.sync;
        options.with_recompute = s.recompute;
        options.micro_batches = s.micro_batches;
        options.batch_size = s.batch_size;
        options.seed = 11;
        options.threads = 1;
        Trainer trainer(testing_model::language_model(s.model), s.optimizer, options, *t);
        std::vector<double> losses, norms;
        for (int step = 0; step < s.steps; ++step) {
          const Tokens batch =
              testing_model::tokens(s.model, static_cast<int>(s.batch_size) * s.pipelines, step);
          const std::int64_t offset = trainer.pipeline() * s.batch_size * s.model.length;
          const StepResult result =
              trainer.train([&](const std::string& field, std::int64_t bytes) -> const void* {
                EXPECT_EQ(bytes, s.batch_size * s.model.length * 4);
                return (field == "ids" ? batch.ids.data() : batch.labels.data()) + offset;
              });
          losses.push_back(result.at("loss"));
          norms.push_back(result.gradient_norm);
        }
        const std::lock_guard lock(mutex);
        if (outcome.losses.empty()) {
          outcome.losses = losses;
          outcome.norms = norms;
        }
        EXPECT_EQ(outcome.losses, losses) << "workers disagree on the loss";
        for (const StateTensor& tensor : trainer.state()) {
          if (!tensor.state.empty()) continue;
          const std::vector<float> weight(tensor.data, tensor.data + tensor.elements);
          const auto [at, fresh] = outcome.weights.emplace(tensor.name, weight);
          EXPECT_TRUE(fresh || at->second == weight)
              << tensor.name << " differs between its holders";
        }
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex);
        error = e.what();
        t->abort(1, error);
      }
    });
  }
  for (std::thread& w : workers) w.join();
  EXPECT_EQ(error, "");
  return outcome;
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum);
}

double norm(const std::vector<float>& a) {
  return difference(a, std::vector<float>(a.size(), 0.0F));
}

// Bit for bit, or within what another order of additions makes.
void expect_equal(const Outcome& a, const Outcome& b, bool bitwise, bool adam,
                  const std::string& where) {
  ASSERT_EQ(a.weights.size(), b.weights.size()) << where;
  for (const auto& [name, weight] : a.weights) {
    ASSERT_EQ(b.weights.count(name), 1U) << name << ", " << where;
    const std::vector<float>& other = b.weights.at(name);
    if (bitwise) {
      EXPECT_EQ(std::memcmp(weight.data(), other.data(), weight.size() * 4), 0)
          << name << " differs by " << difference(weight, other) << ", " << where;
    } else if (!adam) {
      EXPECT_LE(difference(weight, other), std::max(1e-6, 1e-6 * norm(weight)))
          << name << ", " << where;
    }
  }
  if (bitwise) {
    EXPECT_EQ(a.losses, b.losses) << where;
    EXPECT_EQ(a.norms, b.norms) << where;
    return;
  }
  ASSERT_EQ(a.losses.size(), b.losses.size()) << where;
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    EXPECT_NEAR(a.losses[i], b.losses[i], 1e-6 * std::max(1.0, a.losses[i])) << where;
}

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

// Several stages on a worker. Bitwise where each stage's backwards run in ascending order of
// micro-batch; looped BFS runs them in descending order, varuna in that of the run.
struct ManyCase {
  const char* method;
  int workers;
  int chunks;  // 0: the method's own
  int blocks;
  bool bitwise;
};

class SeveralStagesPerWorker : public testing::TestWithParam<ManyCase> {};

TEST_P(SeveralStagesPerWorker, EqualOneProcess) {
  const ManyCase& c = GetParam();
  for (int k = 0; k < 8; ++k) {
    Setting one;
    const bool adam = (k & 1) != 0;
    one.optimizer = adam ? adamw() : sgd();
    one.model.tied = (k & 2) != 0;
    one.model.skip = (k & 4) != 0;
    one.model.blocks = c.blocks;
    one.micro_batches = 8;
    one.batch_size = 16;
    Setting many = one;
    many.method = c.method;
    many.stages = c.workers;
    many.chunks = c.chunks;
    const std::string where =
        fmt::format("{} on {} workers, {} chunks, adamw {}, tied {}, skip {}", c.method, c.workers,
                    c.chunks, adam, one.model.tied, one.model.skip);
    expect_equal(train(one), train(many), c.bitwise, adam, where);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Methods, SeveralStagesPerWorker,
    testing::Values(
        ManyCase{"interleaved-1f1b", 2, 2, 4, true}, ManyCase{"interleaved-1f1b", 4, 2, 8, true},
        ManyCase{"interleaved-1f1b", 1, 4, 4, true}, ManyCase{"interleaved-1f1b", 2, 4, 8, true},
        ManyCase{"looped-bfs", 2, 2, 4, false}, ManyCase{"looped-bfs", 4, 2, 8, false},
        ManyCase{"interleaved-zb", 2, 2, 4, true}, ManyCase{"interleaved-zb", 4, 2, 8, true},
        ManyCase{"hanayo", 2, 2, 4, true}, ManyCase{"hanayo", 2, 4, 8, true},
        ManyCase{"hanayo", 4, 2, 8, true}, ManyCase{"zb-v", 1, 0, 2, true},
        ManyCase{"zb-v", 2, 0, 4, true}, ManyCase{"zb-v", 4, 0, 8, true},
        ManyCase{"v-half", 2, 0, 4, true}, ManyCase{"v-half", 4, 0, 8, true},
        ManyCase{"v-min", 2, 0, 4, true}, ManyCase{"v-min", 3, 0, 6, true},
        ManyCase{"v-min", 4, 0, 8, true}, ManyCase{"dualpipev", 2, 0, 4, true},
        ManyCase{"dualpipev", 4, 0, 8, true}, ManyCase{"zb-1p", 4, 0, 4, true},
        ManyCase{"zb-2p", 4, 0, 4, true}, ManyCase{"auto", 2, 2, 4, true}));

// Pipelines in both directions: every stage on two workers or more, their gradients summed.
struct Replicated {
  const char* method;
  int workers;
  int micro_batches;
  int pairs = 1;
  const char* concat = "direct";
  int pipelines = 1;
};

class ReplicasInAPipeline : public testing::TestWithParam<Replicated> {};

TEST_P(ReplicasInAPipeline, EqualOneProcess) {
  const Replicated& c = GetParam();
  for (int k = 0; k < 12; ++k) {
    Setting one;
    const bool adam = (k & 1) != 0;
    one.optimizer = adam ? adamw() : sgd();
    one.model.tied = one.model.skip = (k & 2) != 0;
    one.model.blocks = c.workers;
    one.micro_batches = c.micro_batches * c.pipelines;
    one.batch_size = 2 * one.micro_batches;
    Setting many = one;
    many.method = c.method;
    many.stages = c.workers;
    many.pairs = c.pairs;
    many.concat = c.concat;
    many.sync = std::array{SyncPlace::End, SyncPlace::Eager, SyncPlace::EagerOpt}[k / 4];
    many.pipelines = c.pipelines;
    many.micro_batches /= c.pipelines;
    many.batch_size /= c.pipelines;
    const std::string where = fmt::format(
        "{} on {} workers, {} micro-batches, {} pairs, {}, adamw {}, tied {}, sync {}", c.method,
        c.workers, c.micro_batches, c.pairs, c.concat, adam, one.model.tied, k / 4);
    expect_equal(train(one), train(many), false, adam, where);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Methods, ReplicasInAPipeline,
    testing::Values(Replicated{"gems", 1, 4}, Replicated{"gems", 2, 4}, Replicated{"gems", 3, 4},
                    Replicated{"gems", 4, 4, 1, "direct", 2}, Replicated{"chimera", 2, 2},
                    Replicated{"chimera", 4, 4}, Replicated{"chimera", 4, 1},
                    Replicated{"chimera", 4, 3}, Replicated{"chimera", 4, 8},
                    Replicated{"chimera", 4, 7}, Replicated{"chimera", 4, 4, 2},
                    Replicated{"chimera", 4, 8, 2}, Replicated{"chimera", 4, 8, 1, "doubling"},
                    Replicated{"chimera", 4, 4, 1, "direct", 2},
                    Replicated{"chimera", 2, 4, 1, "direct", 3}, Replicated{"dualpipe", 2, 4},
                    Replicated{"dualpipe", 4, 8}, Replicated{"dualpipe", 2, 4, 1, "direct", 2}));

struct Recomputed {
  const char* method;
  int workers;
  bool own;      // the method has its own recomputes
  bool bitwise;  // ascending backwards on one replica
};

class Recompute : public testing::TestWithParam<Recomputed> {};

TEST_P(Recompute, ChangesNoBit) {
  const Recomputed& c = GetParam();
  for (int k = 0; k < 4; ++k) {
    Setting one;
    one.optimizer = (k & 1) != 0 ? adamw() : sgd();
    one.model.tied = one.model.skip = (k & 2) != 0;
    one.model.blocks = 2 * c.workers;
    one.micro_batches = 8;
    one.batch_size = 16;
    Setting many = one;
    many.method = c.method;
    many.stages = c.workers;
    const Outcome kept = c.own ? train(one) : train(many);
    many.recompute = !c.own;
    const std::string where = fmt::format("{} on {} workers, case {}", c.method, c.workers, k);
    const Outcome again = train(many);
    expect_equal(kept, again, c.bitwise || !c.own, (k & 1) != 0, where);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Methods, Recompute,
    testing::Values(Recomputed{"gpipe", 3, false, true}, Recomputed{"1f1b", 1, false, true},
                    Recomputed{"1f1b", 3, false, true}, Recomputed{"zb-h1", 4, false, true},
                    Recomputed{"zb-v", 2, false, true}, Recomputed{"zb-v", 4, false, true},
                    Recomputed{"interleaved-1f1b", 2, false, true},
                    Recomputed{"looped-bfs", 2, false, false}, Recomputed{"hanayo", 4, false, true},
                    Recomputed{"gems", 2, false, false}, Recomputed{"chimera", 4, false, false},
                    Recomputed{"dualpipe", 2, false, false},
                    Recomputed{"dualpipev", 4, false, true}, Recomputed{"varuna", 1, true, true},
                    Recomputed{"varuna", 3, true, true}, Recomputed{"varuna", 4, true, true}));

// 1F1B with every backward cut into I and W, each W held back by `delay` instructions; of `mixed`
// ones every third stays whole.
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

// The whole backward that overtakes a W changes the order of the sums, and nothing else.
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

TEST(Trainer, RefusesABatchThatMicroBatchesDoNotDivide) {
  auto transports = comm::make_inproc(1);
  TrainerOptions options;
  options.batch_size = 10;
  options.micro_batches = 4;
  EXPECT_THAT([&] { Trainer(testing_model::language_model({}), sgd(), options, *transports[0]); },
              testing::ThrowsMessage<Error>(
                  testing::HasSubstr("batch size 10 is not divided by 4 micro-batches")));
}

TEST(Trainer, RefusesAPlanOverTheMemoryLimit) {
  auto transports = comm::make_inproc(1);
  TrainerOptions options;
  options.batch_size = 4;
  options.micro_batches = 2;
  options.memory_limit = 1000;
  EXPECT_THAT([&] { Trainer(testing_model::language_model({}), sgd(), options, *transports[0]); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("over the limit of 1000")));
}

TEST(Trainer, NamesStageMicroAndStepOfANanLoss) {
  auto transports = comm::make_inproc(1);
  TrainerOptions options;
  options.batch_size = 4;
  options.micro_batches = 2;
  OptimizerConfig wild;
  wild.rate.base = 1e30;
  Trainer trainer(testing_model::language_model({}), wild, options, *transports[0]);
  const Tokens batch = testing_model::tokens({}, 4, 0);
  const FieldLookup lookup = [&](const std::string& f, std::int64_t) -> const void* {
    return f == "ids" ? batch.ids.data() : batch.labels.data();
  };
  EXPECT_THAT(
      [&] {
        for (int i = 0; i < 10; ++i) trainer.train(lookup);
      },
      testing::ThrowsMessage<Error>(testing::ContainsRegex(
          "(loss is -?(nan|inf) at stage 0, micro-batch [01], step [0-9])|norm is")));
}

TEST(Trainer, ValidationChangesNothingAndIsWithoutDropout) {
  auto transports = comm::make_inproc(1);
  TrainerOptions options;
  options.batch_size = 4;
  options.micro_batches = 2;
  Trainer trainer(testing_model::language_model({}), sgd(), options, *transports[0]);
  const Tokens batch = testing_model::tokens({}, 4, 0);
  const FieldLookup lookup = [&](const std::string& f, std::int64_t) -> const void* {
    return f == "ids" ? batch.ids.data() : batch.labels.data();
  };
  const double before = trainer.validate(lookup).at("loss");
  EXPECT_EQ(before, trainer.validate(lookup).at("loss"));
  EXPECT_EQ(trainer.step(), 0);
  const double with_dropout = trainer.train(lookup).at("loss");
  EXPECT_NE(before, with_dropout);
  EXPECT_NE(before, trainer.validate(lookup).at("loss"));
}

}  // namespace
}  // namespace hetu
