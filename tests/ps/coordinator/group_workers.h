// Workers without weights, over any client, and checks of the answers that they receive. Used by
// the tests of ps/.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ps/coordinator/group_client.h"

namespace hetu::ps {

inline groups::Options sizes(int stages, int pipelines, int period) {
  groups::Options policy;
  policy.stages = stages;
  policy.pipelines = pipelines;
  policy.sync_period = period;
  return policy;
}

inline ClientOptions place(const groups::Options& policy, int pipeline, int stage) {
  ClientOptions options;
  options.policy = policy;
  options.pipeline = pipeline;
  options.stage = stage;
  options.worker = pipeline * policy.stages + stage;
  options.timeout_s = 30;
  return options;
}

using Connect = std::function<std::unique_ptr<GroupClient>(const ClientOptions&)>;

/// The answers that all workers of a run received, and checks of their consistency.
struct Heard {
  std::mutex mutex;
  std::map<std::pair<int, std::int64_t>, Answer> groups;  // by stage and serial
  std::map<std::pair<int, std::int64_t>, std::set<int>> tellers;
  std::map<std::pair<int, int>, std::int64_t> last;  // by pipeline and stage

  void take(int pipeline, int stage, std::int64_t update, const Answer& answer) {
    const std::lock_guard lock(mutex);
    const std::pair key(stage, answer.serial);
    const auto [found, is_new] = groups.try_emplace(key, answer);
    EXPECT_EQ(found->second.members, answer.members);
    EXPECT_EQ(found->second.updates, answer.updates);
    EXPECT_TRUE(tellers[key].insert(pipeline).second);
    const auto at = std::find(answer.members.begin(), answer.members.end(), pipeline);
    ASSERT_NE(at, answer.members.end());
    EXPECT_EQ(answer.updates[static_cast<std::size_t>(at - answer.members.begin())], update);
    last[{pipeline, stage}] = update;
  }

  /// Checks that members agree on their groups, that the stages of a pipeline stop at the same
  /// update, and that all made enough updates.
  void check(const groups::Options& policy, std::int64_t updates) {
    for (const auto& [key, answer] : groups) {
      EXPECT_EQ(tellers[key].size(), answer.members.size());
      if (policy.sync_period == 1) {
        EXPECT_EQ(answer.members.size(), static_cast<std::size_t>(policy.pipelines));
      }
    }
    std::int64_t sum = 0;
    for (int p = 0; p < policy.pipelines; ++p) {
      sum += last[{p, 0}];
      for (int s = 1; s < policy.stages; ++s) EXPECT_EQ((last[{p, s}]), (last[{p, 0}]));
    }
    EXPECT_GE(sum, updates * policy.pipelines);
    EXPECT_LE(sum, policy.pipelines * (updates + policy.stages + 1));
  }
};

/// Consecutive runs of the workers, of `updates` updates each.
struct Runs {
  int count = 1;
  std::int64_t updates = 0;
  int first = 0;  ///< above 0: the training continues an earlier one
};

/// Runs one worker: it makes updates until the coordinator stops it.
inline void work(const Connect& connect, const ClientOptions& options, Heard& heard, Runs runs) {
  const auto client = connect(options);
  std::mt19937 draw(static_cast<unsigned>(options.worker));
  std::int64_t update = runs.first * runs.updates;
  for (int run = runs.first; run < runs.first + runs.count; ++run) {
    client->begin_run({update, runs.updates, run * runs.updates});
    for (std::int64_t stop = groups::kRunsOn; update < stop;) {
      std::this_thread::sleep_for(std::chrono::microseconds(draw() % 300 * (1 + options.pipeline)));
      client->request(++update);
      const Answer answer = client->wait([] { return std::string("a test"); });
      heard.take(options.pipeline, options.stage, update, answer);
      stop = answer.stop_after;
    }
  }
}

/// Runs all workers of a job, each on a thread.
inline void work_all(const Connect& connect, const groups::Options& policy, Heard& heard, Runs runs,
                     const std::string& log = "") {
  std::vector<std::thread> threads;
  for (int p = 0; p < policy.pipelines; ++p) {
    for (int s = 0; s < policy.stages; ++s) {
      threads.emplace_back([&, p, s] {
        ClientOptions options = place(policy, p, s);
        options.group_log = log;
        work(connect, options, heard, runs);
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace hetu::ps
