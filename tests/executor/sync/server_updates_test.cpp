// Tests training in which the servers compute the updates (sync method ps). In rounds, it equals an
// all-reduce. Without rounds, it equals a replay in one process of the history that the servers
// recorded.
#include <gmock/gmock.h>

#include <cmath>

#include "executor/job/job_check.h"
#include "tests/executor/sync/train_over_servers.h"

namespace hetu {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using testing_replay::Setting;
using testing_replay::Tensors;
using testing_served::Added;
using testing_served::expect_equal;
using testing_served::History;
using testing_served::Outcome;
using Values = std::vector<float>;
using Kind = OptimizerConfig::Kind;

Setting setting(const char* method, int pipelines, int stages, Kind kind) {
  Setting s;
  s.method = method;
  s.pipelines = pipelines;
  s.stages = stages;
  s.micro_batches = 2;
  s.batch_size = 4;
  s.optimizer = testing_replay::optimizer(kind);
  s.model.tied = false;
  s.model.dropout = 0;  // Dropout depends on the pipeline's offset in the global batch.
  s.runs = {5, 1, 2, 6};
  return s;
}

// Without `staleness`, the pipelines use an all-reduce.
Outcome train(const Setting& s, std::optional<int> staleness, const Stragglers& stragglers = {}) {
  return testing_served::train(s, {staleness, "ps"}, stragglers);
}

/// A second implementation of the method's formulas. Each step's gradient is computed at the
/// weights of its pipeline's last pull. Each gradient is one update, in the order in which the
/// servers applied them.
class Replay {
 public:
  Replay(const Setting& s, const Outcome& of)
      : s_(s), stages_of_(of.stages_of), history_(of.history), pipelines_(s.pipelines) {
    Setting one = s;
    one.method = "gpipe";
    one.stages = one.pipelines = 1;
    OptimizerConfig none;
    none.rate.base = 0;
    job_ = alone(one, none);
    const auto start = alone(one, s.optimizer);
    Tensors first;
    for (const StateTensor& t : start->state()) first[testing_replay::key(t)] = t.values.values();
    for (const Parameter& p : start->plan().graph.parameters) decays_[p.name] = p.decay;
    for (int stage = 0; stage < s.stages; ++stage) {
      Tensors& own = served_[stage].emplace_back();
      for (const auto& [key, values] : first)
        if (stage_of(key.substr(0, key.find('/'))) == stage) own[key] = values;
    }
    for (Pipeline& p : pipelines_)
      for (int stage = 0; stage < s.stages; ++stage) p.at[stage] = 0;
  }

  /// Returns weights and states at the end. Appends the losses of its steps.
  Tensors run(std::vector<double>& losses) {
    int first = 0;
    for (const int steps : s_.runs) {
      run(first, steps, losses);
      first += steps;
    }
    Tensors all;
    for (auto& [stage, versions] : served_)
      all.insert(versions.back().begin(), versions.back().end());
    return all;
  }

 private:
  struct Pipeline {
    std::map<int, std::int64_t> at;    // by stage: updates that its weights contain
    std::map<int, std::size_t> pulls;  // by stage: pulls made
    std::vector<Tensors> gradients;    // of each step
  };

  std::unique_ptr<Job> alone(const Setting& s, const OptimizerConfig& optimizer) {
    transports_.push_back(std::move(comm::make_inproc(1)[0]));
    return std::make_unique<Job>(testing_replay::graph_of(s), optimizer,
                                 on_cpu(testing_replay::options_of(s)), *transports_.back());
  }
  int stage_of(const std::string& name) const { return stages_of_.at(0).at(name); }

  // Does every step that is possible, in any order, until all are done.
  void run(int first, int steps, std::vector<double>& losses) {
    losses.resize(static_cast<std::size_t>(first) + steps, 0);
    for (bool moved = true; std::exchange(moved, false);) {
      for (int d = 0; d < s_.pipelines; ++d) {
        Pipeline& p = pipelines_[d];
        const int step = static_cast<int>(p.gradients.size());
        if (step == first + steps || (step > first && !pull(d, first, step))) continue;
        losses[step] += compute(d, step) / s_.pipelines;
        moved = true;
      }
    }
    for (int d = 0; d < s_.pipelines; ++d) {
      ASSERT_EQ(static_cast<int>(pipelines_[d].gradients.size()), first + steps)
          << "the history has no such order";
      // The pull of the last step, and the pull at the end of the run.
      ASSERT_TRUE(pull(d, first, first + steps));
      for (auto& [stage, at] : pipelines_[d].at) {
        at = history_.pulls.at(stage).at(d).at(pipelines_[d].pulls[stage]++);
        ASSERT_TRUE(serve(stage, at));
        ASSERT_EQ(at, std::int64_t{first + steps} * s_.pipelines);
      }
    }
  }

