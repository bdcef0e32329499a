// Tests predictions of pipelines that share weights over servers: the time of a transfer, who waits
// for whom, and how far a pipeline may lead.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"
#include "pipeline/verify/verify.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct Case {
  int stages = 2, micros = 3, steps = 8, pipelines = 2, staleness = 0;
};

Schedule compute_of(const Case& c) {
  return generate("hetpipe", {.stages = c.stages, .micro_batches = c.micros, .steps = c.steps});
}

Schedule plan_of(const Case& c, std::vector<StagePair> tied = {}) {
  Lowering how;
  how.pipelines = c.pipelines;
  how.sharing = ParameterServers{c.staleness};
  how.tied = std::move(tied);
  return lower(compute_of(c), how);
}

// Returns costs with three time units per micro-batch. A transfer takes `served`, plus the latency.
Costs costs_of(double served, double latency = 0) {
  Costs c;
  c.stages[0].weight_bytes = served;
  c.link.bandwidth = 1;
  c.link.latency = latency;
  return c;
}

Costs free_servers() {
  Costs c;
  c.stages[0].weight_bytes = 1;
  c.link.bandwidth = 1e30;
  return c;
}

SimulateOptions with_events() {
  SimulateOptions o;
  o.events = true;
  return o;
}

void expect_same_run(const Simulation& got, const Simulation& wanted, int pipeline,
                     const char* at) {
  const auto workers = wanted.workers.size();
  for (std::size_t w = 0; w < workers; ++w) {
    const WorkerTiming &a = got.workers[pipeline * workers + w], &b = wanted.workers[w];
    EXPECT_NEAR(a.busy, b.busy, 1e-9) << at << " worker " << w;
    EXPECT_NEAR(a.start, b.start, 1e-9) << at << " worker " << w;
    EXPECT_NEAR(a.end, b.end, 1e-9) << at << " worker " << w;
    EXPECT_EQ(a.peak_activations, b.peak_activations) << at;
  }
}

// The two simulators share one dependency rule. A single pipeline with servers that cost nothing
// equals the run without servers, with sums over tied stages, messages and stragglers.
TEST(SimulateServers, WhatCostsNothingIsNotThere) {
  for (const Case& c :
       {Case{1, 1, 3}, Case{2, 3, 8}, Case{4, 8, 6}, Case{4, 2, 9}, Case{3, 5, 1}}) {
    for (const bool tied : {false, true}) {
      if (tied && c.stages == 1) continue;
      const std::vector<StagePair> pairs =
          tied ? std::vector<StagePair>{{0, c.stages - 1}} : std::vector<StagePair>{};
      Costs costs = free_servers();
      costs.allreduce = 0.7;
      costs.stages[0].update = 0.2;
      SimulateOptions o = with_events();
      o.jitter = 0.3;
      o.hetero = 2;
      o.seed = 5;
      Case one = c;
      one.pipelines = 1;
      const Simulation wanted = simulate(lower(compute_of(c), {.tied = pairs}), costs, o);
      const Simulation got = simulate(plan_of(one, pairs), costs, o);
      expect_same_run(got, wanted, 0, "alone");
      EXPECT_NEAR(got.throughput, wanted.throughput, 1e-9);
      EXPECT_NEAR(got.steady_bubble, wanted.steady_bubble, 1e-9);
      EXPECT_TRUE(got.asynchronous);
      const auto counted = [](const Simulation& s) {
        std::map<std::string, int> kinds;
        for (const TraceEvent& e : s.events)
          if (e.kind.find('_') == std::string::npos || e.kind == "REDUCE_GRAD") ++kinds[e.kind];
        return kinds;
      };
      std::map<std::string, int> kinds = counted(got);
      EXPECT_EQ(kinds["PUSH"], c.stages * c.steps);
      EXPECT_EQ(kinds["PULL"], c.stages * c.steps);
      kinds.erase("PUSH");
      kinds.erase("PULL");
      EXPECT_EQ(kinds, counted(wanted));
    }
  }
}

