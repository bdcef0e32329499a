// Tests the comparison of runs with their plans. The simulator makes both: the plan with its costs
// is the prediction, and the same plan with other costs is the measurement. Receives are added as
// an interpreter records them.
#include "pipeline/compare/compare.h"

#include <gmock/gmock.h>

#include <cmath>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Schedule lowered_plan(const std::string& method, int stages, int micros, int pipelines = 1,
                      int steps = 1) {
  Sizes sizes;
  sizes.stages = stages;
  sizes.micro_batches = micros;
  sizes.steps = steps;
  Lowering how;
  how.pipelines = pipelines;
  how.reduce_scalars = steps == 1;
  return lower(generate(method, sizes), how);
}

// Returns a plan of two pipelines that share weights over servers, in waves or in steps with a
// flush.
Schedule plan_over_servers(const std::string& method, int staleness) {
  Lowering how;
  how.pipelines = 2;
  how.sharing = ParameterServers{staleness};
  constexpr int kSteps = 5;
  Sizes sizes{.stages = 2, .micro_batches = 4};
  if (std::string(method) == "hetpipe") {
    sizes.steps = kSteps;
    return lower(generate(method, sizes), how);
  }
  return lower(with_flushes(generate(method, sizes), kSteps), how);
}

// Returns costs in which a transfer takes `served`, plus the latency.
Costs with_servers(double served) {
  Costs costs;
  costs.stages[0].weight_bytes = served;
  costs.link.bandwidth = 1;
  costs.link.latency = 0.1;
  return costs;
}

std::vector<TraceEvent> simulated(const Schedule& plan, const Costs& costs,
                                  SimulateOptions options = {}) {
  options.events = true;
  return simulate(plan, costs, options).events;
}

// Converts events to those that a run records. A message or a push leaves at once. A receive lasts
// from the time when the worker is free until its message arrives.
std::vector<TraceEvent> as_measured(std::vector<TraceEvent> events, const Schedule& plan) {
  const PlanIndex index(plan);
  std::map<std::tuple<int, int, int, int, std::string>, double> arrivals;
  std::map<std::pair<int, int>, std::deque<double>> pulled;  // by row and stage, in order
  const auto pipeline = [&](const TraceEvent& e) { return e.worker / index.workers(); };
  for (TraceEvent& e : events) {
    e.source = TraceSource::Measured;
    if (e.kind == "PULL") pulled[{e.worker, e.stage}].push_back(e.start_us + e.duration_us);
    if (e.kind == "PUSH") e.duration_us = 0;
    if (e.kind != "SEND_F" && e.kind != "SEND_B") continue;
    arrivals[{pipeline(e), e.stage, e.micro, e.part, e.kind}] = e.start_us + e.duration_us;
    e.duration_us = 0;
  }
  // ends of computations, by row, kind, stage and micro-batch
  std::map<std::tuple<int, std::string, int, int>, double> ends;
  for (const TraceEvent& e : events)
    ends[{e.worker, e.kind, e.stage, e.micro}] = e.start_us + e.duration_us;
  const std::vector<TraceEvent> made = events;
  for (int d = 0; d < plan.lowering.pipelines; ++d) {
    for (int w = 0; w < index.workers(); ++w) {
      const int row = d * index.workers() + w;
      double free = 0;
      for (int p = index.row_begin(w); p < index.row_end(w); ++p) {
        const Instr& i = index.at(p);
        const auto end = ends.find({row, kind_name(i.kind), i.stage, i.micro});
        if (is_compute(i.kind) && end != ends.end()) free = std::max(free, end->second);
        if (i.kind == Kind::Pull) {
          std::deque<double>& next = pulled.at({row, i.stage});
          free = std::max(free, next.front());
          next.pop_front();
        }
        if (!is_recv(i.kind)) continue;
        const bool forward = i.kind == Kind::RecvForward;
        const double there =
            arrivals.at({d, index.graph().peer(i), i.micro, i.part, forward ? "SEND_F" : "SEND_B"});
        const int step = i.micro / plan.micro_batches;
        events.push_back({TraceSource::Measured, row, kind_name(i.kind), i.stage, i.micro, i.part,
                          step, free, std::max(0.0, there - free)});
        free = std::max(free, there);
      }
    }
  }
  return events;
}