  // Makes the pulls of all stages before a step. Returns false if one of them contains an update
  // that has not been computed yet.
  bool pull(int d, int first, int step) {
    Pipeline& p = pipelines_[d];
    for (auto& [stage, at] : p.at) {
      const std::size_t wanted = static_cast<std::size_t>(step) + runs_before(first);
      if (p.pulls[stage] == wanted) continue;
      const std::int64_t count = history_.pulls.at(stage).at(d).at(p.pulls[stage]);
      if (!serve(stage, count)) return false;
      at = count;
      ++p.pulls[stage];
    }
    return true;
  }
  // Each earlier run made one more pull at its end.
  std::size_t runs_before(int first) const {
    std::size_t n = 0;
    for (int sum = 0; sum < first; sum += s_.runs[n++]) {
    }
    return n;
  }

  bool serve(int stage, std::int64_t count) {
    std::vector<Tensors>& versions = served_.at(stage);
    while (static_cast<std::int64_t>(versions.size()) <= count) {
      const Added& next = history_.added.at(stage).at(versions.size() - 1);
      const Pipeline& from = pipelines_.at(next.pipeline);
      if (next.number >= static_cast<std::int64_t>(from.gradients.size())) return false;
      Tensors values = versions.back();
      apply(stage, from.gradients[next.number], static_cast<int>(next.number) + 1,
            static_cast<std::int64_t>(versions.size()), values);
      versions.push_back(std::move(values));
    }
    return true;
  }

  void apply(int stage, const Tensors& gradients, int step, std::int64_t update, Tensors& values) {
    double squares = 0;
    for (const StateTensor& t : job_->gradients())  // in model order
      if (stage_of(t.name) == stage)
        squares += squares_of(gradients.at(t.name).data(),
                              static_cast<std::int64_t>(gradients.at(t.name).size()));
    for (const auto& [name, decay] : decays_) {
      if (stage_of(name) != stage) continue;
      SweepCall call =
          sweep_call(s_.optimizer, clip_factor(s_.optimizer, std::sqrt(squares)), step);
      call.update = update;
      call.weight = values.at(name).data();
      call.gradient = gradients.at(name).data();
      call.elements = static_cast<std::int64_t>(values.at(name).size());
      call.decay = decay;
      const auto kind = s_.optimizer.kind;
      for (int i = 0; i < optimizer_states(kind); ++i)
        call.state[i] = values.at(name + "/" + optimizer_state_name(kind, i)).data();
      cpu_tensor_kernels().sweep(optimizer_name(kind))(call);
    }
  }

  double compute(int d, int step) {
    Pipeline& p = pipelines_[d];
    for (const StateTensor& t : job_->state()) {
      if (decays_.count(t.name) == 0) continue;
      const int stage = stage_of(t.name);
      t.values.write(served_.at(stage).at(p.at.at(stage)).at(t.name).data());
    }
    DrawnBatches batches = testing_replay::batches_of(s_, d, step);
    job_->set_step(step);
    const double loss = job_->train(&batches).at("loss");
    Tensors& gradients = p.gradients.emplace_back();
    for (const StateTensor& t : job_->gradients()) gradients[t.name] = t.values.values();
    return loss;
  }