// The step has three units of compute, and two transfers in each direction: a wave of one
// micro-batch on one stage.
TEST(SimulateServers, ATransferCostsLatencyAndBytesAndWaitsItsTurn) {
  for (const int steps : {1, 2, 5}) {
    const Case c{1, 1, steps, 1};
    const Simulation s = simulate(plan_of(c), costs_of(2, 0.5));
    EXPECT_DOUBLE_EQ(s.step_time, steps * (3 + 2 * 0.5 + 2 * 2.0));
    EXPECT_DOUBLE_EQ(s.makespan, s.step_time - 5);
    SimulateOptions four;
    four.servers = 4;
    EXPECT_DOUBLE_EQ(simulate(plan_of(c), costs_of(2, 0.5), four).step_time, steps * (3 + 1 + 1.0));
    // If the bytes are unknown, a transfer takes half of an all-reduce.
    Costs sums;
    sums.allreduce = 4;
    sums.link.latency = 0.5;
    EXPECT_DOUBLE_EQ(simulate(plan_of(c), sums).step_time, s.step_time);
  }
  // All pipelines push at once, and no answer comes before the last push: 2 N transfers in a row.
  for (const int pipelines : {1, 2, 7}) {
    const Case c{1, 1, 1, pipelines, 0};
    EXPECT_DOUBLE_EQ(simulate(plan_of(c), costs_of(2, 0.5)).step_time, 3 + 1 + 4.0 * pipelines);
  }
}

// A pull is requested with the push, and only the rest of its time delays the row. With waves of 3
// on one stage, two forwards and backwards lie between, 6 units. They hide this much of 2 l + 2 s.
TEST(SimulateServers, APullTravelsBesideTheMicroBatchesBetween) {
  for (const double served : {0.5, 2.5, 4.0}) {
    const double way = 2 * 0.5 + 2 * served, stall = std::max(0.0, way - 6);
    const Case c{1, 3, 5, 1};
    const Simulation s = simulate(plan_of(c), costs_of(served, 0.5), with_events());
    EXPECT_NEAR(s.makespan, 5 * 9 + 4 * stall, 1e-9) << served;
    EXPECT_NEAR(s.step_time, s.makespan + way, 1e-9) << served;
    for (const TraceEvent& e : s.events) {
      if (e.kind == "PULL") {
        EXPECT_NEAR(e.duration_us, 1e3 * (e.step < 4 ? stall : way), 1e-6);
      }
    }
  }
}

TEST(SimulateServers, WithoutStalenessThePaceIsThatOfTheSlowest) {
  for (const Case& c : {Case{4, 4, 20, 4}, Case{2, 3, 30, 3}, Case{1, 1, 40, 5}}) {
    for (const double factor : {1.0, 2.0, 4.0}) {
      SimulateOptions slow;
      slow.slow = {{.pipeline = 1, .factor = factor}};
      Case one = c;
      one.pipelines = 1;
      SimulateOptions alone;
      alone.slow = {{.pipeline = 0, .factor = factor}};
      const Simulation wanted = simulate(plan_of(one), free_servers(), alone);
      const Simulation got = simulate(plan_of(c), free_servers(), slow);
      expect_same_run(got, wanted, 1, "the slow one");
      EXPECT_DOUBLE_EQ(got.makespan, wanted.makespan);
      EXPECT_NEAR(got.throughput / (c.pipelines * wanted.throughput), 1, 0.02);
    }
  }
}

// A fast pipeline ends sooner if it may lead further. With a staleness of the whole run it waits
// for nobody.
TEST(SimulateServers, StalenessLetsTheFastGoAhead) {
  SimulateOptions slow;
  slow.slow = {{.pipeline = 1, .factor = 3}};
  double before = 0;
  for (const int d : {0, 1, 2, 4, 8, 16}) {
    const Case c{3, 4, 16, 2, d};
    const Simulation s = simulate(plan_of(c), free_servers(), slow);
    const double done = s.workers[0].end;
    if (d > 0) {
      EXPECT_LT(done, before) << d;
    }
    before = done;
  }
  EXPECT_DOUBLE_EQ(before, simulate(plan_of({3, 4, 16, 1}), free_servers()).makespan);
}

