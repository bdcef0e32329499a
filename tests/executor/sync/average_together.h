// Trains pipelines that average their weights, with one thread per worker. Shared by the tests of
// averaging.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "executor/job/job.h"
#include "ps/coordinator/local_coordinator.h"
#include "tests/executor/small_model.h"
#include "tests/executor/test_batches.h"
#include "tests/executor/test_options.h"
#include "tests/executor/worker_threads.h"

namespace hetu::testing_average {

using testing_model::Sizes;
using testing_model::Tokens;

using Tensors = std::map<std::string, std::vector<float>>;  // keyed by "name" or "name/state"

struct Setting {
  int pipelines = 3;
  int stages = 2;
  groups::Options policy;
  bool overlap = true;
  OptimizerConfig optimizer;
  std::vector<int> runs = {30};
  /// Slowdown of each pipeline. The compute time of a batch is multiplied by the factor, and
  /// reading a batch takes that many milliseconds. The factor is relative, so that it also holds on
  /// a busy machine and on a device whose work ends later than its launch.
  std::vector<int> slow = {};
  bool average = true;
  bool recompute = false;
  std::string states = "float32";                   // --state-dtype
  std::function<void(JobOptions&)> configure = {};  // changes further options
};

inline constexpr int kRows = 2;

inline Sizes model() {
  Sizes s;
  s.tied = false;
  s.dropout = 0;
  return s;
}

inline OptimizerConfig optimizer(OptimizerConfig::Kind kind) {
  OptimizerConfig c;
  c.kind = kind;
  c.rate.kind = LearningRate::Kind::Linear;
  c.rate.base = kind == OptimizerConfig::Kind::Sgd ? 0.1 : 0.01;
  c.rate.warmup = 4;
  c.rate.total = 100;
  return c;
}

// Returns a batch in which every label counts, so that the losses of all pipelines have the same
// scale.
inline Tokens batch_of(int pipeline, int number) {
  Tokens t = testing_model::tokens(model(), kRows, number * 16 + pipeline);
  for (std::int32_t& label : t.labels) label = std::max(label, 0);
  return t;
}

// One member of one group.
struct GroupSeen {
  std::vector<int> members;
  std::vector<std::int64_t> updates;
  int initiator = -1;
  std::vector<double> weights;  // empty: equal weights
  std::vector<float> before, after;
};

struct Outcome {
  Tensors tensors;  // state after the last run, the same on all pipelines
  // Keyed by (stage, serial number of the group), then by pipeline.
  std::map<std::pair<int, std::int64_t>, std::map<int, GroupSeen>> groups;
  std::vector<std::vector<int>> lengths;    // updates, by run and pipeline
  std::vector<std::vector<double>> losses;  // by pipeline
  std::vector<int> batches;                 // batches read, by pipeline
  std::map<std::string, int> stage_of;
};

inline std::string key(const StateTensor& t) {
  return t.state.empty() ? t.name : t.name + "/" + t.state;
}

inline JobOptions options_of(const Setting& s) {
  JobOptions options = test_options();
  options.method = "pipedream";
  options.pipelines = s.pipelines;
  options.stages = s.stages;
  options.with_recompute = s.recompute;
  options.batch_size = kRows;
  options.seed = 11;
  options.state_dtype = s.states;
  options.threads = 1;
  if (s.configure) s.configure(options);
  return options;
}

// Returns a worker's averaging options. They record every group of the worker in `outcome`.
inline Averaging averaging_of(const Setting& s, ps::LocalCoordinator& coordinator, int worker,
                              Outcome& outcome, std::mutex& mutex) {
  Averaging how;
  how.policy = s.policy;
  how.overlap = s.overlap;
  how.connect = [&](const ps::ClientOptions& c) { return coordinator.client(c); };
  const int pipeline = worker / s.stages, stage = worker % s.stages;
  how.observe = [&, pipeline, stage](const Averaged& a) {
    const std::lock_guard lock(mutex);
    outcome.groups[{stage, a.group.serial}][pipeline] = {a.group.members,
                                                         a.group.updates,
                                                         a.group.initiator,
                                                         a.group.weights,
                                                         {a.before, a.before + a.elements},
                                                         {a.after, a.after + a.elements}};
  };
  return how;
}

inline void work(const Setting& s, ps::LocalCoordinator& coordinator, comm::Transport& transport,
                 Outcome& outcome, std::mutex& mutex) {
  JobOptions options = options_of(s);
  const int pipeline = transport.worker() / s.stages, stage = transport.worker() % s.stages;
  if (s.average)
    options.averaging = averaging_of(s, coordinator, transport.worker(), outcome, mutex);
  for (int p = 0; p < static_cast<int>(s.slow.size()) && p < s.pipelines; ++p)
    options.stragglers.slow.push_back({.pipeline = p, .factor = static_cast<double>(s.slow[p])});
  Job trainer(testing_model::language_model(model()), s.optimizer, options, transport);
  int number = 0;
  DrawnBatches source([&] {
    if (!s.slow.empty() && stage == 0)
      std::this_thread::sleep_for(s.slow[pipeline] * std::chrono::milliseconds(1));
    return rows_of(batch_of(pipeline, number++), model().length, 0, kRows);
  });
  std::vector<int> lengths;
  std::vector<double> losses;
  std::int64_t due = 0;
  for (const int steps : s.runs) {
    trainer.begin_run(steps);
    int length = 0;
    while (const auto result = trainer.next(&source)) {
      ++length;
      losses.push_back(result->at("loss"));
    }
    lengths.push_back(length);
    EXPECT_EQ(trainer.step(), due += steps);
  }
  const std::lock_guard lock(mutex);
  if (!trainer.plan().fields.empty()) {
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
    const std::vector<float> values = t.values.values();
    outcome.stage_of[t.name] = stage;
    const auto [at, fresh] = outcome.tensors.emplace(key(t), values);
    EXPECT_TRUE(fresh || at->second == values) << key(t) << " differs between pipelines";
  }
}

inline Outcome train(const Setting& s) {
  comm::Options links;
  links.timeout_s = 60;
  ps::LocalCoordinator coordinator;
  Outcome outcome;
  outcome.lengths.assign(s.runs.size(), std::vector<int>(s.pipelines, 0));
  outcome.losses.resize(s.pipelines);
  outcome.batches.assign(s.pipelines, 0);
  std::mutex mutex;
  const auto work_here = [&](comm::Transport& t) { work(s, coordinator, t, outcome, mutex); };
  EXPECT_EQ(on_worker_threads(s.pipelines * s.stages, work_here, links), "");
  return outcome;
}

// Returns the weight of a member in its group's mean.
inline double share_of(const GroupSeen& m, int pipeline) {
  if (m.weights.empty()) return 1.0 / static_cast<double>(m.members.size());
  return m.weights.at(std::find(m.members.begin(), m.members.end(), pipeline) - m.members.begin());
}

// Checks the properties that hold for every run of partial reduce, for any groups.
inline void expect_sound(const Setting& s, const Outcome& got) {
  for (const auto& [at, members] : got.groups) {
    const GroupSeen& first = members.begin()->second;
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

}  // namespace hetu::testing_average
