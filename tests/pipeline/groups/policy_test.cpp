#include "pipeline/groups/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "base/error.h"
#include "tests/pipeline/groups/world.h"

namespace hetu::groups {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Options sizes(int stages, int pipelines, int period) {
  Options o;
  o.stages = stages;
  o.pipelines = pipelines;
  o.sync_period = period;
  return o;
}

TEST(Policy, PeriodOneClosesWithAllAndStopsAfterM) {
  for (const int pipelines : {2, 4, 9}) {
    Policy policy(sizes(2, pipelines, 1));
    policy.begin_run(100, 7);
    for (int u = 101; u <= 107; ++u) {
      for (int p = 0; p < pipelines; ++p) {
        EXPECT_TRUE(policy.take().empty());
        EXPECT_EQ(policy.wakes_at_us(), std::nullopt);
        policy.arrive({1, p, u}, 10 * u + p);
      }
      const std::vector<Decision> got = policy.take();
      ASSERT_EQ(got.size(), 1u);
      EXPECT_EQ(got[0].stage, 1);
      EXPECT_EQ(static_cast<int>(got[0].members.size()), pipelines);
      EXPECT_EQ(got[0].updates, std::vector<std::int64_t>(pipelines, u));
      EXPECT_EQ(got[0].stop_after, std::vector<std::int64_t>(pipelines, 107));
      EXPECT_EQ(got[0].serial, u - 101);
    }
  }
}

// For a request at any moment, every pipeline stops all its stages at one number of updates. Each
// stage hears it before it reaches that number.
TEST(Policy, StopsSoon) {
  for (const Method method : {Method::PartialReduce, Method::AdPsgd}) {
    for (int asked_after = 0; asked_after < 40; ++asked_after) {
      Options options = sizes(3, 4, 10);
      options.method = method;
      Policy policy(options);
      policy.begin_run(100, 1000);
      std::vector<std::vector<std::int64_t>> done(3, std::vector<std::int64_t>(4, 100));
      std::vector<std::vector<std::int64_t>> stop(3, std::vector<std::int64_t>(4, kRunsOn));
      std::int64_t now_us = 0;
      for (int round = 0; round < 200; ++round) {
        if (round == asked_after) policy.stop_soon();
        for (int s = 2; s >= 0; --s) {  // the last stage leads by one update per stage
          for (int p = 0; p < 4; ++p) {
            const bool may = s == 2 || done[s][p] < done[s + 1][p];
            if (may && done[s][p] < stop[s][p] && !policy.is_pending(s, p))
              policy.arrive({s, p, done[s][p] + 1}, now_us += 100);
          }
        }
        policy.tick(now_us += 1000);
        for (const Decision& d : policy.take()) {
          for (std::size_t m = 0; m < d.members.size(); ++m) {
            if (d.initiator >= 0 && d.initiator != d.members[m]) continue;
            EXPECT_EQ(d.updates[m], ++done[d.stage][d.members[m]]);
            stop[d.stage][d.members[m]] = d.stop_after[m];
            EXPECT_LE(d.updates[m], d.stop_after[m]);
          }
        }
      }
      for (int p = 0; p < 4; ++p) {
        EXPECT_LE(done[2][p], 100 + asked_after + 8);
        for (int s = 0; s < 3; ++s) EXPECT_EQ(done[s][p], done[2][p]) << s << " " << p;
        EXPECT_EQ(done[0][p], stop[0][p]);
      }
    }
  }
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::InvalidArgument);
    return e.what();
  }
  return "accepted";
}