// The times of one stage in a run, from its events: when waves reached the servers, and when pulls
// were answered.
struct Clocks {
  std::vector<std::vector<double>> pushed, asked, answered;  // per pipeline, wave by wave

  int clock(int pipeline, double at) const {
    int waves = 0;
    for (const double t : pushed[pipeline]) waves += t <= at + 1e-6 ? 1 : 0;
    return waves;
  }
  int slowest(double at) const {
    int least = clock(0, at);
    for (std::size_t d = 1; d < pushed.size(); ++d)
      least = std::min(least, clock(static_cast<int>(d), at));
    return least;
  }
};

Clocks clocks_of(const Simulation& s, const Case& c, int stage) {
  Clocks clocks;
  clocks.pushed.resize(c.pipelines);
  clocks.asked.resize(c.pipelines);
  clocks.answered.resize(c.pipelines);
  for (const TraceEvent& e : s.events) {
    if (e.stage != stage) continue;
    const int d = e.worker / c.stages;
    if (e.kind == "PUSH") clocks.pushed[d].push_back(e.start_us + e.duration_us);
    if (e.kind == "PULL") clocks.asked[d].push_back(e.start_us);
    if (e.kind == "PULL") clocks.answered[d].push_back(e.start_us + e.duration_us);
  }
  return clocks;
}

// Checks the bound over random sizes, speeds, pauses and costs. A pipeline that continues after a
// pull leads the slowest one by at most D waves. Its next push comes before its next pull, so until
// then it leads by at most D + 1. If servers cost nothing, nobody waits for more.
TEST(SimulateServers, NobodyLeadsByMoreThanTheStaleness) {
  constexpr int kSeed = 20260611;
  RecordProperty("seed", kSeed);
  std::mt19937 random(kSeed);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  int most_at_pulls = 0, most_at_all = 0;  // lead beyond D
  for (int n = 0; n < 150; ++n) {
    const Case c{1 + below(4), 1 + below(5), 3 + below(12), 2 + below(4), below(4)};
    SimulateOptions o = with_events();
    o.seed = random();
    o.jitter = 0.1 * below(4);
    o.hetero = below(3);
    for (int d = 0; d < c.pipelines; ++d)
      if (below(2) == 0) o.slow.push_back({.pipeline = d, .factor = 1 + 0.5 * below(8)});
    o.servers = 1 + below(3);
    const bool free = below(2) == 0;
    const Simulation s =
        simulate(plan_of(c), free ? free_servers() : costs_of(0.3 * below(5), 0.2 * below(3)), o);
    for (int stage = 0; stage < c.stages; ++stage) {
      const Clocks clocks = clocks_of(s, c, stage);
      for (int d = 0; d < c.pipelines; ++d) {
        ASSERT_EQ(clocks.pushed[d].size(), static_cast<std::size_t>(c.steps));
        ASSERT_EQ(clocks.answered[d].size(), static_cast<std::size_t>(c.steps));
        for (int wave = 0; wave < c.steps; ++wave) {
          const double on = clocks.answered[d][wave], pushed = clocks.pushed[d][wave];
          ASSERT_GE(clocks.clock(d, on), wave + 1);
          const int at_pull = wave + 1 - clocks.slowest(on);
          const int at_push = clocks.clock(d, pushed) - clocks.slowest(pushed);
          ASSERT_LE(at_pull, c.staleness) << "run " << n;
          ASSERT_LE(at_push, c.staleness + 1) << "run " << n;
          most_at_pulls = std::max(most_at_pulls, 1 + at_pull - c.staleness);
          most_at_all = std::max(most_at_all, at_push - c.staleness);
          if (!free) continue;
          double needed = std::max(clocks.asked[d][wave], pushed);
          for (int other = 0; wave >= c.staleness && other < c.pipelines; ++other)
            needed = std::max(needed, clocks.pushed[other][wave - c.staleness]);
          ASSERT_NEAR(on, needed, 1e-6 * needed) << "run " << n << ", wave " << wave;
        }
      }
    }
  }
  EXPECT_EQ(most_at_pulls, 1);  // both bounds are reached
  EXPECT_EQ(most_at_all, 1);
}

