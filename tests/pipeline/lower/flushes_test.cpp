// Tests plans whose servers update each step (sync method ps). Steps have their flushes, one push
// and one pull each. Also tests the staleness of the weights that a forward uses.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"
#include "pipeline/verify/verify.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Row = std::vector<Instr>;

Lowering at_servers(int pipelines = 2, int staleness = 0) {
  Lowering how;
  how.pipelines = pipelines;
  how.sharing = ParameterServers{staleness};
  return how;
}

struct Case {
  const char* method;
  int stages, micros, steps;
};

Schedule one_step(const Case& c) {
  return generate(c.method, {.stages = c.stages, .micro_batches = c.micros});
}

Schedule steps_of(const Case& c) { return with_flushes(one_step(c), c.steps); }

void for_all(const std::function<void(const Case& c, const std::string& at)>& check) {
  for (const char* method : {"dp", "gpipe", "1f1b", "zb-h1"}) {
    for (const int p : {1, 2, 3, 5}) {
      for (const int m : {1, 2, 5, 8}) {
        const Method& known = *find_method(method);
        if (!is_legal(known, {.stages = p, .micro_batches = m})) continue;
        for (const int k : {1, 2, 3, 7})
          check({method, p, m, k}, fmt::format("{}, P = {}, M = {}, {} steps", method, p, m, k));
      }
    }
  }
}

std::string text(const Row& row) {
  std::string out;
  for (const Instr& i : row) out.append(out.empty() ? "" : " ").append(to_string(i));
  return out;
}

TEST(Flushes, AStepPushesItsGradientAndTheNextBeginsWithAPull) {
  const Schedule s = lower(steps_of({"1f1b", 2, 2, 2}), at_servers());
  EXPECT_EQ(text(unroll(s.workers[0])),
            "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0UPDATE 0PUSH 0PULL 0F2 0SEND_F2 "
            "0F3 0SEND_F3 0RECV_B2 0B2 0RECV_B3 0B3 0UPDATE 0PUSH 0PULL");
  EXPECT_EQ(text(unroll(s.workers[1])),
            "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1UPDATE 1PUSH 1PULL 1RECV_F2 1F2 "
            "1B2 1SEND_B2 1RECV_F3 1F3 1B3 1SEND_B3 1UPDATE 1PUSH 1PULL");
}

// Each step must be the method's own step, with increased ids.
TEST(Flushes, StepsAreTheMethodsOwn) {
  for_all([](const Case& c, const std::string& at) {
    const Schedule one = one_step(c), s = steps_of(c);
    for (std::size_t w = 0; w < s.workers.size(); ++w) {
      const Row step = unroll(one.workers[w]);
      Row wanted;
      for (int k = 0; k < c.steps; ++k) {
        for (Instr i : step) {
          i.micro += k * c.micros;
          wanted.push_back(i);
        }
        wanted.push_back({.kind = Kind::Update, .stage = static_cast<int>(w)});
      }
      EXPECT_EQ(unroll(s.workers[w]), wanted) << at;
    }
    EXPECT_TRUE(is_asynchronous(s)) << at;
    if (c.steps > 1) {
      EXPECT_EQ(run_grain(s), 1) << at;
      EXPECT_EQ(with_steps(s, c.steps + 3), with_flushes(one, c.steps + 3)) << at;
    }
  });
}

TEST(Flushes, EveryPlanIsProvedAndReadBack) {
  for_all([](const Case& c, const std::string& at) {
    for (const int d : {0, 1, 4, kAnyStaleness}) {
      const Schedule s = lower(steps_of(c), at_servers(3, d));
      EXPECT_TRUE(updates_at_servers(s)) << at;
      VerifyReport report;
      ASSERT_NO_THROW(report = verify(s, {.send_slots = c.micros})) << at;
      // None of the pipeline's own updates is missing. Updates of other pipelines may be missing
      // within the bound, as far as there are steps.
      EXPECT_EQ(report.local_staleness, 0) << at;
      const int most = d == kAnyStaleness ? c.steps : d;
      EXPECT_EQ(report.global_staleness, std::min(most, c.steps - 1)) << at << ", D = " << d;
      for (const StageNeeds& needs : report.stages) {
        EXPECT_EQ(needs.weight_versions, 1) << at;
        EXPECT_EQ(needs.updates, c.steps) << at;
      }
      if (c.steps > 2) {
        EXPECT_EQ(s.workers[0].repeat, c.steps - 1) << at;
      }
      EXPECT_EQ(parse_plan(to_json(s), "plan.json"), s) << at;
      const PlanFacts facts{
          .micro_batches = c.micros, .steps = c.steps, .pipelines = 3, .staleness = d};
      const Schedule csv = parse_plan(to_csv(s), "plan.csv", facts);
      EXPECT_TRUE(updates_at_servers(csv)) << at;
      EXPECT_EQ(verify(csv).global_staleness, report.global_staleness) << at;
    }
  });
}

