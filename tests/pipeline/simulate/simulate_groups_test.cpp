#include "pipeline/simulate/simulate_groups.h"

#include <gmock/gmock.h>

#include <chrono>
#include <map>

#include "base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/groups/decision.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/lower/lower.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct Case {
  int stages = 4, pipelines = 4, steps = 400;
  double slow = 1;
  double hetero = 0, jitter = 0;
};

// Returns the costs of the timed devices: forward 30 ms, backward 60 ms, averaging 5 ms.
Costs timed_devices() {
  Costs c;
  c.unit = "ms";
  c.stages = {{.forward = 30, .input_grad = 30, .weight_grad = 30}};
  c.allreduce = 5;
  return c;
}

Schedule plan_of(const Case& c, bool averages) {
  const Schedule s =
      generate("pipedream", {.stages = c.stages, .micro_batches = 1, .steps = c.steps});
  const Sharing sharing = averages ? Sharing(WeightAverages{}) : Sharing(GradientSums{});
  return lower(s, {.pipelines = c.pipelines, .sharing = sharing});
}

SimulateOptions straggling(const Case& c) {
  SimulateOptions o;
  o.hetero = c.hetero;
  o.jitter = c.jitter;
  o.seed = 7;
  if (c.slow != 1) o.slow.push_back({.pipeline = 1, .factor = c.slow});
  return o;
}

GroupSimulation grouped(const Case& c, groups::Options policy) {
  return simulate_groups(plan_of(c, true), timed_devices(), straggling(c), policy);
}

Simulation all_reduce(const Case& c) {
  return simulate(plan_of(c, false), timed_devices(), straggling(c));
}

groups::Options partial_reduce(int period = 10) {
  groups::Options o;
  o.sync_period = period;
  return o;
}

groups::Options ad_psgd(groups::Method method = groups::Method::AdPsgd) {
  groups::Options o;
  o.method = method;
  return o;
}

// P = 1 with a wait for each answer is the all-reduce of the other simulator, to the last bit. The
// two programs share the dependency rule and the random numbers.
TEST(SimulateGroups, PeriodOneIsTheAllReduce) {
  groups::Options policy = partial_reduce(1);
  policy.overlapped = false;
  for (const Case& c : {Case{}, Case{2, 3, 50, 3}, Case{1, 8, 40, 1, 100, 0.1},
                        Case{5, 2, 30, 2, 50, 0.2}, Case{3, 16, 20, 1, 0, 0.3}}) {
    const GroupSimulation g = grouped(c, policy);
    const Simulation a = all_reduce(c);
    EXPECT_NEAR(g.run.makespan, a.makespan, 1e-9 * a.makespan);
    EXPECT_NEAR(g.run.bubble_fraction, a.bubble_fraction, 1e-9);
    for (std::size_t w = 0; w < a.workers.size(); ++w) {
      EXPECT_NEAR(g.run.workers[w].busy, a.workers[w].busy, 1e-9 * a.makespan);
      EXPECT_NEAR(g.run.workers[w].end, a.workers[w].end, 1e-9 * a.makespan);
      EXPECT_EQ(g.run.workers[w].peak_activations, a.workers[w].peak_activations);
    }
    for (const groups::Decision& d : g.groups)
      EXPECT_EQ(static_cast<int>(d.members.size()), c.pipelines);
  }
}

// Costs from a trace hold the time of each stage's sum, but no time for all stages together.
TEST(SimulateGroups, AStagesOwnSumGoesBeforeTheCommonOne) {
  const Case c{2, 3, 50};
  Costs costs = timed_devices();
  const auto step_time = [&] {
    return simulate_groups(plan_of(c, true), costs, straggling(c), partial_reduce(1)).run.step_time;
  };
  const double common = step_time();
  costs.allreduce = 0;
  EXPECT_LT(step_time(), common);
  costs.stages[0].reduce_grad = 5;
  EXPECT_DOUBLE_EQ(step_time(), common);
}

// All figures are fractions of the rate that equal pipelines reach without any averaging, which is
// one micro-batch per 90 ms each. The bounds are relative to all-reduce with equal pipelines, which
// is lower.
TEST(SimulateGroups, ThroughputUnderHeterogeneity) {
  struct Row {
    Case c;
    double all_reduce, partial_reduce, ad_psgd, ideal;
  };
  const Row rows[] = {{{4, 4}, 1, .97, .96, 1},
                      {{4, 4, 400, 2}, .55, .86, .85, .875},
                      {{4, 4, 400, 4}, .30, .79, .79, .8125},
                      {{1, 8, 400, 4}, .30, .89, .89, .90625},
                      {{4, 16, 200, 2}, .55, .955, .955, .96875},
                      {{4, 64, 100, 2}, .55, .98, .98, .9921875}};
  for (const Row& row : rows) {
    const double each = row.c.pipelines / 90.0;
    const double a = all_reduce(row.c).throughput / each;
    const double p = grouped(row.c, partial_reduce()).run.throughput / each;
    const double g = grouped(row.c, ad_psgd()).run.throughput / each;
    std::printf(
        "%d x %d, %gx slower: all-reduce %.3f, partial reduce %.3f, AD-PSGD %.3f, ideal %.3f\n",
        row.c.stages, row.c.pipelines, row.c.slow, a, p, g, row.ideal);
    EXPECT_LE(a, row.all_reduce);
    EXPECT_GE(p, row.partial_reduce);
    EXPECT_GE(g, row.ad_psgd);
    EXPECT_LE(p, row.ideal + 0.005);
    EXPECT_LE(g, row.ideal + 0.005);
    const auto lockstep = grouped(row.c, ad_psgd(groups::Method::AdPsgdLockstep));
    EXPECT_LE(lockstep.run.throughput / each, row.c.slow == 1 ? 1.001 : row.all_reduce);
  }
}

