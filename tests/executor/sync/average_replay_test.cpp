// Compares pipelines that average their weights with a replay of the same training in one process.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "pipeline/generate/generate.h"
#include "pipeline/lower/lower.h"
#include "pipeline/verify/verify.h"
#include "tests/executor/stage/one_sweep.h"
#include "tests/executor/sync/average_together.h"

namespace hetu {
namespace {

using namespace testing_average;  // NOLINT

// Replays the pipelines of a job in one process, one stage's update after the other, with the
// groups that the job recorded. A gradient is computed with the weight versions that its
// micro-batch used. An average is the mean of the members' weights after the updates at which they
// joined the group.
class Replay {
 public:
  Replay(const Setting& s, const Outcome& known) : s_(s), known_(known) {
    OptimizerConfig none;
    none.rate.base = 0;
    Setting one = s;
    one.stages = one.pipelines = 1;
    JobOptions options = on_cpu(options_of(one));
    options.method = "gpipe";
    options.with_recompute = false;
    options.state_dtype = "float32";  // Neither option changes a weight.
    job_ = std::make_unique<Job>(testing_model::language_model(model()), none, options,
                                 *transports_[0]);
    const auto alone = comm::make_inproc(1);
    Job start(testing_model::language_model(model()), s.optimizer, options, *alone[0]);
    for (const StateTensor& t : start.state()) newest_[key(t)] = t.values.values();
    for (const Parameter& p : start.plan().graph.parameters) decay_[p.name] = p.decay;
    for (const auto& [at, members] : known.groups) {
      const GroupSeen& m = members.begin()->second;
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
  // stage, pipeline, number of the update within the training
  using At = std::tuple<int, int, std::int64_t>;

  // A stage of a pipeline within a run: its state after each update, before averaging.
  struct Copy {
    std::vector<Tensors> after;
  };

  /// One run of all pipelines.
  struct Run {
    std::vector<std::int64_t> done;  // per pipeline: updates before the run
    std::int64_t first;              // the run's first update, and its nominal number of updates
    int nominal;
    std::vector<int> lengths;           // updates of the run, per pipeline
    std::vector<VerifyReport> reports;  // per pipeline
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
    Run run = {done, first, nominal, lengths, {}};
    for (const int length : lengths) {
      const int stages = s_.stages;
      run.reports.push_back(verify(
          lower(generate("pipedream", {.stages = stages, .micro_batches = 1, .steps = length}))));
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (int d = 0; d < s_.pipelines; ++d)
        for (int s = s_.stages - 1; s >= 0; --s) {
          while (advance(s, d, run)) moved = true;
        }
    }
    consensus(done, lengths);
  }

  bool advance(int s, int d, const Run& run) {
    Copy& own = copy(s, d);
    const int update = static_cast<int>(own.after.size());
    if (update > run.lengths[d]) return false;
    Tensors base;
    if (!averaged(s, d, update - 1, run.done, base)) return false;
    const Tensors* gradient =
        gradient_of(d, update - 1, run.done[d], run.lengths[d], run.reports[d]);
    if (gradient == nullptr) return false;
    const std::int64_t number = run.first + std::min(update, run.nominal);
    for (auto& [name, values] : base) {
      if (name.find('/') != std::string::npos) continue;
      SweepCall span;
      span.weight = values.data();
      span.gradient = gradient->at(name).data();
      span.elements = static_cast<std::int64_t>(values.size());
      span.decay = decay_.at(name);
      for (int i = 0; i < optimizer_states(s_.optimizer.kind); ++i)
        span.state[i] = base.at(name + "/" + optimizer_state_name(s_.optimizer.kind, i)).data();
      const auto update_it = [&](const SweepCall& call) {
        apply_update(s_.optimizer, call, 1, number);
      };
      if (s_.states == "bf16")
        with_narrow_states(span, [&](SweepCall& call) {
          round_states(call, options_of(s_).seed, name, run.first + update);
          update_it(call);
        });
      else
        update_it(span);
    }
    own.after.push_back(std::move(base));
    return true;
  }

  // Writes the state after an update and its average to `out`. Returns false while a member of the
  // group has not made its own update yet.
  bool averaged(int s, int d, int update, const std::vector<std::int64_t>& done, Tensors& out) {
    out = copy(s, d).after.at(update);
    const auto at = groups_.find({s, d, done[d] + update});
    if (update == 0 || at == groups_.end()) return true;
    const GroupSeen& m = *at->second;
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

  void mean(const std::vector<const Tensors*>& members, Tensors& out, bool states) const {
    const bool is_narrow = s_.states == "bf16";
    const float share = 1.0F / static_cast<float>(members.size());
    for (auto& [name, values] : out) {
      if (!states && name.find('/') != std::string::npos) continue;
      for (std::size_t i = 0; i < values.size(); ++i) {
        float sum = members[0]->at(name)[i];
        for (std::size_t k = 1; k < members.size(); ++k) sum += members[k]->at(name)[i];
        values[i] = sum * share;
        if (is_narrow && name.find('/') != std::string::npos)
          values[i] = float{BFloat16(values[i])};
      }
    }
  }

  // Returns the gradient of a micro-batch of pipeline d. Returns null while a stage lacks the
  // weights that the micro-batch used.
  const Tensors* gradient_of(int d, int micro, std::int64_t done, int length,
                             const VerifyReport& report) {
    const auto known = gradients_.find({d, micro});
    if (known != gradients_.end()) return &known->second;
    for (int s = 0; s < s_.stages; ++s)
      if (report.versions[s * length + micro] >= static_cast<int>(copy(s, d).after.size()))
        return nullptr;
    for (const StateTensor& t : job_->state()) {
      const int s = stage_of(t.name);
      const int version = report.versions[s * length + micro];
      const std::vector<float>& used = copy(s, d).after[version].at(t.name);
      t.values.write(used.data());
    }
    const Tokens batch = batch_of(d, static_cast<int>(done) + micro);
    job_->train(rows_of(batch, model().length, 0, kRows));
    Tensors& out = gradients_[{d, micro}];
    for (const StateTensor& t : job_->gradients()) out[t.name] = t.values.values();
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
  std::unique_ptr<Job> job_;
  Tensors newest_;
  std::map<std::string, bool> decay_;
  std::map<At, const GroupSeen*> groups_;
  std::vector<Copy> copies_;
  std::map<std::pair<int, int>, Tensors> gradients_;
};

TEST(PartialReduce, EqualsAReplayInOneProcessWithEveryOptimizer) {
  using Kind = OptimizerConfig::Kind;
  int n = 0;
  for (const Kind kind : {Kind::Sgd, Kind::Momentum, Kind::Nesterov, Kind::AdaGrad, Kind::Adam,
                          Kind::AmsGrad, Kind::AdamW, Kind::Lamb, Kind::BertAdam}) {
    Setting s;
    s.recompute = n % 2 == 1;
    s.stages = 1 + n++ % 3;
    s.optimizer = optimizer(kind);
    if (kind == Kind::Momentum || kind == Kind::AmsGrad) s.states = "bf16";
    // Long runs, so that groups form even if few pipelines meet on a busy machine.
    s.runs = {40, 9};
    s.slow = {1, 3, 1};
    const Outcome got = train(s);
    expect_sound(s, got);
    EXPECT_GT(got.groups.size(), 5U);
    const Tensors want = Replay(s, got).run();
    for (const auto& [name, values] : want)
      EXPECT_EQ(std::memcmp(values.data(), got.tensors.at(name).data(), values.size() * 4), 0)
          << name << " with " << optimizer_name(kind) << " on " << s.stages << " stages";
  }
}

}  // namespace
}  // namespace hetu
