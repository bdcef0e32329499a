// Training without a flush at each step equals, bit for bit, a slow reference of one process that
// replays the weight versions which the verifier derived.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "executor/comm/inproc.h"
#include "executor/trainer.h"
#include "graph/base/error.h"
#include "pipeline/generate.h"
#include "pipeline/lower.h"
#include "tests/executor/small_model.h"

namespace hetu {
namespace {

using testing_model::Sizes;
using testing_model::Tokens;

using Tensors = std::map<std::string, std::vector<float>>;  // "name" or "name/state"

struct Setting {
  std::string method = "pipedream";
  int pipelines = 1;
  int stages = 2;
  int micro_batches = 1;
  std::int64_t batch_size = 3;  // per pipeline and step
  std::vector<int> replicas;    // of each stage
  OptimizerConfig optimizer;
  Sizes model;
  std::vector<int> runs = {9};  // steps from a fill to a drain
  int stop_at = -1;             // the chief asks for a stop at this step's result
};

struct Outcome {
  Tensors tensors;
  std::vector<double> losses, norms;
  std::vector<int> run_steps;
  std::map<std::string, std::set<int>> stages_of;
  std::string memory;  // of the first worker
};

OptimizerConfig optimizer(OptimizerConfig::Kind kind) {
  OptimizerConfig c;
  c.kind = kind;
  c.rate.kind = LearningRate::Kind::Linear;
  c.rate.base = 0.05;
  c.rate.warmup = 4;
  c.rate.total = 40;
  c.clip_norm = 0.3;
  if (kind == OptimizerConfig::Kind::AdamW) c.weight_decay = 0.1;
  return c;
}

std::string key(const StateTensor& t) { return t.state.empty() ? t.name : t.name + "/" + t.state; }

// Feeds rows of the global batches 0, 1, … from `offset` on.
BatchSource source(const Setting& s, int rows, std::int64_t offset, Tokens& batch, int& step) {
  return [&s, rows, offset, &batch, &step]() -> FieldLookup {
    batch = testing_model::tokens(s.model, rows, step++);
    return [&batch, offset](const std::string& field, std::int64_t) -> const void* {
      return (field == "ids" ? batch.ids.data() : batch.labels.data()) + offset;
    };
  };
}

TrainerOptions options_of(const Setting& s) {
  TrainerOptions options;
  options.method = s.method;
  options.pipelines = s.pipelines;
  options.stages = s.stages;
  options.replicas = s.replicas;
  options.micro_batches = s.micro_batches;
  options.batch_size = s.batch_size;
  options.seed = 11;
  options.threads = 1;
  return options;
}

void work(const Setting& s, comm::Transport& transport, Outcome& outcome, std::mutex& mutex) {
  Trainer trainer(testing_model::language_model(s.model), s.optimizer, options_of(s), transport);
  Tokens batch;
  int step = 0;
  const BatchSource batches =
      source(s, static_cast<int>(s.batch_size) * s.pipelines,
             trainer.pipeline() * s.batch_size * s.model.length, batch, step);
  Outcome mine;
  for (const int steps : s.runs) {
    const auto before = trainer.step();
    trainer.begin_run(steps);
    while (const auto result = trainer.next(batches)) {
      EXPECT_EQ(result->step, static_cast<std::int64_t>(mine.losses.size()));
      mine.losses.push_back(result->at("loss"));
      mine.norms.push_back(result->gradient_norm);
      EXPECT_EQ(result->learning_rate, s.optimizer.rate.at(result->step + 1));
      if (result->step == s.stop_at) trainer.ask_to_stop();
    }
    mine.run_steps.push_back(static_cast<int>(trainer.step() - before));
  }
  const std::lock_guard lock(mutex);
  for (const StateTensor& t : trainer.state()) {
    const std::vector<float> values(t.data, t.data + t.elements);
    outcome.stages_of[t.name].insert(trainer.stage());
    const auto [at, fresh] = outcome.tensors.emplace(key(t), values);
    EXPECT_TRUE(fresh || at->second == values) << key(t) << " differs between its holders";
  }
  if (outcome.run_steps.empty()) outcome.run_steps = mine.run_steps;
  EXPECT_EQ(outcome.run_steps, mine.run_steps);
  if (transport.worker() != 0) return;
  outcome.losses = mine.losses;
  outcome.norms = mine.norms;
  outcome.memory = to_string(trainer.memory());
}

Outcome pipelined(const Setting& s) {
  comm::Options links;
  links.timeout_s = 60;
  int count = s.pipelines * s.stages;
  if (!s.replicas.empty()) count = std::accumulate(s.replicas.begin(), s.replicas.end(), 0);
  auto transports = comm::make_inproc(count, links);
  Outcome outcome;
  std::mutex mutex;
  std::string error;
  std::vector<std::thread> workers;
  for (auto& transport : transports) {
    workers.emplace_back([&, t = transport.get()] {
      try {
        work(s, *t, outcome, mutex);
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex);
        if (error.empty()) error = e.what();
        t->abort(1, error);
      }
    });
  }
  for (std::thread& w : workers) w.join();
  EXPECT_EQ(error, "");
  return outcome;
}

// One process, one stage, one step after the other. The model is the untied one: what is tied has
// two copies, since its two stages use different versions of it.
class Reference {
 public:
  Reference(const Setting& s, const Outcome& known)
      : s_(s), stages_of_(known.stages_of), transports_(comm::make_inproc(1)) {
    Setting one = s;
    one.method = "gpipe";
    one.stages = one.pipelines = 1;
    one.replicas.clear();
    one.micro_batches = s.micro_batches * s.pipelines;
    one.batch_size = s.batch_size * s.pipelines;
    one.model.tied = false;
    OptimizerConfig none;
    none.rate.base = 0;
    trainer_ = std::make_unique<Trainer>(testing_model::language_model(one.model), none,
                                         options_of(one), *transports_[0]);
    Setting initial = one;
    initial.model.tied = s.model.tied;
    auto alone = comm::make_inproc(1);
    Trainer start(testing_model::language_model(initial.model), s.optimizer, options_of(one),
                  *alone[0]);
    for (const StateTensor& t : start.state())
      newest_[key(t)] = std::vector<float>(t.data, t.data + t.elements);
    for (const Parameter& p : start.graph().parameters) decay_[p.name] = p.decay;
    rows_ = static_cast<int>(one.batch_size);
  }