TEST(SimulateGroups, PausesCostLessThanWithAllReduce) {
  const Case c{4, 4, 400, 1, 100};
  groups::Options overlapped = partial_reduce(1);
  const double blocking = all_reduce(c).throughput;
  const double beside = grouped(c, overlapped).run.throughput;
  const double mine = grouped(c, partial_reduce()).run.throughput;
  std::printf("pauses: partial reduce %.3f of a blocking all-reduce, %.3f of an overlapped one\n",
              mine / blocking, mine / beside);
  EXPECT_GE(mine / blocking, 1.22);
  EXPECT_GE(mine / beside, 1.05);
}

TEST(SimulateGroups, PublishedGroupSizes) {
  for (const auto& [period, median] : {std::pair(1, 8), std::pair(2, 8), std::pair(5, 4)}) {
    const GroupSimulation g = grouped({1, 8, 800, 1, 0, 0.03}, partial_reduce(period));
    std::map<std::size_t, int> sizes;
    for (const groups::Decision& d : g.groups) ++sizes[d.members.size()];
    int before = 0;
    std::size_t middle = 0;
    for (const auto& [size, count] : sizes) {
      if (2 * before < static_cast<int>(g.groups.size())) middle = size;
      before += count;
    }
    EXPECT_EQ(middle, static_cast<std::size_t>(median)) << "P " << period;
    if (period == 1) {
      EXPECT_EQ(sizes.size(), 1u);
    }
  }
}

TEST(SimulateGroups, FiveHundredAndTwelveWorkersInSeconds) {
  const auto start = std::chrono::steady_clock::now();
  const GroupSimulation g = grouped({4, 128, 200, 2, 100}, partial_reduce());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(g.run.workers.size(), 512u);
  EXPECT_LT(took.count(), 20);  // 0.6 s on an idle processor
}

TEST(SimulateGroups, RunsOnAsFarAsTheFastestPipelineGoes) {
  // One fast pipeline among slow ones does most of the work: several times the plan's length.
  Case c{2, 4, 40};
  SimulateOptions o;
  for (const int p : {0, 1, 2}) o.slow.push_back({.pipeline = p, .factor = 20});
  const GroupSimulation g =
      simulate_groups(plan_of(c, true), timed_devices(), o, partial_reduce(1000));
  std::int64_t updates = 0, fast = 0;
  for (const groups::Decision& d : g.groups) {
    if (d.stage != 0) continue;
    updates += static_cast<std::int64_t>(d.members.size());
    fast += d.members.back() == 3 ? 1 : 0;
  }
  EXPECT_GE(updates, 160);
  EXPECT_LT(updates, 164);
  EXPECT_GT(fast, 110);
}

TEST(SimulateGroups, ARunAllowsForAsManyUnansweredUpdatesAsGroupsDo) {
  for (int p = 1; p <= 9; ++p) {
    const Schedule plan = generate("pipedream", {.stages = p, .micro_batches = 1});
    EXPECT_EQ(groups::updates_before_answer(p, 0), steps_before_answer(plan));
    EXPECT_EQ(groups::updates_before_answer(p, p - 1), 2);
  }
}

TEST(SimulateGroups, RefusesWhatHasNoGroups) {
  const Case one{4, 1, 20};
  EXPECT_THAT([&] { grouped(one, partial_reduce()); },
              ThrowsMessage<Error>(HasSubstr("groups need at least 2 pipelines, got 1")));
  EXPECT_THAT(
      [&] {
        simulate_groups(plan_of({4, 4, 20}, false), timed_devices(), {}, partial_reduce());
      },
      ThrowsMessage<Error>(HasSubstr("'pipedream' averages 0 times in 20 micro-batches")));
  SimulateOptions two_slots;
  two_slots.send_slots = 2;
  EXPECT_THAT(
      [&] {
        simulate_groups(plan_of({4, 4, 20}, true), timed_devices(), two_slots, partial_reduce());
      },
      ThrowsMessage<Error>(HasSubstr("unbounded send slots, got 2")));
  SimulateOptions nobody_slow;
  nobody_slow.slow.push_back({.pipeline = 4, .factor = 2});
  EXPECT_THAT(
      [&] {
        simulate_groups(plan_of({4, 4, 20}, true), timed_devices(), nobody_slow, partial_reduce());
      },
      ThrowsMessage<Error>(HasSubstr("there is no pipeline 4; the job has pipelines 0…3")));
}

}  // namespace
}  // namespace hetu
