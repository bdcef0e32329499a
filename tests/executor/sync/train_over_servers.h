// Trains pipelines that share weights over parameter servers, with one thread per worker, and
// records the history of servers and workers. Tests replay it in one process.
#pragma once
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ps/client/local_servers.h"
#include "tests/executor/replay.h"

namespace hetu::testing_served {

/// A pipeline's push that a server has added: the pipeline, and the number of the push from 0. The
/// order is that of the table.
struct Added {
  int pipeline = 0;
  std::int64_t number = 0;
};

/// The history of a training. A table holds the weights of a stage. If each pipeline has its own
/// cut, a table holds a segment: the parameters that lie together on one stage in each pipeline.
struct History {
  std::map<int, std::vector<Added>> added;  // by table
  /// By table, then pipeline: the number of entries of `added` that each pull contains, in order.
  std::map<int, std::map<int, std::vector<std::int64_t>>> pulls;
};

/// The stage of each parameter: by pipeline, then by name.
using StagesOf = std::map<int, std::map<std::string, int>>;

struct Outcome {
  std::map<int, testing_replay::Tensors> tensors;  // by pipeline
  std::vector<double> losses;
  std::vector<int> run_steps;
  StagesOf stages_of;
  History history;
};

/// The allowed staleness; nullopt: no servers. `method` is JobOptions' sync_method.
struct Servers {
  std::optional<int> staleness;
  const char* method = nullptr;
};

/// Trains all runs of `s`.
inline Outcome train(const testing_replay::Setting& s, const Servers& how,
                     const Stragglers& stragglers) {
  Outcome outcome;
  std::mutex mutex;
  ps::LocalServers servers(1, [&](const ps::server::Applied& a) {
    const std::lock_guard lock(mutex);
    const int table = std::stoi(a.table.substr(a.table.find(' ') + 1));
    outcome.history.added[table].push_back({a.member, a.number - 1});
  });
  const auto work = [&](comm::Transport& links) {
    JobOptions options = testing_replay::options_of(s);
    options.stragglers = stragglers;
    if (how.staleness) {
      if (how.method != nullptr) options.sync_method = how.method;
      options.servers.emplace();
      options.staleness = *how.staleness;
      options.servers->connect = [&](const ps::ParameterOptions& o) { return servers.client(o); };
      options.servers->observe = [&](const PulledWave& w) {
        const std::lock_guard lock(mutex);
        outcome.history.pulls[w.part][w.pipeline].push_back(w.pushes.at(0));
      };
    }
    Job job(testing_replay::graph_of(s), s.optimizer, options, links);
    DrawnBatches batches = testing_replay::batches_of(s, job.plan().pipeline, 0);
    std::vector<double> losses;
    std::vector<int> run_steps;
    for (const int steps : s.runs) {
      const auto before = job.step();
      job.begin_run(steps);
      while (const auto result = job.next(&batches)) losses.push_back(result->at("loss"));
      run_steps.push_back(static_cast<int>(job.step() - before));
    }
    const std::lock_guard lock(mutex);
    for (const StateTensor& t : job.state()) {
      outcome.tensors[job.plan().pipeline][testing_replay::key(t)] = t.values.values();
      outcome.stages_of[job.plan().pipeline][t.name] = job.plan().stage();
    }
    outcome.run_steps = run_steps;
    if (links.worker() == 0) outcome.losses = losses;
  };
  comm::Options links;
  links.timeout_s = 60;
  EXPECT_EQ(on_worker_threads(s.pipelines * s.stages, work, links), "");
  return outcome;
}

/// Checks that all tensors are equal bit for bit.
inline void expect_equal(const testing_replay::Tensors& got, const testing_replay::Tensors& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, values] : want)
    EXPECT_EQ(std::memcmp(values.data(), got.at(name).data(), values.size() * 4), 0) << name;
}

/// Compares training and replay: the tensors of every pipeline, and the losses.
inline void expect_replayed(const Outcome& got, const testing_replay::Tensors& want,
                            const std::vector<double>& losses) {
  for (const auto& [pipeline, tensors] : got.tensors) {
    SCOPED_TRACE(fmt::format("pipeline {}", pipeline));
    expect_equal(tensors, want);
  }
  ASSERT_EQ(got.losses.size(), losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(got.losses[i], losses[i], 1e-12);
}

}  // namespace hetu::testing_served