Trace predicted_and_measured(const Schedule& plan, const Costs& planned, const Costs& real,
                             const SimulateOptions& straggling = {}) {
  Trace trace;
  trace.events = simulated(plan, planned);
  const auto measured = as_measured(simulated(plan, real, straggling), plan);
  trace.events.insert(trace.events.end(), measured.begin(), measured.end());
  return trace;
}

Costs with_latency(double latency) {
  Costs costs;
  costs.link.latency = latency;
  costs.allreduce = 1;
  costs.stages[0].update = 0.5;
  return costs;
}

double sum_of(const Late& late) {
  double sum = 0;
  for (const Loss& loss : late.losses) sum += loss.us;
  return sum;
}

const std::vector<const char*> kMethods = {
    "gpipe",    "1f1b", "interleaved-1f1b", "chimera",  "hanayo", "zb-h1", "zb-v",
    "dualpipe", "gems", "varuna",           "dualpipev"};

TEST(Compare, FindsNothingInARunThatKeptToItsPlan) {
  for (const char* method : kMethods) {
    for (const int pipelines : {1, 2}) {
      const Schedule plan = lowered_plan(method, 4, 8, pipelines);
      const Comparison c =
          compare(predicted_and_measured(plan, with_latency(0.3), with_latency(0.3)), plan);
      EXPECT_EQ(c.first_behind.worker, -1) << method << "\n" << to_text(c);
      EXPECT_NEAR(c.last.late_us, 0, 1e-6) << method;
      EXPECT_EQ(c.unplanned, 0) << method;
      for (const ComparedKind& k : c.kinds)
        EXPECT_NEAR(k.time.measured, k.time.predicted, 1e-6) << method << " " << k.kind;
      for (const ComparedWorker& w : c.workers) {
        EXPECT_NEAR(w.busy.measured, w.busy.predicted, 1e-6) << method;
        EXPECT_NEAR(w.end.measured, w.end.predicted, 1e-6) << method;
      }
      for (const ComparedEdge& e : c.edges)
        EXPECT_NEAR(e.waiting.measured, e.waiting.predicted, 1e-6) << method;
    }
  }
}

TEST(Compare, LossesAddUpToTheDelay) {
  for (const char* method : kMethods) {
    for (const int pipelines : {1, 2}) {
      const Schedule plan = lowered_plan(method, 4, 8, pipelines);
      SimulateOptions straggling;
      straggling.jitter = 0.4;
      straggling.hetero = 0.8;
      for (straggling.seed = 1; straggling.seed <= 5; ++straggling.seed) {
        Costs real = with_latency(0.6);
        real.allreduce = 2.5;
        const Trace trace = predicted_and_measured(plan, with_latency(0.3), real, straggling);
        const Comparison c = compare(trace, plan, {.step = -1, .all = false, .behind = 0.02});
        SCOPED_TRACE(fmt::format("{}, {} pipelines, seed {}\n{}", method, pipelines,
                                 straggling.seed, to_text(c)));
        EXPECT_NEAR(sum_of(c.last), c.last.late_us, 1e-6);
        EXPECT_NEAR(c.last.late_us, c.runs[0].step.measured - c.runs[0].step.predicted, 1e-6);
        ASSERT_GE(c.first_behind.worker, 0);
        EXPECT_NEAR(sum_of(c.first_behind), c.first_behind.late_us, 1e-6);
        EXPECT_GT(c.first_behind.late_us, c.tolerance_us);
        EXPECT_LE(c.first_behind.measured.end_us, c.last.measured.end_us);
        for (const Loss& loss : c.last.losses) {  // idle times that are too short to be measured
          if (loss.cause == LossCause::Idle) {
            EXPECT_NEAR(loss.us, 0, 100);
          }
        }
      }
    }
  }
}

