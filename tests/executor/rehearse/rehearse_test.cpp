// Tests rehearsals with threads. A loaded machine makes a step longer, never shorter, so the
// measured step is always at least as long as the predicted step. tests/bench/rehearsed_cases.py
// measures how close the two are, with the same cases.
#include "executor/rehearse/rehearse.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/lower/lower.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct Case {
  const char* name;
  const char* method;
  int stages, micros, pipelines;
  Costs costs;
  Stragglers stragglers;
  std::size_t payload = 4096;
};

Costs costs_with(void (*change)(Costs&)) {
  Costs costs;
  change(costs);
  return costs;
}

Stragglers straggling(void (*change)(Stragglers&)) {
  Stragglers options;
  change(options);
  return options;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  all.push_back({"Gpipe", "gpipe", 3, 4, 1, {}, {}});
  all.push_back({"OneFOneB", "1f1b", 4, 6, 1, {}, {}});
  all.push_back({"LongMessages", "1f1b", 3, 4, 1, {}, {}, 300000});
  all.push_back({"NoPayload", "1f1b", 3, 4, 1, {}, {}, 0});
  all.push_back(
      {"Latency", "1f1b", 3, 4, 1, costs_with([](Costs& c) { c.link.latency = 0.7; }), {}});
  all.push_back({"SlowWorker",
                 "1f1b",
                 3,
                 4,
                 1,
                 costs_with([](Costs& c) {
                   c.speed = {1, 0.5, 1};
                 }),
                 {}});
  all.push_back({"AllreduceAndUpdate",
                 "1f1b",
                 2,
                 3,
                 2,
                 costs_with([](Costs& c) {
                   c.allreduce = 3;
                   c.stages[0].update = 1;
                 }),
                 {}});
  all.push_back(
      {"Scalars", "1f1b", 2, 3, 2, costs_with([](Costs& c) { c.reduce_scalars = 4; }), {}});
  all.push_back({"Jitter", "gpipe", 3, 4, 2, {}, straggling([](Stragglers& o) {
                   o.jitter = 0.5;
                   o.seed = 7;
                 })});
  all.push_back({"Slowdown", "1f1b", 2, 4, 2, {}, straggling([](Stragglers& o) {
                   o.slow.push_back({.pipeline = 1, .factor = 2});
                   o.hetero = 1.5;
                 })});
  return all;
}

Schedule plan_of(const Case& c) {
  Sizes sizes;
  sizes.stages = c.stages;
  sizes.micro_batches = c.micros;
  Lowering how;
  how.pipelines = c.pipelines;
  how.reduce_scalars = c.costs.reduce_scalars > 0;
  return lower(generate(c.method, sizes), how);
}

Rehearsal rehearse_case(const Case& c, double unit_ms) {
  Pace pace;
  pace.unit_ns = unit_ms * 1e6;
  pace.payload_bytes = c.payload;
  pace.stragglers = c.stragglers;
  comm::Options options;
  options.timeout_s = 30;
  return rehearse_in_threads(plan_of(c), c.costs, pace, 3, options);
}

class Rehearsals : public testing::TestWithParam<Case> {};