TEST(Policy, RefusesWhatDoesNotExist) {
  Policy policy(sizes(2, 3, 10));
  policy.begin_run({5, 6, 7}, 10);
  policy.arrive({1, 0, 6}, 0);
  policy.take();
  policy.arrive({1, 0, 7}, 1);  // tests whether a group is open
  const bool open = policy.is_pending(1, 0);
  const auto asks = [&](int stage, int pipeline, std::int64_t update) {
    return refusal([&] { policy.arrive({stage, pipeline, update}, 2); });
  };
  EXPECT_THAT(asks(2, 0, 6), HasSubstr("stage 2, but the stages are 0…1"));
  EXPECT_THAT(asks(-1, 0, 6), HasSubstr("stage -1"));
  EXPECT_THAT(asks(0, 3, 6), HasSubstr("pipeline 3, but the pipelines are 0…2"));
  EXPECT_THAT(asks(0, 1, 6), HasSubstr("update 6, but its next update is 7"));
  EXPECT_THAT(asks(0, 1, 8), HasSubstr("update 8, but its next update is 7"));
  EXPECT_THAT(asks(1, 0, 8), HasSubstr(open ? "its request 7 is still open" : "accepted"));
  policy.remove(2, 3);
  policy.remove(2, 3);
  EXPECT_THAT(asks(0, 2, 8), HasSubstr("after it was removed as dead"));
  EXPECT_THAT(refusal([&] { policy.remove(3, 3); }), HasSubstr("pipeline 3"));
  EXPECT_THAT(refusal([&] { policy.begin_run({1, 2}, 3); }), HasSubstr("got 2 numbers"));
  EXPECT_THAT(refusal([&] { policy.begin_run(0, 0); }), HasSubstr("at least 1 update"));
}

TEST(Options, NamesAreTheirsAndNoOthers) {
  for (const Method method : {Method::PartialReduce, Method::AdPsgd, Method::AdPsgdLockstep})
    EXPECT_EQ(parse_method(method_name(method)), method);
  for (const Weights weights : {Weights::Uniform, Weights::Staleness})
    EXPECT_EQ(parse_weights(weights_name(weights)), weights);
  for (const char* name : {"", "gossip", "Preduce", "adpsgd ", "allreduce", "uniform"})
    EXPECT_THAT(
        [&] { parse_method(name); },
        testing::ThrowsMessage<Error>(HasSubstr("known: preduce, adpsgd, adpsgd-lockstep")));
  for (const char* name : {"", "stale", "Uniform", "preduce"})
    EXPECT_THAT([&] { parse_weights(name); },
                testing::ThrowsMessage<Error>(HasSubstr("known: uniform, staleness")));
}

TEST(Options, RefusesWhatIsOutOfRange) {
  const auto refuses = [](const std::function<void(Options&)>& change) {
    Options o = sizes(2, 4, 10);
    change(o);
    return refusal([&] { with_defaults(o); });
  };
  EXPECT_EQ(refuses([](Options&) {}), "accepted");
  EXPECT_THAT(refuses([](Options& o) { o.pipelines = 1; }), HasSubstr("needs at least 2, got 1"));
  EXPECT_THAT(refuses([](Options& o) { o.sync_period = 0; }),
              HasSubstr("--sync-period must be >= 1, got 0"));
  EXPECT_THAT(refuses([](Options& o) { o.min_group = 5; }), HasSubstr("must be from 1 to 4"));
  EXPECT_THAT(refuses([](Options& o) { o.min_group = -1; }), HasSubstr("got minimum -1"));
  EXPECT_THAT(refuses([](Options& o) { o.max_group = 5; }),
              HasSubstr("must be from 2 to 4, got 5"));
  EXPECT_THAT(refuses([](Options& o) { o.max_group = 1; }), HasSubstr("got 1"));
  EXPECT_THAT(refuses([](Options& o) { o.soft = 2; }), HasSubstr("soft"));
  EXPECT_THAT(refuses([](Options& o) { o.smoothing = 0; }), HasSubstr("smoothing"));
  EXPECT_THAT(refuses([](Options& o) { o.wait = NAN; }), HasSubstr("wait"));
  EXPECT_THAT(refuses([](Options& o) { o.stages = 0; }), HasSubstr("stages"));
  EXPECT_THAT(refuses([](Options& o) { o.stale_share = 0; }), HasSubstr("stale share"));
  EXPECT_THAT(refuses([](Options& o) {
                o.weights = Weights::Staleness;
                o.method = Method::AdPsgd;
              }),
              HasSubstr("weights by staleness are for preduce"));
}

TEST(Options, FollowThePeriodAndTheNumberOfPipelines) {
  const auto groups = [](int pipelines, int period) {
    const Options o = with_defaults(sizes(1, pipelines, period));
    return std::pair(o.min_group, o.max_group);
  };
  EXPECT_EQ(groups(8, 1), std::pair(8, 8));
  EXPECT_EQ(groups(16, 1), std::pair(16, 16));
  EXPECT_EQ(groups(8, 2), std::pair(8, 8));
  EXPECT_EQ(groups(8, 5), std::pair(4, 8));
  EXPECT_EQ(groups(8, 10), std::pair(2, 8));
  EXPECT_EQ(groups(9, 10), std::pair(2, 2));
  EXPECT_EQ(groups(2, 20), std::pair(2, 2));
}