TEST(Compare, NamesTheSlowWorker) {
  for (const char* method : kMethods) {
    for (int slow = 0; slow < 4; ++slow) {
      const Schedule plan = lowered_plan(method, 4, 8);
      SimulateOptions straggling;
      straggling.slow.push_back({.worker = slow, .factor = 1.5});
      const Trace trace =
          predicted_and_measured(plan, with_latency(0.1), with_latency(0.1), straggling);
      const Comparison c = compare(trace, plan);
      SCOPED_TRACE(fmt::format("{}, worker {}\n{}", method, slow, to_text(c)));
      EXPECT_EQ(c.first_behind.worker, slow);
      ASSERT_FALSE(c.first_behind.losses.empty());
      EXPECT_EQ(c.first_behind.losses[0].cause, LossCause::Kernel);
      EXPECT_EQ(c.first_behind.losses[0].worker, slow);
      EXPECT_NEAR(c.workers[slow].busy.measured, 1.5 * c.workers[slow].busy.predicted, 1e-6);
    }
  }
}

TEST(Compare, NamesTheSlowLink) {
  const Schedule plan = lowered_plan("1f1b", 4, 8, 2);
  Costs real = with_latency(0.1);
  real.pairs.push_back({5, 6, 0.9, 0});
  const Comparison c = compare(predicted_and_measured(plan, with_latency(0.1), real), plan);
  SCOPED_TRACE(to_text(c));
  EXPECT_EQ(c.first_behind.worker, 6);
  EXPECT_EQ(c.first_behind.cell, "2F0");
  ASSERT_FALSE(c.first_behind.losses.empty());
  EXPECT_EQ(c.first_behind.losses[0].cause, LossCause::Message);
  EXPECT_EQ(c.first_behind.losses[0].from, 5);
  EXPECT_NEAR(c.first_behind.losses[0].us, 800, 1e-6);
  for (const ComparedEdge& e : c.edges) {
    if (e.awaited == 0) continue;
    EXPECT_NEAR(e.transit.predicted, 100, 1e-6);
    EXPECT_NEAR(e.transit.measured, e.from == 5 && e.to == 6 ? 900 : 100, 1e-6);
  }
}

TEST(Compare, NamesTheSlowReduction) {
  const Schedule plan = lowered_plan("gpipe", 3, 4, 2);
  Costs real = with_latency(0.1);
  real.allreduce = 3;
  const Comparison c = compare(predicted_and_measured(plan, with_latency(0.1), real), plan);
  SCOPED_TRACE(to_text(c));
  ASSERT_FALSE(c.first_behind.losses.empty());
  EXPECT_EQ(c.first_behind.losses[0].cause, LossCause::Collective);
  EXPECT_EQ(c.first_behind.losses[0].kind, "REDUCE_GRAD");
  EXPECT_NEAR(c.first_behind.losses[0].us, 2000, 1e-6);
}

const std::vector<std::pair<const char*, int>> kOverServers = {
    {"hetpipe", 0}, {"hetpipe", 1}, {"1f1b", 0}, {"gpipe", 2}};

