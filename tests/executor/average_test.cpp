// Pipelines that average their weights, each at its own pace: what they meet for, where they stop,
// and that their weights are those of a replay in one process.
#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "executor/comm/inproc.h"
#include "executor/trainer.h"
#include "graph/base/error.h"
#include "pipeline/generate.h"
#include "pipeline/lower.h"
#include "pipeline/verify.h"
#include "ps/local_coordinator.h"
#include "tests/executor/small_model.h"

namespace hetu {
namespace {

using testing_model::Sizes;
using testing_model::Tokens;

using Tensors = std::map<std::string, std::vector<float>>;  // "name" or "name/state"

struct Setting {
  int pipelines = 3;
  int stages = 2;
  groups::Options policy;
  bool overlap = true;
  OptimizerConfig optimizer;
  std::vector<int> runs = {30};
  std::vector<int> sleep_ms = {};  // of each pipeline, per batch
  bool average = true;
};

constexpr int kRows = 2;

Sizes model() {
  Sizes s;
  s.tied = false;
  s.dropout = 0;
  return s;
}

OptimizerConfig optimizer(OptimizerConfig::Kind kind) {
  OptimizerConfig c;
  c.kind = kind;
  c.rate.kind = LearningRate::Kind::Linear;
  c.rate.base = kind == OptimizerConfig::Kind::Sgd ? 0.1 : 0.01;
  c.rate.warmup = 4;
  c.rate.total = 100;
  return c;
}

// All labels count, so that every pipeline's loss has the same scale.
Tokens batch_of(int pipeline, int number) {
  Tokens t = testing_model::tokens(model(), kRows, number * 16 + pipeline);
  for (std::int32_t& label : t.labels) label = std::max(label, 0);
  return t;
}

// One member of one group.
struct Meeting {
  std::vector<int> members;
  std::vector<std::int64_t> updates;
  int initiator = -1;
  std::vector<double> weights;  // empty: all alike
  std::vector<float> before, after;
};

struct Outcome {
  Tensors tensors;  // after the last run, the same everywhere
  // By (stage, serial), then pipeline.
  std::map<std::pair<int, std::int64_t>, std::map<int, Meeting>> meetings;
  std::vector<std::vector<int>> lengths;    // by run, by pipeline
  std::vector<std::vector<double>> losses;  // by pipeline
  std::vector<int> batches;                 // read, by pipeline
  std::map<std::string, int> stage_of;
};

std::string key(const StateTensor& t) { return t.state.empty() ? t.name : t.name + "/" + t.state; }

TrainerOptions options_of(const Setting& s) {
  TrainerOptions options;
  options.method = "pipedream";
  options.pipelines = s.pipelines;
  options.stages = s.stages;
  options.batch_size = kRows;
  options.seed = 11;
  options.threads = 1;
  return options;
}

void work(const Setting& s, ps::LocalCoordinator& coordinator, comm::Transport& transport,
          Outcome& outcome, std::mutex& mutex) {
  TrainerOptions options = options_of(s);
  const int pipeline = transport.worker() / s.stages, stage = transport.worker() % s.stages;
  if (s.average) {
    Averaging how;
    how.policy = s.policy;
    how.overlap = s.overlap;
    how.connect = [&](const ps::ClientOptions& c) { return coordinator.client(c); };
    how.observe = [&, pipeline, stage](const Averaged& a) {
      const std::lock_guard lock(mutex);
      outcome.meetings[{stage, a.group.serial}][pipeline] = {a.group.members,
                                                             a.group.updates,
                                                             a.group.initiator,
                                                             a.group.weights,
                                                             {a.before, a.before + a.elements},
                                                             {a.after, a.after + a.elements}};
    };
    options.averaging = how;
  }
  Trainer trainer(testing_model::language_model(model()), s.optimizer, options, transport);
  Tokens batch;
  int number = 0;
  const BatchSource source = [&]() -> FieldLookup {
    if (!s.sleep_ms.empty() && stage == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(s.sleep_ms[pipeline]));
    batch = batch_of(pipeline, number++);
    return [&batch](const std::string& field, std::int64_t) -> const void* {
      return field == "ids" ? batch.ids.data() : batch.labels.data();
    };
  };
  std::vector<int> lengths;
  std::vector<double> losses;
  std::int64_t due = 0;
  for (const int steps : s.runs) {
    trainer.begin_run(steps);
    int length = 0;
    while (const auto result = trainer.next(source)) {
      ++length;
      losses.push_back(result->at("loss"));
    }
    lengths.push_back(length);
    EXPECT_EQ(trainer.step(), due += steps);
  }
  const std::lock_guard lock(mutex);
  if (!trainer.fields().empty()) {
    EXPECT_TRUE(outcome.batches[pipeline] == 0 || outcome.batches[pipeline] == number);
    outcome.batches[pipeline] = number;
  }
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    int& known = outcome.lengths[r][pipeline];
    EXPECT_TRUE(known == 0 || known == lengths[r]) << "stages of pipeline " << pipeline;
    known = lengths[r];
  }
  if (stage == 0) outcome.losses[pipeline] = losses;
  for (const StateTensor& t : trainer.state()) {
    const std::vector<float> values(t.data, t.data + t.elements);
    outcome.stage_of[t.name] = stage;
    const auto [at, fresh] = outcome.tensors.emplace(key(t), values);
    EXPECT_TRUE(fresh || at->second == values) << key(t) << " differs between pipelines";
  }
}

Outcome train(const Setting& s) {
  comm::Options links;
  links.timeout_s = 60;
  auto transports = comm::make_inproc(s.pipelines * s.stages, links);
  ps::LocalCoordinator coordinator;
  Outcome outcome;
  outcome.lengths.assign(s.runs.size(), std::vector<int>(s.pipelines, 0));
  outcome.losses.resize(s.pipelines);
  outcome.batches.assign(s.pipelines, 0);
  std::mutex mutex;
  std::string error;
  std::vector<std::thread> workers;
  for (auto& transport : transports) {
    workers.emplace_back([&, t = transport.get()] {
      try {
        work(s, coordinator, *t, outcome, mutex);
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

// What a member counts for in its group.
double share_of(const Meeting& m, int pipeline) {
  if (m.weights.empty()) return 1.0 / static_cast<double>(m.members.size());
  return m.weights.at(std::find(m.members.begin(), m.members.end(), pipeline) - m.members.begin());
}

// What must hold of every run of partial reduce, whatever the groups were.
void expect_sound(const Setting& s, const Outcome& got) {
  for (const auto& [at, members] : got.meetings) {
    const Meeting& first = members.begin()->second;
    ASSERT_EQ(members.size(), first.members.size()) << "stage " << at.first;
    std::vector<double> mean(first.after.size(), 0);
    for (const auto& [pipeline, m] : members) {
      EXPECT_EQ(m.members, first.members);
      EXPECT_EQ(std::memcmp(m.after.data(), first.after.data(), m.after.size() * 4), 0)
          << "members of group " << at.second << " of stage " << at.first << " differ";
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += m.before[i] * share_of(m, pipeline);
    }
    for (std::size_t i = 0; i < mean.size(); ++i)
      ASSERT_NEAR(mean[i], first.after[i], 1e-6) << "the mean is not kept";
  }
  for (std::size_t r = 0; r < s.runs.size(); ++r) {
    int sum = 0;
    for (const int length : got.lengths[r]) sum += length;
    EXPECT_GE(sum, s.pipelines * s.runs[r]);
    EXPECT_LE(sum, s.pipelines * (s.runs[r] + s.stages + 1));
  }
  for (int d = 0; d < s.pipelines; ++d) {
    int sum = 0;
    for (const auto& lengths : got.lengths) sum += lengths[d];
    EXPECT_EQ(got.batches[d], sum) << "updates of pipeline " << d << " are not its micro-batches";
    EXPECT_EQ(static_cast<int>(got.losses[d].size()), sum);
    for (const double loss : got.losses[d]) EXPECT_LT(loss, 4.0);
  }
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
        s.sleep_ms = {1, 4, 1, 2};
        SCOPED_TRACE(testing::Message()
                     << groups::method_name(method) << " " << pipelines << "x" << stages);
        const Outcome got = train(s);
        expect_sound(s, got);
        EXPECT_GT(got.meetings.size(), 10U);
        for (const auto& [at, members] : got.meetings) EXPECT_EQ(members.size(), 2U);
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
  s.sleep_ms = {1, 6, 1};
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
  s.sleep_ms = {1, 6, 1};
  const Outcome got = train(s);
  expect_sound(s, got);
  int weighted = 0;
  for (const auto& [at, members] : got.meetings) {
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
      for (const auto& [at, members] : averaged.meetings)
        EXPECT_EQ(members.size(), static_cast<std::size_t>(s.pipelines));
      s.average = false;
      EXPECT_LE(difference(averaged.tensors, train(s).tensors), 1e-5) << optimizer_name(kind);
    }
  }
}

// The same pipelines in one process, one stage's update after the other, with the groups that the
// job had: a gradient is that of the versions its micro-batch used, an average the mean of the
// weights that its members had after the updates they asked for.
class Replay {
 public:
  Replay(const Setting& s, const Outcome& known) : s_(s), known_(known) {
    OptimizerConfig none;
    none.rate.base = 0;
    Setting one = s;
    one.stages = one.pipelines = 1;
    TrainerOptions options = options_of(one);
    options.method = "gpipe";
    trainer_ = std::make_unique<Trainer>(testing_model::language_model(model()), none, options,
                                         *transports_[0]);
    const auto alone = comm::make_inproc(1);
    Trainer start(testing_model::language_model(model()), s.optimizer, options, *alone[0]);
    for (const StateTensor& t : start.state())
      newest_[key(t)] = std::vector<float>(t.data, t.data + t.elements);
    for (const Parameter& p : start.graph().parameters) decay_[p.name] = p.decay;
    for (const auto& [at, members] : known.meetings) {
      const Meeting& m = members.begin()->second;
      for (std::size_t i = 0; i < m.members.size(); ++i)
        groups_[{at.first, m.members[i], m.updates[i]}] = &m;
    }
  }

  Tensors run() {
    std::vector<std::int64_t> done(s_.pipelines, 0);
    std::int64_t first = 0;
    for (std::size_t r = 0; r < s_.runs.size(); ++r) {
      replay(done, first, known_.lengths[r], s_.runs[r]);
      for (int d = 0; d < s_.pipelines; ++d) done[d] += known_.lengths[r][d];
      first += s_.runs[r];
    }
    return newest_;
  }

 private:
  using At = std::tuple<int, int, std::int64_t>;  // stage, pipeline, update of the training

  // A stage of a pipeline within a run: its state after each update, before it was averaged.
  struct Copy {
    std::vector<Tensors> after;
  };

  void replay(const std::vector<std::int64_t>& done, std::int64_t first,
              const std::vector<int>& lengths, int nominal) {
    copies_.assign(s_.stages * s_.pipelines, {});
    gradients_.clear();
    for (int s = 0; s < s_.stages; ++s) {
      Tensors own;
      for (const auto& [name, values] : newest_)
        if (stage_of(name) == s) own[name] = values;
      for (int d = 0; d < s_.pipelines; ++d) copy(s, d).after = {own};
    }
    std::vector<VerifyReport> reports;
    for (const int length : lengths) {
      const int stages = s_.stages;
      reports.push_back(verify(
          lower(generate("pipedream", {.stages = stages, .micro_batches = 1, .steps = length}))));
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (int d = 0; d < s_.pipelines; ++d)
        for (int s = s_.stages - 1; s >= 0; --s) {
          while (advance(s, d, done, first, lengths, nominal, reports[d])) moved = true;
        }
    }
    consensus(done, lengths);
  }

  bool advance(int s, int d, const std::vector<std::int64_t>& done, std::int64_t first,
               const std::vector<int>& lengths, int nominal, const VerifyReport& report) {
    Copy& own = copy(s, d);
    const int update = static_cast<int>(own.after.size());
    if (update > lengths[d]) return false;
    Tensors base;
    if (!averaged(s, d, update - 1, done, base)) return false;
    const Tensors* gradient = gradient_of(d, update - 1, done[d], lengths[d], report);
    if (gradient == nullptr) return false;
    const std::int64_t number = first + std::min(update, nominal);
    for (auto& [name, values] : base) {
      if (name.find('/') != std::string::npos) continue;
      ParameterSpan span;
      span.weight = values.data();
      span.gradient = gradient->at(name).data();
      span.elements = static_cast<std::int64_t>(values.size());
      span.decay = decay_.at(name);
      for (int i = 0; i < optimizer_states(s_.optimizer.kind); ++i)
        span.state[i] = base.at(name + "/" + optimizer_state_name(s_.optimizer.kind, i)).data();
      apply_update(s_.optimizer, span, 1, number);
    }
    own.after.push_back(std::move(base));
    return true;
  }

  // The state after an update and its average; false while a member has not come so far.
  bool averaged(int s, int d, int update, const std::vector<std::int64_t>& done, Tensors& out) {
    out = copy(s, d).after.at(update);
    const auto at = groups_.find({s, d, done[d] + update});
    if (update == 0 || at == groups_.end()) return true;
    const Meeting& m = *at->second;
    std::vector<const Tensors*> members;
    for (std::size_t i = 0; i < m.members.size(); ++i) {
      const Copy& other = copy(s, m.members[i]);
      const auto theirs = static_cast<std::size_t>(m.updates[i] - done[m.members[i]]);
      if (theirs >= other.after.size()) return false;
      members.push_back(&other.after[theirs]);
    }
    mean(members, out, /*states=*/false);
    return true;
  }

  static void mean(const std::vector<const Tensors*>& members, Tensors& out, bool states) {
    const float share = 1.0F / static_cast<float>(members.size());
    for (auto& [name, values] : out) {
      if (!states && name.find('/') != std::string::npos) continue;
      for (std::size_t i = 0; i < values.size(); ++i) {
        float sum = members[0]->at(name)[i];
        for (std::size_t k = 1; k < members.size(); ++k) sum += members[k]->at(name)[i];
        values[i] = sum * share;
      }
    }
  }

  // Of a micro-batch of pipeline d; null while the weights it used are not there.
  const Tensors* gradient_of(int d, int micro, std::int64_t done, int length,
                             const VerifyReport& report) {
    const auto known = gradients_.find({d, micro});
    if (known != gradients_.end()) return &known->second;
    for (int s = 0; s < s_.stages; ++s)
      if (report.versions[s * length + micro] >= static_cast<int>(copy(s, d).after.size()))
        return nullptr;
    for (const StateTensor& t : trainer_->state()) {
      const int s = stage_of(t.name);
      const int version = report.versions[s * length + micro];
      const std::vector<float>& used = copy(s, d).after[version].at(t.name);
      std::copy(used.begin(), used.end(), t.data);
    }
    const Tokens batch = batch_of(d, static_cast<int>(done) + micro);
    trainer_->train([&](const std::string& field, std::int64_t) -> const void* {
      return field == "ids" ? batch.ids.data() : batch.labels.data();
    });
    Tensors& out = gradients_[{d, micro}];
    for (const StateTensor& t : trainer_->gradients())
      out[t.name] = std::vector<float>(t.data, t.data + t.elements);
    return &out;
  }

  void consensus(const std::vector<std::int64_t>& done, const std::vector<int>& lengths) {
    for (int s = 0; s < s_.stages; ++s) {
      std::vector<Tensors> last(s_.pipelines);
      std::vector<const Tensors*> members;
      for (int d = 0; d < s_.pipelines; ++d) {
        ASSERT_TRUE(averaged(s, d, lengths[d], done, last[d]))
            << "pipeline " << d << " stands still";
        members.push_back(&last[d]);
      }
      Tensors out = last[0];
      mean(members, out, /*states=*/true);
      for (auto& [name, values] : out) newest_[name] = std::move(values);
    }
  }

  Copy& copy(int s, int d) { return copies_[s * s_.pipelines + d]; }
  int stage_of(const std::string& name) const {
    return known_.stage_of.at(name.substr(0, name.find('/')));
  }

  const Setting& s_;
  const Outcome& known_;
  std::vector<std::unique_ptr<comm::Transport>> transports_ = comm::make_inproc(1);
  std::unique_ptr<Trainer> trainer_;
  Tensors newest_;
  std::map<std::string, bool> decay_;
  std::map<At, const Meeting*> groups_;
  std::vector<Copy> copies_;
  std::map<std::pair<int, int>, Tensors> gradients_;
};

TEST(PartialReduce, EqualsAReplayInOneProcessWithEveryOptimizer) {
  using Kind = OptimizerConfig::Kind;
  int n = 0;
  for (const Kind kind : {Kind::Sgd, Kind::Momentum, Kind::Nesterov, Kind::AdaGrad, Kind::Adam,
                          Kind::AmsGrad, Kind::AdamW, Kind::Lamb}) {
    Setting s;
    s.stages = 1 + n++ % 3;
    s.optimizer = optimizer(kind);
    s.runs = {16, 9};
    s.sleep_ms = {1, 3, 0};
    const Outcome got = train(s);
    expect_sound(s, got);
    EXPECT_GT(got.meetings.size(), 5U);
    const Tensors want = Replay(s, got).run();
    for (const auto& [name, values] : want)
      EXPECT_EQ(std::memcmp(values.data(), got.tensors.at(name).data(), values.size() * 4), 0)
          << name << " with " << optimizer_name(kind) << " on " << s.stages << " stages";
  }
}

}  // namespace
}  // namespace hetu