// A copy is as new as the newest weights that have been averaged into it. The test recomputes this
// from the log.
TEST(Policy, WeighsMembersByHowFarTheyLag) {
  for (const double share : {0.5, 0.9, 1.0}) {
    World w;
    w.options = sizes(2, 5, 4);
    w.options.weights = Weights::Staleness;
    w.options.stale_share = share;
    w.slowness = {1, 2.5, 1, 1.3, 1};
    w.jitter = 0.1;
    w.updates = 200;
    std::vector<std::vector<int>> newest(2, std::vector<int>(5, 0));
    int weighted = 0;
    for (const Decision& d : run(w).log) {
      int most = 0;
      for (const int p : d.members) most = std::max(most, ++newest[d.stage][p]);
      double sum = 0;
      bool alike = true;
      std::vector<double> want;
      for (const int p : d.members) {
        want.push_back(std::pow(share, most - newest[d.stage][p]));
        sum += want.back();
        alike = alike && want.back() == want.front();
        newest[d.stage][p] = most;
      }
      ASSERT_EQ(d.weights.empty(), alike);
      double all = 0;
      for (std::size_t m = 0; m < d.weights.size(); ++m) {
        EXPECT_NEAR(d.weights[m], want[m] / sum, 1e-12);
        all += d.weights[m];
      }
      if (alike) continue;
      EXPECT_NEAR(all, 1, 1e-12);
      ++weighted;
    }
    EXPECT_EQ(weighted > 0, share < 1);
  }
}

// Source: the output of SD-PIPE (ResNet-50) for 1 stage x 8 pipelines. With 3 % jitter and the
// defaults of each P, the minimum groups are 8, 8, 4, with waits of 0.9 and 0.6 intervals.
TEST(Policy, PublishedGroupSizes) {
  for (const auto& [period, median] : {std::pair(1, 8), std::pair(2, 8), std::pair(5, 4)}) {
    World w;
    w.options = sizes(1, 8, period);
    w.slowness.assign(8, 1);
    w.jitter = 0.03;
    w.averaging_us = 5000;
    w.updates = 1000;
    std::vector<std::size_t> found;
    for (const Decision& d : run(w).log) found.push_back(d.members.size());
    std::sort(found.begin(), found.end());
    EXPECT_EQ(found[found.size() / 2], static_cast<std::size_t>(median)) << "P " << period;
    if (period == 1) {
      EXPECT_EQ(found.front(), 8u);
    }
  }
}

// If a stage waits for its average, the same group sizes require waiting for slightly late members.
TEST(Policy, PublishedGroupSizesWhereAveragingBlocks) {
  World w;
  w.options = sizes(1, 8, 2);
  w.options.overlapped = w.overlapped = false;
  w.slowness.assign(8, 1);
  w.jitter = 0.03;
  w.averaging_us = 5000;
  w.updates = 1000;
  std::vector<std::size_t> found;
  for (const Decision& d : run(w).log) found.push_back(d.members.size());
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found[found.size() / 2], 8u);
  EXPECT_GE(found[found.size() / 4], 6u);
}

// The test chooses the order of requests, and only one pipeline runs.
TEST(Policy, OnePipelineMayDoTheWorkOfAll) {
  Policy policy(sizes(1, 2, 1000));
  policy.begin_run(0, 10);
  std::int64_t stop = kRunsOn, u = 0;
  while (u < stop) {
    policy.arrive({0, 0, ++u}, 1000 * u);
    if (policy.wakes_at_us()) policy.tick(*policy.wakes_at_us());
    for (const Decision& d : policy.take()) stop = d.stop_after[0];
    ASSERT_LT(u, 30);
    if (policy.is_pending(0, 0)) break;  // its last request is kept for the other pipeline
  }
  EXPECT_EQ(stop, 18);  // the other pipeline may have begun two
  EXPECT_EQ(u, 18);
  policy.arrive({0, 1, 1}, 100000);
  policy.arrive({0, 1, 2}, 200000);
  std::vector<Decision> rest = policy.take();
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_THAT(rest[0].members, ElementsAre(0, 1));
  EXPECT_THAT(rest[0].updates, ElementsAre(18, 1));
  EXPECT_THAT(rest[0].stop_after, ElementsAre(18, 2));
  EXPECT_THAT(rest[1].members, ElementsAre(1));
  EXPECT_EQ(rest[1].reason, Reason::Last);
}