TEST(Compare, FindsNothingInARunOverServersThatKeptToItsPlan) {
  for (const auto& [method, staleness] : kOverServers) {
    const Schedule plan = plan_over_servers(method, staleness);
    const Comparison c =
        compare(predicted_and_measured(plan, with_servers(0.5), with_servers(0.5)), plan);
    SCOPED_TRACE(fmt::format("{}, {}\n{}", method, staleness, to_text(c)));
    EXPECT_EQ(c.first_behind.worker, -1);
    EXPECT_NEAR(c.last.late_us, 0, 1e-6);
    EXPECT_EQ(c.unplanned, 0);
    bool pulls = false;
    for (const ComparedKind& k : c.kinds) {
      EXPECT_NE(k.kind, "PUSH");
      EXPECT_NEAR(k.time.measured, k.time.predicted, 1e-6) << k.kind;
      pulls = pulls || k.kind == "PULL";
    }
    EXPECT_TRUE(pulls);
    for (const ComparedEdge& e : c.edges)
      EXPECT_NEAR(e.waiting.measured, e.waiting.predicted, 1e-6);
  }
}

TEST(Compare, LossesOverServersAddUpToTheDelay) {
  for (const auto& [method, staleness] : kOverServers) {
    const Schedule plan = plan_over_servers(method, staleness);
    SimulateOptions straggling;
    straggling.jitter = 0.4;
    for (straggling.seed = 1; straggling.seed <= 5; ++straggling.seed) {
      const Comparison c =
          compare(predicted_and_measured(plan, with_servers(0.5), with_servers(2), straggling),
                  plan, {.step = -1, .all = true, .behind = 0.02});
      SCOPED_TRACE(
          fmt::format("{}, {}, seed {}\n{}", method, staleness, straggling.seed, to_text(c)));
      EXPECT_NEAR(sum_of(c.last), c.last.late_us, 1e-6);
      ASSERT_GE(c.first_behind.worker, 0);
      EXPECT_NEAR(sum_of(c.first_behind), c.first_behind.late_us, 1e-6);
    }
  }
}

TEST(Compare, NamesTheWaitForSlowServers) {
  for (const auto& [method, staleness] : kOverServers) {
    const Schedule plan = plan_over_servers(method, staleness);
    const Comparison c = compare(predicted_and_measured(plan, with_servers(0.5), with_servers(20)),
                                 plan, {.step = -1, .all = true, .behind = 0.05});
    SCOPED_TRACE(fmt::format("{}, {}\n{}", method, staleness, to_text(c)));
    ASSERT_FALSE(c.last.losses.empty());
    EXPECT_EQ(c.last.losses[0].cause, LossCause::Wait);
    EXPECT_EQ(c.last.losses[0].kind, "PULL");
    EXPECT_THAT(to_text(c), HasSubstr("PULL of stage"));
  }
}

TEST(Compare, WaitingForOtherMembersIsNoTimeOfASum) {
  const Schedule plan = lowered_plan("chimera", 4, 8);
  Costs costs = with_latency(0.1);
  costs.allreduce = 3;
  Trace trace = predicted_and_measured(plan, costs, costs);
  for (TraceEvent& e : trace.events) {
    if (e.source != TraceSource::Measured || e.kind != "REDUCE_GRAD" || e.worker >= 2) continue;
    e.start_us -= 700;
    e.duration_us += 700;
  }
  const Comparison c = compare(trace, plan);
  SCOPED_TRACE(to_text(c));
  const auto sums = std::find_if(c.kinds.begin(), c.kinds.end(),
                                 [](const ComparedKind& k) { return k.kind == "REDUCE_GRAD"; });
  ASSERT_NE(sums, c.kinds.end());
  EXPECT_NEAR(sums->time.measured, sums->time.predicted, 1e-6);
  EXPECT_NEAR(sums->time.predicted, 3000, 1e-6);
  EXPECT_LT(c.first_behind.worker, 0);
}