  const Setting& s_;
  testing_served::StagesOf stages_of_;
  History history_;
  std::vector<std::unique_ptr<comm::Transport>> transports_;
  std::unique_ptr<Job> job_;
  std::map<std::string, bool> decays_;          // by parameter
  std::map<int, std::vector<Tensors>> served_;  // by stage: weights and states after each update
  std::vector<Pipeline> pipelines_;
};

constexpr Kind kKinds[] = {Kind::Sgd,     Kind::Momentum, Kind::Nesterov,
                           Kind::AdaGrad, Kind::Adam,     Kind::AdamW};

// Covers one pipeline, and two pipelines, whose sum is the same in any order.
TEST(ServerUpdates, InRoundsEqualAnAllReduceBitwise) {
  int n = 0;
  for (const char* method : {"gpipe", "1f1b", "dp"}) {
    for (const int pipelines : {1, 2}) {
      for (const int stages : {1, 2, 3}) {
        if (stages > 1 && method == std::string("dp")) continue;
        const Kind kind = kKinds[n++ % 6];
        SCOPED_TRACE(
            fmt::format("{} {} x {}, {}", method, pipelines, stages, optimizer_name(kind)));
        Setting s = setting(method, pipelines, stages, kind);
        s.optimizer.clip_norm = 0;  // An all-reduce clips by the norm of all stages together.
        s.model.dropout = 0.1;
        const Outcome want = train(s, std::nullopt), got = train(s, 0);
        ASSERT_EQ(got.tensors.size(), static_cast<std::size_t>(pipelines));
        for (const auto& [pipeline, tensors] : got.tensors)
          expect_equal(tensors, want.tensors.at(0));
        ASSERT_EQ(got.losses.size(), want.losses.size());
        for (std::size_t i = 0; i < got.losses.size(); ++i)
          EXPECT_NEAR(got.losses[i], want.losses[i], 1e-12);
      }
    }
  }
}

// With --sums tree, any number of pipelines and stages has the bits of one process, whose workers
// make the updates. With four pipelines, the order of members would give other bits.
TEST(ServerUpdates, InATreeEqualOneProcessBitwise) {
  int n = 0;
  for (const auto& [method, pipelines, stages, micros] : {std::tuple{"gpipe", 1, 2, 3},
                                                          {"dp", 2, 1, 4},
                                                          {"1f1b", 3, 2, 2},
                                                          {"gpipe", 4, 1, 2},
                                                          {"zb-h1", 4, 2, 2},
                                                          {"1f1b", 5, 1, 1}}) {
    const Kind kind = kKinds[n++ % 6];
    SCOPED_TRACE(fmt::format("{} {} x {}, {}", method, pipelines, stages, optimizer_name(kind)));
    Setting s = setting(method, pipelines, stages, kind);
    s.micro_batches = micros;
    s.batch_size = 2 * micros;
    s.optimizer.clip_norm = 0;
    s.model.dropout = 0.1;
    s.sums = "tree";
    Setting one = s;
    one.method = "gpipe";
    one.stages = one.pipelines = 1;
    one.micro_batches *= pipelines;
    one.batch_size *= pipelines;
    const Outcome want = train(one, std::nullopt), got = train(s, 0);
    for (const auto& [pipeline, tensors] : got.tensors) expect_equal(tensors, want.tensors.at(0));
    EXPECT_EQ(got.losses, want.losses);
  }
}

TEST(ServerUpdates, InATreeNeedAModelWithoutRunningStatistics) {
  Setting s = setting("1f1b", 2, 2, Kind::Sgd);
  s.optimizer.clip_norm = 0;
  s.images = true;
  s.sums = "tree";
  JobOptions options = testing_replay::options_of(s);
  options.sync_method = "ps";
  options.servers.emplace();
  EXPECT_THAT([&] { check_job(testing_replay::graph_of(s), s.optimizer, options); },
              ThrowsMessage<Error>(HasSubstr("needs a model without running statistics")));
}

// Each pipeline clips its own gradient to the bound, as if it trained alone. The mean is then
// within the bound too.
TEST(ServerUpdates, InRoundsClipTheMeanGradient) {
  Setting s = setting("dp", 3, 1, Kind::Sgd);
  s.optimizer.rate = {LearningRate::Kind::Constant, 0.5};
  s.optimizer.clip_norm = 1e-3;
  s.runs = {1};
  const Outcome after = train(s, 0);
  s.optimizer.rate.base = 0;
  const Tensors before = train(s, 0).tensors.at(0);
  double squares = 0;
  for (const auto& [name, values] : after.tensors.at(0))
    for (std::size_t i = 0; i < values.size(); ++i)
      squares += std::pow(double{values[i]} - before.at(name)[i], 2);
  const double most = 0.5 * s.optimizer.clip_norm;
  EXPECT_LE(std::sqrt(squares), most * 1.01);
  EXPECT_GT(std::sqrt(squares), most / 3);
}

TEST(ServerUpdates, OfThreePipelinesInRoundsEqualAnAllReduce) {
  Setting s = setting("1f1b", 3, 2, Kind::Momentum);
  s.optimizer.clip_norm = 0;
  const Outcome want = train(s, std::nullopt), got = train(s, 0);
  for (const auto& [pipeline, tensors] : got.tensors) {
    expect_equal(tensors, got.tensors.at(0));
    for (const auto& [name, values] : want.tensors.at(0))
      EXPECT_LE(testing_replay::difference(values, tensors.at(name)), 1e-6) << name;
  }
}

TEST(ServerUpdates, ByThemselvesEqualTheReplayOfTheirHistoryBitwise) {
  int n = 0;
  for (const int staleness : {1, 4, kAnyStaleness}) {
    for (const auto& [method, pipelines, stages] :
         {std::tuple{"dp", 3, 1}, {"gpipe", 2, 2}, {"1f1b", 3, 2}, {"1f1b", 2, 3}}) {
      const Kind kind = kKinds[n++ % 6];
      SCOPED_TRACE(fmt::format("{} {} x {}, D = {}, {}", method, pipelines, stages, staleness,
                               optimizer_name(kind)));
      const Setting s = setting(method, pipelines, stages, kind);
      Stragglers slow;
      slow.slow = {{.pipeline = 0, .factor = 2}};
      const Outcome got = train(s, staleness, slow);
      std::vector<double> losses;
      const Tensors want = Replay(s, got).run(losses);
      testing_served::expect_replayed(got, want, losses);
    }
  }
}

}  // namespace
}  // namespace hetu