// Stage 1 holds pipeline 1 until pipeline 0 comes, and stage 0 holds pipeline 0 until pipeline 1
// comes. Neither can come: pipeline 1 would have to pass stage 1, and pipeline 0 stage 0.
TEST(Policy, FreesStagesThatWaitForEachOther) {
  Policy policy(sizes(2, 2, 3));
  policy.begin_run(0, 1000);
  std::int64_t now = 0;
  std::vector<Decision> log;
  const auto waits = [&](int stage, int pipeline, std::int64_t update) {
    policy.arrive({stage, pipeline, update}, now += 1000);
    while (policy.is_pending(stage, pipeline) && policy.wakes_at_us())
      policy.tick(now = std::max(now, *policy.wakes_at_us()));
    for (Decision& d : policy.take()) log.push_back(std::move(d));
    return policy.is_pending(stage, pipeline);
  };
  // Sends requests of one pipeline until it is held. Returns the update at which it is held.
  const auto held = [&](int stage, int pipeline, int from) {
    for (int u = from; u < 20; ++u)
      if (waits(stage, pipeline, u)) return u;
    return 0;
  };
  const int first = held(1, 0, 1);
  ASSERT_GT(first, 3);
  EXPECT_FALSE(waits(1, 1, 1));  // joins the group
  EXPECT_FALSE(waits(1, 0, first + 1));
  const int second = held(0, 1, 1);
  EXPECT_FALSE(waits(0, 0, 1));
  const int third = held(1, 1, 2);  // pipeline 0 can still come
  ASSERT_GT(third, 0);
  ASSERT_LE(third, second);
  for (const Decision& d : log) ASSERT_NE(d.reason, Reason::Frees);
  for (int u = 2; log.back().reason != Reason::Frees; ++u) {
    ASSERT_LE(u, first) << "stage 0 let pipeline 0 go on alone";
    ASSERT_FALSE(waits(0, 0, u) && log.back().reason != Reason::Frees) << "they wait for ever";
  }
  EXPECT_NE(policy.is_pending(0, 0), policy.is_pending(1, 1));
}

TEST(AdPsgd, OnlyActivePipelinesInitiateAndNobodyWaits) {
  Options o = sizes(2, 5, 10);
  o.method = Method::AdPsgd;
  o.seed = 3;
  Policy policy(o);
  policy.begin_run(0, 100);
  std::set<std::pair<int, int>> met;
  for (int u = 1; u <= 50; ++u) {
    for (int p = 0; p < 5; ++p) {
      policy.arrive({1, p, u}, u);
      const std::vector<Decision> got = policy.take();
      ASSERT_EQ(got.size(), 1u);
      const Decision& d = got[0];
      if (p % 2 == 1) {
        EXPECT_THAT(d.members, ElementsAre(p));
        continue;
      }
      ASSERT_EQ(d.members.size(), 2u);
      EXPECT_EQ(d.initiator, p);
      const int other = d.members[0] == p ? d.members[1] : d.members[0];
      EXPECT_EQ(other % 2, 1);
      met.insert({p, other});
    }
  }
  EXPECT_EQ(met.size(), 6u);
}

TEST(AdPsgd, LockstepPairsAreTheSameInAllStages) {
  Options o = sizes(3, 6, 10);
  o.method = Method::AdPsgdLockstep;
  Policy policy(o);
  policy.begin_run(40, 20);
  std::map<std::pair<std::int64_t, int>, std::vector<int>> pairs;
  std::set<std::vector<int>> kinds;
  for (int u = 41; u <= 60; ++u) {
    for (int s = 0; s < 3; ++s) {
      for (int p = 0; p < 6; ++p) policy.arrive({s, p, u}, u);
      const std::vector<Decision> got = policy.take();
      ASSERT_EQ(got.size(), 3u);
      for (const Decision& d : got) {
        ASSERT_EQ(d.members.size(), 2u);
        kinds.insert(d.members);
        for (const int p : d.members) {
          const auto [at, fresh] = pairs.try_emplace({u, p}, d.members);
          EXPECT_EQ(at->second, d.members);
        }
      }
    }
  }
  EXPECT_GT(kinds.size(), 8u);
}

}  // namespace
}  // namespace hetu::groups