TEST_P(Rehearsals, TakeNoLessThanThePredictedTimeAndRunThePlan) {
  const Rehearsal r = rehearse_case(GetParam(), 2);
  EXPECT_GE(r.ratio, 0.9999) << to_text(r);
  EXPECT_GE(r.measured.makespan, r.predicted.makespan * 0.9999);
  EXPECT_EQ(r.step_times.size(), 3U);
  std::map<int, std::string> run;
  for (const TraceEvent& e : r.measured.events)
    run[e.worker] += fmt::format("{} {} {}, ", e.stage, e.kind, e.micro);
  const Schedule plan = plan_of(GetParam());
  const int stages = static_cast<int>(plan.workers.size());
  ASSERT_EQ(static_cast<int>(run.size()), stages * GetParam().pipelines);
  for (const auto& [worker, done] : run) {
    std::string planned;
    for (const Instr& i : unroll(plan.workers[worker % stages]))
      planned += fmt::format("{} {} {}, ", i.stage, kind_name(i.kind), i.micro);
    EXPECT_EQ(done, planned) << "worker " << worker;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Rehearsals, testing::ValuesIn(cases()),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(Rehearsal, RecordsEachInstructionOnceAndDoesNotSpin) {
  Case c{"", "1f1b", 4, 8, 1, {}, {}};
  const std::clock_t before = std::clock();
  const Rehearsal r = rehearse_case(c, 8);
  const double cpu = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  double wall = r.measured.step_time;
  for (const double t : r.step_times) wall += t;  // includes the warm-up
  EXPECT_LT(cpu, 0.05 * wall * 8e-3 * 4) << "4 threads";
  std::size_t instructions = 0;
  const Schedule plan = plan_of(c);
  for (const Program& p : plan.workers) instructions += unroll(p).size();
  EXPECT_EQ(r.measured.events.size(), instructions);
  EXPECT_EQ(to_trace(r).events.size(), instructions + r.predicted.events.size());
}

// A plan with a flush may keep more versions than it needs. Its steps are still counted whole.
TEST(Rehearsal, CountsByWhetherThePlanUpdatesWithinItself) {
  Schedule plan = generate("gpipe", {.stages = 2, .micro_batches = 4});
  plan.most_versions = 2;
  const Rehearsal r =
      rehearse_in_threads(lower(plan, {}), Costs{}, {.unit_ns = 1e6}, 1, comm::Options{});
  EXPECT_DOUBLE_EQ(r.measured.throughput, 4 / r.measured.step_time);
}

TEST(Rehearsal, ReportsMeasuredBesidePredicted) {
  Case c{"", "gpipe", 2, 2, 1, {}, {}};
  const Rehearsal r = rehearse_case(c, 2);
  EXPECT_THAT(to_text(r), HasSubstr("predicted    measured"));
  const auto json = nlohmann::json::parse(to_json(r));
  EXPECT_EQ(json["predicted"]["makespan"], 9);
  EXPECT_EQ(json["measured"]["step_time"], r.measured.step_time);
  EXPECT_EQ(json["ratio"], r.ratio);
  EXPECT_NEAR(json["measured"]["throughput"], 2 / r.measured.step_time, 1e-9);
}

// Pipelines that average in groups, each at its own pace: one rehearsal per method and size.
struct Grouped {
  const char* name;
  groups::Options policy;
  int stages, pipelines;
};

groups::Options policy_with(void (*change)(groups::Options&)) {
  groups::Options options;
  change(options);
  return options;
}

std::vector<Grouped> grouped() {
  using groups::Method;
  return {
      {"PartialReduce", {}, 2, 3},
      {"OneStage", {}, 1, 4},
      {"Pairs", policy_with([](groups::Options& o) { o.max_group = 2; }), 2, 3},
      {"PeriodOne", policy_with([](groups::Options& o) { o.sync_period = 1; }), 2, 2},
      {"Blocking", policy_with([](groups::Options& o) { o.overlapped = false; }), 3, 2},
      {"AdPsgd", policy_with([](groups::Options& o) { o.method = Method::AdPsgd; }), 2, 3},
      {"Lockstep", policy_with([](groups::Options& o) { o.method = Method::AdPsgdLockstep; }), 2,
       4},
  };
}

Costs averaged_costs() {
  return costs_with([](Costs& costs) { costs.allreduce = 0.5; });
}

Rehearsal rehearse_groups(const Grouped& c, int updates, const Costs& costs = averaged_costs()) {
  Sizes sizes;
  sizes.stages = c.stages;
  sizes.micro_batches = 1;
  sizes.steps = updates;
  Lowering how;
  how.pipelines = c.pipelines;
  how.sharing = WeightAverages{};
  Pace pace;
  pace.unit_ns = 1e6;
  pace.stragglers.slow.push_back({.pipeline = 1, .factor = 2});
  comm::Options options;
  options.timeout_s = 30;
  const RehearsedGroups groups{c.policy};
  return rehearse_in_threads(lower(generate("pipedream", sizes), how), costs, pace, 2, options,
                             &groups);
}

class RehearsedPipelines : public testing::TestWithParam<Grouped> {};

TEST_P(RehearsedPipelines, StopTogetherAndKeepTheMean) {
  const Grouped& c = GetParam();
  constexpr int kUpdates = 30;
  const Rehearsal r = rehearse_groups(c, kUpdates);
  ASSERT_EQ(static_cast<int>(r.measured.updates.size()), c.pipelines) << to_text(r);
  std::int64_t sum = 0;
  for (const std::int64_t n : r.measured.updates) sum += n;
  EXPECT_GE(sum, c.pipelines * kUpdates);
  EXPECT_LE(sum, c.pipelines * (kUpdates + c.stages + 1));
  const bool free = c.policy.method != groups::Method::AdPsgdLockstep && c.policy.sync_period > 1;
  EXPECT_EQ(r.measured.updates[1] < r.measured.updates[0], free) << "pipeline 1 is the slow one";
  EXPECT_LT(r.measured.mean_drift, 1e-5);
  std::int64_t averages = 0;
  for (const TraceEvent& e : r.measured.events)
    averages += e.kind == kind_name(Kind::PartialReduce) ? 1 : 0;
  EXPECT_EQ(averages, sum * c.stages);
  EXPECT_GT(r.measured.throughput, 0);
  EXPECT_GT(r.predicted.throughput, 0);
  EXPECT_EQ(nlohmann::json::parse(to_json(r))["groups"]["updates"].size(),
            r.measured.updates.size());
}

INSTANTIATE_TEST_SUITE_P(Methods, RehearsedPipelines, testing::ValuesIn(grouped()),
                         [](const auto& each) { return std::string(each.param.name); });

// Each update adds 1 to the weights, and the servers add up the waves. No update may be lost or
// counted twice, whatever the pace of a pipeline.
TEST(RehearsedServers, HaveEveryUpdateOfEveryPipeline) {
  for (const auto& [pipelines, stages, wave, staleness] :
       {std::tuple{1, 2, 2, 0}, {2, 2, 3, 0}, {3, 1, 1, 2}, {2, 3, 4, 1}}) {
    SCOPED_TRACE(fmt::format("{} x {}, waves of {}, D = {}", pipelines, stages, wave, staleness));
    constexpr int kSteps = 8;
    Sizes sizes;
    sizes.stages = stages;
    sizes.micro_batches = wave;
    sizes.steps = kSteps;
    Lowering how;
    how.pipelines = pipelines;
    how.sharing = ParameterServers{staleness};
    Pace pace;
    pace.unit_ns = 1e6;
    pace.servers = 2;
    if (pipelines > 1) pace.stragglers.slow.push_back({.pipeline = 1, .factor = 2});
    comm::Options options;
    options.timeout_s = 30;
    const Rehearsal r = rehearse_in_threads(lower(generate("hetpipe", sizes), how),
                                            averaged_costs(), pace, 2, options);
    EXPECT_EQ(r.measured.updates, std::vector<std::int64_t>(pipelines, kSteps * wave));
    EXPECT_EQ(r.measured.mean_drift, 0);
    std::map<std::string, int> kinds;
    for (const TraceEvent& e : r.measured.events) ++kinds[e.kind];
    EXPECT_EQ(kinds["PUSH"], pipelines * stages * kSteps);
    EXPECT_EQ(kinds["PULL"], pipelines * stages * kSteps);
    EXPECT_GT(r.measured.throughput, 0);
    EXPECT_TRUE(nlohmann::json::parse(to_json(r)).contains("servers"));
  }
}

// The same holds for segments, if each pipeline has its own cut.
TEST(RehearsedServers, HaveEveryUpdateOfPipelinesThatAreNotCutAlike) {
  constexpr int kSteps = 6, kWave = 3;
  Lowering how;
  how.pipelines = 2;
  how.sharing = ParameterServers{1};
  Costs costs;
  costs.per_worker = false;
  costs.blocks.assign(6, {{.forward = 0.2, .input_grad = 0.2, .weight_grad = 0.2}, 1});
  costs.speed = {1, 1, 1, 0.5};
  costs = recut(costs, {}, {2, 2, costs.speed, true});
  ASSERT_EQ(costs.cuts, (std::vector<std::vector<int>>{{0, 3}, {0, 4}}));
  Pace pace;
  pace.unit_ns = 1e6;
  comm::Options options;
  options.timeout_s = 30;
  const Schedule plan =
      lower(generate("hetpipe", {.stages = 2, .micro_batches = kWave, .steps = kSteps}), how);
  const Rehearsal r = rehearse_in_threads(plan, costs, pace, 2, options);
  EXPECT_EQ(r.measured.updates, std::vector<std::int64_t>(2, kSteps * kWave));
  EXPECT_EQ(r.measured.mean_drift, 0);
  EXPECT_GT(r.measured.throughput, 0);
}

TEST(RehearsedGroups, WeightsByStalenessMoveTheMeanToThoseAhead) {
  const auto staleness = policy_with([](groups::Options& o) {
    o.weights = groups::Weights::Staleness;
    o.stale_share = 0.5;
  });
  EXPECT_GT(rehearse_groups({"", staleness, 2, 3}, 40).measured.mean_drift, 1e-3);
}

// Costs from a trace hold the time of each stage's sum, but no time for all stages together.
TEST(RehearsedGroups, AveragesTakeAsLongAsTheStagesOwnSums) {
  constexpr int kUpdates = 10;
  Costs costs;
  costs.stages[0].reduce_grad = 20;
  groups::Options policy;
  policy.sync_period = 1;
  policy.overlapped = false;
  const Rehearsal r = rehearse_groups({"", policy, 2, 2}, kUpdates, costs);
  EXPECT_GE(r.predicted.step_time, 20 * kUpdates);
  EXPECT_GE(r.measured.step_time, 20 * kUpdates);
}

TEST(RehearsedGroups, RefuseAPlanThatIsTooShort) {
  EXPECT_THAT(
      [] {
        rehearse_groups({"", {}, 3, 2}, 7);
      },
      ThrowsMessage<Error>(HasSubstr("at least 8 micro-batches with this plan of 'pipedream', but "
                                     "it has 7; give more --steps")));
}

TEST(RehearsedGroups, RefuseAPlanThatDoesNotUpdateAfterEveryBackward) {
  Sizes sizes;
  sizes.stages = 2;
  sizes.micro_batches = 8;
  EXPECT_THAT([&] { by_updates(lower(generate("gpipe", sizes), {})); },
              ThrowsMessage<Error>(HasSubstr("'gpipe' does not; use pipedream")));
}

TEST(Rehearsal, RefusesWhatDoesNotFit) {
  Case c{"", "gpipe", 2, 2, 1, {}, {}};
  const Schedule plan = plan_of(c);
  EXPECT_THAT([&] { rehearse_in_threads(plan, c.costs, {}, 0, {}); },
              ThrowsMessage<Error>(HasSubstr("repeat must be at least 1")));
}

}  // namespace
}  // namespace hetu