TEST(Compare, TakesSeveralStepsApart) {
  const Schedule plan = lowered_plan("1f1b", 3, 4);
  const std::vector<TraceEvent> planned = simulated(plan, {});
  Trace trace;
  for (int step = 10; step < 14; ++step) {
    SimulateOptions slower;  // step 10 is the slowest, then 11, 12, 13
    slower.slow.push_back({.worker = 1, .factor = 1 + 0.2 * (14 - step)});
    auto measured = as_measured(simulated(plan, {}, slower), plan);
    measured.insert(measured.end(), planned.begin(), planned.end());
    for (TraceEvent& e : measured) {
      e.step += step;
      e.start_us += step * 1e5 + (e.source == TraceSource::Measured ? 777 : 0);
      trace.events.push_back(e);
    }
  }
  const Comparison c = compare(trace, plan);
  EXPECT_EQ(c.warm_up, 1);
  ASSERT_EQ(c.runs.size(), 3U);
  EXPECT_EQ(c.step, 12);
  EXPECT_EQ(c.first_behind.worker, 1);
  EXPECT_EQ(compare(trace, plan, {.all = true}).runs.size(), 4U);
  const Comparison first = compare(trace, plan, {.step = 10});
  EXPECT_EQ(first.step, 10);
  EXPECT_GT(first.last.late_us, c.last.late_us);
  EXPECT_THAT([&] { compare(trace, plan, {.step = 3}); },
              ThrowsMessage<Error>(HasSubstr("step 3 is not in the trace")));
}

TEST(Compare, ReadsARunWithoutFlushes) {
  const Schedule plan = lowered_plan("pipedream", 3, 4, 1, 3);
  SimulateOptions slower;
  slower.slow.push_back({.worker = 2, .factor = 1.2});
  const Comparison c = compare(predicted_and_measured(plan, {}, {}, slower), plan);
  SCOPED_TRACE(to_text(c));
  EXPECT_EQ(c.runs.size(), 1U);
  EXPECT_EQ(c.unplanned, 0);
  EXPECT_EQ(c.first_behind.worker, 2);
  EXPECT_NEAR(sum_of(c.last), c.last.late_us, 1e-6);
}

TEST(Compare, PrintsWhatItFound) {
  const Schedule plan = lowered_plan("1f1b", 2, 4);
  SimulateOptions slower;
  slower.slow.push_back({.worker = 1, .factor = 2});
  const Comparison c = compare(predicted_and_measured(plan, {}, {}, slower), plan);
  const std::string text = to_text(c);
  EXPECT_THAT(text, HasSubstr("F (mean of 8)                        1.000       1.500"));
  EXPECT_THAT(text, HasSubstr("the first instruction more than 0.150 ms behind its plan is 1F0 on "
                              "worker 1: it ended at 3.000 ms, planned at 2.000 ms"));
  EXPECT_THAT(text, HasSubstr("+1.000 ms  kernels: F on worker 1"));
  const auto json = nlohmann::json::parse(to_json(c));
  EXPECT_EQ(json["first_behind"]["worker"], 1);
  EXPECT_EQ(json["first_behind"]["losses"][0]["cause"], "kernel");
  EXPECT_EQ(json["runs"][0]["step_time"]["predicted"], 15);
}

TEST(Compare, RefusesWhatIsNoRunOfAPlan) {
  const Schedule plan = lowered_plan("1f1b", 2, 4);
  Trace planned;
  planned.events = simulated(plan, {});
  EXPECT_THAT([&] { compare(planned, plan); },
              ThrowsMessage<Error>(HasSubstr("no measured events")));
  Trace measured;
  measured.events = as_measured(planned.events, plan);
  EXPECT_THAT([&] { compare(measured, plan); },
              ThrowsMessage<Error>(HasSubstr("no predicted events")));
  Sizes sizes;
  sizes.stages = 2;
  sizes.micro_batches = 4;
  EXPECT_THAT([&] { compare(planned, generate("1f1b", sizes)); },
              ThrowsMessage<Error>(HasSubstr("has no messages")));
  Trace broken = predicted_and_measured(plan, {}, {});
  broken.events[0].duration_us = NAN;
  EXPECT_THAT([&] { compare(broken, plan); }, ThrowsMessage<Error>(HasSubstr("nan")));
}

}  // namespace
}  // namespace hetu
