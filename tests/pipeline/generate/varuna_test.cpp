// Tests Varuna's order against its golden ticks and invariants, and tests its run-time rule.
#include <gmock/gmock.h>

#include "base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/lower/lower.h"
#include "pipeline/lower/run_order.h"
#include "pipeline/simulate/simulate.h"
#include "pipeline/verify/verify.h"

namespace hetu {
namespace {

using testing::HasSubstr;

// Returns costs with F = R = 1, B = 2.
Costs times(double latency) {
  Costs c;
  c.stages = {{.forward = 1, .input_grad = 1, .weight_grad = 1, .recompute = 1}};
  c.link.latency = latency;
  return c;
}

std::string row_text(const Schedule& s, int worker) {
  std::string text;
  for (const Instr& i : unroll(s.workers[worker]))
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", kind_name(i.kind), i.micro);
  return text;
}

Schedule varuna(int stages, int micros) {
  return generate("varuna", {.stages = stages, .micro_batches = micros});
}

Schedule with_rule(int stages, int micros, const Costs& costs, const Stragglers* run = nullptr) {
  return generate("varuna", {.stages = stages,
                             .micro_batches = micros,
                             .runtime_rule = true,
                             .costs = &costs,
                             .run = run});
}

TEST(Varuna, GoldenOrderOfFourByFive) {
  const Schedule s = varuna(4, 5);
  const char* early = "F0 F1 F2 F3 F4 R0 B0 R1 B1 R2 B2 R3 B3 R4 B4";
  EXPECT_EQ(row_text(s, 0), early);
  EXPECT_EQ(row_text(s, 1), early);
  EXPECT_EQ(row_text(s, 2), "F0 F1 F2 R0 B0 R1 B1 R2 B2 F3 F4 R3 B3 R4 B4");
  EXPECT_EQ(row_text(s, 3), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
}

// The order's own clock, tick by tick. Micro-batches count from 1; "b" and "B" are the halves of a
// backward.
TEST(Varuna, GoldenTicksOfFourByFive) {
  const std::string known =
      "1f,.,.,. 2f,1f,.,. 3f,2f,1f,. 4f,3f,2f,1f 5f,4f,3f,1b .,5f,1r,1B .,.,1b,2f .,1r,1B,2b "
      ".,1b,2r,2B 1r,1B,2b,3f 1b,2r,2B,3b 1B,2b,3r,3B 2r,2B,3b,. 2b,3r,3B,. 2B,3b,4f,. 3r,3B,5f,4f "
      "3b,.,.,4b 3B,.,4r,4B .,.,4b,5f .,4r,4B,5b .,4b,5r,5B 4r,4B,5b,. 4b,5r,5B,. 4B,5b,.,. "
      "5r,5B,.,. 5b,.,.,. 5B,.,.,.";
  const Simulation run = simulate(varuna(4, 5), times(0), {.events = true});
  EXPECT_DOUBLE_EQ(run.makespan, 27);
  EXPECT_DOUBLE_EQ(run.workers[0].busy, 20);
  std::vector<std::vector<std::string>> grid(27, std::vector<std::string>(4, "."));
  for (const TraceEvent& e : run.events) {
    const int at = static_cast<int>(std::lround(e.start_us / 1000));
    const std::string micro = std::to_string(e.micro + 1);
    const bool backward = e.kind == "B";
    grid[at][e.worker] = micro + (e.kind == "F" ? "f" : backward ? "b" : "r");
    if (backward) grid[at + 1][e.worker] = micro + "B";
  }
  // A recompute may start as soon as its worker is free. The ticks delay it until the gradient is
  // underway. The orders and everything else agree.
  std::string ticks;
  for (const auto& tick : grid) {
    ticks += ticks.empty() ? "" : " ";
    for (int w = 0; w < 4; ++w) ticks += (w > 0 ? "," : "") + tick[w];
  }
  const auto without_recomputes = [](std::string text) {
    for (std::size_t at = text.find('r'); at != std::string::npos; at = text.find('r'))
      text.replace(at - 1, 2, ".");
    return text;
  };
  EXPECT_EQ(without_recomputes(ticks), without_recomputes(known));
}

TEST(Varuna, InvariantsForAllSizes) {
  for (int p = 1; p <= 9; ++p) {
    for (int n = 1; n <= 30; ++n) {
      const Schedule s = varuna(p, n);
      ASSERT_NO_THROW(verify(s)) << p << " " << n;
      ASSERT_NO_THROW(verify(lower(s, {.pipelines = 2, .reduce_scalars = true})));
      const VerifyReport report = verify(s);
      for (int w = 0; w < p; ++w) {
        const std::vector<Instr> row = unroll(s.workers[w]);
        int backwards = 0, recomputes = 0, forwards = 0;
        for (std::size_t i = 0; i < row.size(); ++i) {
          if (row[i].kind == Kind::Forward) {
            EXPECT_EQ(row[i].micro, forwards++);
          }
          if (row[i].kind == Kind::Recompute) ++recomputes;
          if (row[i].kind != Kind::Backward) continue;
          EXPECT_EQ(row[i].micro, backwards++);
          if (w + 1 == p) continue;
          EXPECT_EQ(row[i - 1].kind, Kind::Recompute);
          EXPECT_EQ(row[i - 1].micro, row[i].micro);
        }
        EXPECT_EQ(recomputes, w + 1 < p ? n : 0);
        const int most = w + 1 < p ? std::min(n, 3 * (p - 1 - w)) : 1;
        EXPECT_EQ(report.peak_activations[w], most) << p << " " << n << " worker " << w;
      }
    }
  }
}

TEST(Varuna, NeedsThreeSendSlots) {
  const Schedule s = lower(varuna(4, 16));
  EXPECT_NO_THROW(verify(s, {.send_slots = 3}));
  EXPECT_THROW(verify(s, {.send_slots = 2}), Error);
}

TEST(Varuna, MakespansWithAndWithoutTheRule) {
  const double latency[] = {0, 1, 2, 5};
  const std::pair<int, std::vector<int>> fixed[] = {{5, {27, 35, 43, 67}}, {8, {39, 49, 59, 89}}};
  const std::pair<int, std::vector<int>> ruled[] = {{5, {26, 30, 36, 54}}, {8, {39, 45, 46, 63}}};
  for (int i = 0; i < 4; ++i) {
    const Costs c = times(latency[i]);
    for (const auto& [n, known] : fixed)
      EXPECT_DOUBLE_EQ(simulate(varuna(4, n), c).makespan, known[i]) << n << " c " << latency[i];
    for (const auto& [n, known] : ruled) {
      const Schedule s = with_rule(4, n, c);
      ASSERT_NO_THROW(verify(s));
      EXPECT_DOUBLE_EQ(simulate(lower(s), c).makespan, known[i]) << n << " c " << latency[i];
    }
  }
}

TEST(Varuna, AHeldBackGradientMakesAForwardRun) {
  Costs c = times(0);
  c.pairs = {{.from = 2, .to = 1, .latency = 4}};
  EXPECT_THAT(row_text(varuna(3, 8), 1), HasSubstr("F2 R0"));
  EXPECT_THAT(row_text(with_rule(3, 8, c), 1), HasSubstr("F2 F3 F4 F5 F6 F7 R0"));
}

TEST(Varuna, AForwardWithoutItsInputIsNotWaitedFor) {
  Costs c = times(0);
  c.stages.assign(3, c.stages[0]);
  c.stages[0].forward = 10;
  c.pairs = {{.from = 2, .to = 1, .latency = 30}};
  // At 31, neither F3 nor the gradient is there. F3 comes at 40, and the gradient at 44.
  EXPECT_THAT(row_text(with_rule(3, 8, c), 1), HasSubstr("F2 R0"));
  c.stages[0].forward = 1;
  EXPECT_THAT(row_text(with_rule(3, 8, c), 1), HasSubstr("F2 F3"));
}

// With delay and jitter the rule wins. Without them, all are near each other.
TEST(Varuna, TheRuleToleratesDelayAndJitter) {
  const auto recomputed = [](const char* method) {
    return with_recompute(generate(method, {.stages = 4, .micro_batches = 16}));
  };
  const Costs slow = times(3), fast = times(0);
  double fixed = 0, ruled = 0, one = 0, all = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const SimulateOptions run{{.jitter = 0.2, .seed = seed}};
    ruled += simulate(with_rule(4, 16, slow, &run), slow, run).makespan;
    fixed += simulate(varuna(4, 16), slow, run).makespan;
    one += simulate(recomputed("1f1b"), slow, run).makespan;
    all += simulate(recomputed("gpipe"), slow, run).makespan;
  }
  EXPECT_LT(ruled, fixed);
  EXPECT_LT(ruled, one);
  EXPECT_LT(ruled, all);
  const double least = 16 * 4 + 9;  // the work of stage 0, and the path forth and back
  for (const Schedule& s : {varuna(4, 16), with_rule(4, 16, fast), recomputed("1f1b")})
    EXPECT_LT(simulate(s, fast).makespan, 1.15 * least) << s.method;
}

TEST(RunPolicy, IsPartOfThePlan) {
  const Schedule s = with_rule(4, 8, times(2));
  EXPECT_EQ(s.run_policy, RunPolicy::ForwardBeforeLateGradient);
  const Schedule back = parse_plan(to_json(s), "f");
  EXPECT_EQ(back, s);
  Schedule apart = varuna(2, 2);
  EXPECT_EQ(run_order(apart, times(0)), apart);
  apart.run_policy = RunPolicy::ForwardBeforeLateGradient;
  std::vector<Instr>& row = apart.workers[0].prologue;
  row = unroll(apart.workers[0]);
  apart.workers[0] = {row, {}, 0, 0, {}};
  std::swap(apart.workers[0].prologue[1], apart.workers[0].prologue[2]);  // F0 R0 F1 B0
  EXPECT_THROW(run_order(apart, times(0)), Error);
}

// The prediction of a training run uses its lowered rows in the order of the rule.
TEST(RunPolicy, OrdersLoweredPlansToo) {
  Schedule s = varuna(4, 8);
  s.run_policy = RunPolicy::ForwardBeforeLateGradient;
  Lowering how;
  how.reduce_scalars = true;
  how.pipelines = 2;
  for (const double latency : {0.0, 2.0, 20.0}) {
    const Schedule expected = lower(run_order(s, times(latency)), how);
    EXPECT_EQ(run_order(lower(s, how), times(latency)), expected) << latency;
    EXPECT_EQ(expected == run_order(lower(s, how), times(0)), latency == 0);
  }
}

// Whatever order a run takes, a worker may hold all forwards that it can pull ahead.
TEST(RunPolicy, TheProofCountsWhatMayBePulledAhead) {
  const Schedule s = with_rule(3, 12, times(0));
  const VerifyReport report = verify(s);
  EXPECT_EQ(report.stages[0].forward_copies, 12);
  EXPECT_EQ(report.peak_activations[0], 12);
  // there is no recompute before which something could be pulled
  EXPECT_EQ(report.peak_activations[2], 1);
  EXPECT_LT(simulate(s, times(0)).workers[0].peak_activations, 12);
  EXPECT_THROW(verify(s, {.memory_limit = 8}), Error);
}

}  // namespace
}  // namespace hetu