// The verifier proves one pipeline. Every plan that it accepts must run with several pipelines,
// with any speeds. Pushes may lie anywhere before the next update, and pulls anywhere after their
// push.
TEST(SimulateServers, WhatIsProvedOfOnePipelineRunsWithSeveral) {
  constexpr int kSeed = 20260612;
  RecordProperty("seed", kSeed);
  std::mt19937 random(kSeed);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  int moved = 0;
  for (int n = 0; n < 200; ++n) {
    const Case c{1 + below(4), 1 + below(4), 1 + below(6), 1 + below(4), below(3)};
    Schedule s = plan_of(c);
    for (Program& p : s.workers) {
      std::vector<Instr> row = unroll(p);
      for (std::size_t k = 1; k < row.size(); ++k) {
        if (row[k].kind != Kind::Pull) continue;
        for (std::size_t at = k; row[at - 1].kind != Kind::Push && below(4) > 0; --at, ++moved)
          std::swap(row[at], row[at - 1]);
      }
      p = {row, {}, 0, 0, {}};
    }
    ASSERT_NO_THROW(verify(s)) << to_csv(s);
    SimulateOptions o;
    o.seed = random();
    o.jitter = 0.5;
    o.slow.push_back({.pipeline = below(c.pipelines), .factor = 1.0 + below(5)});
    ASSERT_NO_THROW(simulate(s, costs_of(0.5 * below(3), 0.5 * below(2)), o)) << to_csv(s);
  }
  EXPECT_GT(moved, 1000);
}

TEST(SimulateServers, PullsStandInTheRowAndPushesDoNot) {
  const Case c{2, 2, 6, 2, 1};
  const Simulation s = simulate(plan_of(c), costs_of(1.5, 0.25), with_events());
  std::vector<std::vector<const TraceEvent*>> rows(4);
  for (const TraceEvent& e : s.events) rows[e.worker].push_back(&e);
  int beside = 0;
  for (const auto& row : rows) {
    for (const TraceEvent* a : row) {
      if (a->kind != "PULL" && a->kind != "PUSH") continue;
      EXPECT_GE(a->step, 0);
      EXPECT_LT(a->step, c.steps);
      for (const TraceEvent* b : row) {
        if (b->kind.size() != 1) continue;
        const double both = std::min(a->start_us + a->duration_us, b->start_us + b->duration_us) -
                            std::max(a->start_us, b->start_us);
        if (a->kind == "PULL") {
          EXPECT_LT(both, 1e-6) << b->kind << b->micro;
        } else {
          beside += both > 1e-6 ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(beside, 10);
}

TEST(SimulateServers, WhatCannotBeSimulatedIsSaid) {
  SimulateOptions slots;
  slots.send_slots = 2;
  EXPECT_THAT([&] { simulate(plan_of({}), Costs{}, slots); },
              ThrowsMessage<Error>(HasSubstr("unbounded send slots, got 2")));
  SimulateOptions none;
  none.servers = 0;
  EXPECT_THAT([&] { simulate(plan_of({}), Costs{}, none); },
              ThrowsMessage<Error>(HasSubstr("servers must be at least 1, got 0")));
  Schedule wrong = plan_of({1, 2, 3, 2});
  std::vector<Instr> row = unroll(wrong.workers[0]);
  row.erase(std::find(row.begin(), row.end(), parse_instr("0PUSH")));
  wrong.workers[0] = {row, {}, 0, 0, {}};
  EXPECT_THAT(
      [&] { simulate(wrong, Costs{}); },
      ThrowsMessage<Error>(HasSubstr("0UPDATE comes before wave 0 of its stage is pushed")));
  EXPECT_EQ(ample_send_slots(plan_of({4, 8, 4}), Costs{}),
            ample_send_slots(lower(compute_of({4, 8, 4})), Costs{}));
}

}  // namespace
}  // namespace hetu