  Outcome run() {
    int first = 0;
    for (const int steps : s_.runs) {
      run(first, steps);
      first += steps;
    }
    outcome_.tensors = newest_;
    return outcome_;
  }

 private:
  void run(int first, int steps) {
    const Schedule plan = generate(
        s_.method, {.stages = s_.stages, .micro_batches = s_.micro_batches, .steps = steps});
    Lowering how;
    how.pipelines = s_.pipelines;
    if (s_.model.tied && s_.stages > 1) how.tied = {{0, s_.stages - 1}};
    const VerifyReport report = verify(lower(plan, how));
    std::vector<Tensors> versions = {newest_};
    for (int t = 0; t < steps; ++t) {
      const auto version = [&](int stage) {
        return report.versions[stage * plan.micro_batches * steps + t * plan.micro_batches];
      };
      step(first + t, versions, version);
      versions.push_back(newest_);
    }
  }

  template <class Version>
  void step(int number, const std::vector<Tensors>& versions, const Version& version) {
    const bool tied = s_.model.tied;
    for (const StateTensor& t : trainer_->state()) {
      const bool copy = tied && t.name == "decoder";
      const std::string name = copy ? "embedding" : t.name;
      const int stage = copy ? s_.stages - 1 : *stages_of_.at(name).begin();
      const std::vector<float>& from = versions[version(stage)].at(name);
      std::copy(from.begin(), from.end(), t.data);
    }
    trainer_->set_step(number);
    Tokens batch;
    int at = number;
    const StepResult result = trainer_->train(source(s_, rows_, 0, batch, at)());
    outcome_.losses.push_back(result.at("loss"));
    Tensors gradients;
    for (const StateTensor& t : trainer_->gradients()) {
      std::vector<float> g(t.data, t.data + t.elements);
      if (tied && t.name == "decoder") {
        std::vector<float>& sum = gradients.at("embedding");
        for (std::size_t i = 0; i < g.size(); ++i) sum[i] += g[i];
      } else {
        gradients[t.name] = std::move(g);
      }
    }
    update(number + 1, gradients);
  }

  void update(std::int64_t number, const Tensors& gradients) {
    std::map<int, double> squares;  // by stage
    const auto square = [&](const std::string& name) {
      const std::vector<float>& g = gradients.at(name);
      return sum_of_squares(g.data(), static_cast<std::int64_t>(g.size()));
    };
    for (const StateTensor& t : trainer_->gradients()) {  // in model order
      if (s_.model.tied && t.name == "decoder") continue;
      const std::set<int>& stages = stages_of_.at(t.name);
      if (stages.size() == 1) squares[*stages.begin()] += square(t.name);
    }
    for (const auto& [name, g] : gradients) {
      const std::set<int>& stages = stages_of_.at(name);
      const double norm =
          std::sqrt(stages.size() == 1 ? squares.at(*stages.begin()) : square(name));
      ParameterSpan span;
      span.weight = newest_.at(name).data();
      span.gradient = g.data();
      span.elements = static_cast<std::int64_t>(g.size());
      span.decay = decay_.at(name);
      for (int i = 0; i < optimizer_states(s_.optimizer.kind); ++i)
        span.state[i] = newest_.at(name + "/" + optimizer_state_name(s_.optimizer.kind, i)).data();
      apply_update(s_.optimizer, span, clip_factor(s_.optimizer, norm), number);
    }
  }

  const Setting& s_;
  std::map<std::string, std::set<int>> stages_of_;
  std::vector<std::unique_ptr<comm::Transport>> transports_;
  std::unique_ptr<Trainer> trainer_;
  Tensors newest_;
  std::map<std::string, bool> decay_;
  Outcome outcome_;
  int rows_ = 0;
};

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum);
}

// The reference adds gradients micro-batch by micro-batch and use by use. So do pipelines, but for
// two of them with several micro-batches each, or with a tied weight on two stages of each.
void expect_equal(const Setting& s) {
  const Outcome got = pipelined(s);
  const Outcome want = Reference(s, got).run();
  const bool exact = s.pipelines == 1 || (s.micro_batches == 1 && !s.model.tied);
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

class Repeated : public testing::TestWithParam<Case> {};

TEST_P(Repeated, EqualsTheReplayOfItsVersionsBitwise) {
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

INSTANTIATE_TEST_SUITE_P(Grid, Repeated, testing::ValuesIn(cases()), case_name);

// Stages with replicas of their own: the same sums in another order.
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

// Without a flush each micro-batch of a step may have seen weights of its own; the verifier knows
// which. With one version everywhere (a run of one step) it is one process again.
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

// A stop is granted at the same step on every worker, and the run that goes on from there counts
// on.
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