// With pipelines of equal speed and servers without cost, a step takes as long as a single
// pipeline's. The servers' cost is added to each step, and their update counts once per pipeline.
TEST(Flushes, AreSimulatedAtTheirServers) {
  for_all([](const Case& c, const std::string& at) {
    Costs costs;
    costs.stages[0].update = 0.5;
    costs.allreduce = 0;
    Lowering alone;
    const double step = simulate(lower(one_step(c), alone), costs).step_time - 0.5;
    for (const int pipelines : {1, 3}) {
      const Schedule s = lower(steps_of(c), at_servers(pipelines));
      Costs free = costs;
      free.stages[0].update = 0;
      EXPECT_NEAR(simulate(s, free).step_time, step * c.steps, 1e-9) << at;
      if (c.stages > 1) continue;  // servers process the stages of a pipeline one after the other
      free.link.latency = 0.25;
      EXPECT_NEAR(simulate(s, free).step_time, (step + 0.5) * c.steps, 1e-9) << at;
      EXPECT_NEAR(simulate(s, costs).step_time, (step + 0.5 * pipelines) * c.steps, 1e-9) << at;
      SimulateOptions four;
      four.servers = 4;
      EXPECT_NEAR(simulate(s, costs, four).step_time, (step + 0.125 * pipelines) * c.steps, 1e-9)
          << at;
    }
  });
}

TEST(Flushes, APipelineMayLeadByTheStaleness) {
  const Case c{"gpipe", 2, 4, 40};
  const double step = simulate(lower(one_step(c)), Costs{}).step_time;
  SimulateOptions slow;
  slow.events = true;
  slow.slow = {{.pipeline = 0, .factor = 2}};
  for (const int d : {0, 1, 4, kAnyStaleness}) {
    const Simulation s = simulate(lower(steps_of(c), at_servers(2, d)), Costs{}, slow);
    // The slow pipeline makes its steps in twice the time, whoever waits for it.
    EXPECT_NEAR(s.step_time, 2 * step * c.steps, 1e-9) << d;
    double end = 0;  // end of the fast pipeline's last forward
    for (const TraceEvent& e : s.events)
      if (e.kind == "F" && e.worker >= 2) end = std::max(end, (e.start_us + e.duration_us) / 1000);
    const int waits = d == kAnyStaleness ? 0 : std::max(0, c.steps - 1 - d);
    EXPECT_LT(end, (waits > 0 ? 2 * step * waits + step : step * c.steps)) << d;
    EXPECT_GT(end, (waits > 0 ? 2 * step * waits : step * (c.steps - 1))) << d;
  }
}

TEST(Flushes, WhatHasNoneIsRefused) {
  const auto sized = [](const char* method) {
    return generate(method, {.stages = 4, .micro_batches = 8, .steps = 2});
  };
  EXPECT_THAT([&] { with_flushes(sized("hetpipe"), 2); },
              ThrowsMessage<Error>(HasSubstr("pushes waves of updates to servers")));
  EXPECT_THAT([&] { with_flushes(generate("chimera", {.stages = 4, .micro_batches = 8}), 2); },
              ThrowsMessage<Error>(HasSubstr("several stages on a worker")));
  EXPECT_THAT(
      [&] {
        with_flushes(lower(one_step({"gpipe", 2, 2, 1})), 2);
      },
      ThrowsMessage<Error>(HasSubstr("is lowered already")));
  EXPECT_THAT([&] { lower(sized("pipedream"), at_servers()); },
              ThrowsMessage<Error>(HasSubstr("nor a flush after each step")));
  Sizes replicated{.stages = 2, .micro_batches = 4};
  replicated.replicas = {1, 2};
  EXPECT_THAT([&] { lower(with_flushes(generate("gpipe", replicated), 2), at_servers()); },
              ThrowsMessage<Error>(HasSubstr("several copies of a stage")));
  EXPECT_THAT(
      [&] {
        lower(steps_of({"gpipe", 2, 2, 2}), at_servers(2, -2));
      },
      ThrowsMessage<Error>(HasSubstr("staleness must be at least 0")));
  // The micro-batches of a step form one gradient, which must be complete before it is pushed.
  Schedule early = lower(steps_of({"gpipe", 1, 3, 2}), at_servers());
  Row row = unroll(early.workers[0]);
  const auto update = std::find(row.begin(), row.end(), parse_instr("0UPDATE"));
  std::rotate(update - 1, update, update + 1);
  early.workers[0] = {row, {}, 0, 0, {}};
  EXPECT_THAT([&] { verify(early); },
              ThrowsMessage<Error>(HasSubstr("its step requires one per 3")));
}

}  // namespace
}  // namespace hetu
