// K-FAC's work in plans: placed, proved, predicted; and what the verifier refuses of it.
#include "pipeline/fill/curvature.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "graph/base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"
#include "pipeline/verify/verify.h"

namespace hetu {
namespace {

using testing::HasSubstr;

Schedule one_step(const char* method, int stages, int micros, int pipelines = 1) {
  Sizes sizes;
  sizes.stages = stages;
  sizes.micro_batches = micros;
  Lowering how;
  how.pipelines = pipelines;
  how.reduce_scalars = true;
  return lower(generate(method, sizes), how);
}

// Times of BERT-base on a P100, 32 samples (config/costs): a block is a stage.
Costs published() {
  StageCost c;
  c.forward = 9.75;
  c.input_grad = c.weight_grad = 16.45 / 2;
  c.curvature = {.factors = 25.55, .inversion = 71.67, .precondition = 6.81};
  Costs costs;
  costs.per_worker = false;
  costs.stages = {c};
  return costs;
}

CurvatureOptions how_of(const Schedule& step, FillRule rule, int layers = 6, int every = 1) {
  CurvatureOptions how;
  how.layers.assign(model_stages(step), layers);
  how.every = every;
  how.rule = rule;
  return how;
}

struct Case {
  const char* method;
  int stages, micros, pipelines;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* method : {"gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-h2", "zb-v",
                             "chimera", "dp", "hanayo", "gems"}) {
    for (const int stages : {2, 4, 8})
      for (const int pipelines : {1, 2}) {
        const bool one = std::string(method) == "dp";
        if (one && stages > 2) continue;
        all.push_back({method, one ? 1 : stages, one ? 4 : stages, pipelines});
      }
  }
  return all;
}

class EveryPlan : public testing::TestWithParam<Case> {};

// Each piece of a refresh once, in the order of the rules, in the whole of its cycle.
TEST_P(EveryPlan, IsProvedWithItsWork) {
  const Case c = GetParam();
  const Schedule step = one_step(c.method, c.stages, c.micros, c.pipelines);
  for (const FillRule rule : {FillRule::After, FillRule::Best}) {
    for (const int layers : {1, 6}) {
      for (const int every : {1, 3}) {
        const Schedule cycle = with_curvature(step, how_of(step, rule, layers, every), published());
        SCOPED_TRACE(fmt::format("{} {} {} {} {} {} every {}", c.method, c.stages, c.micros,
                                 c.pipelines, fill_rule_name(rule), layers, every));
        ASSERT_NO_THROW(verify(cycle)) << to_csv(cycle);
        EXPECT_GE(cycle.steps, every);
        std::map<std::string, int> counts;
        any_instr(cycle, [&](const Instr& i) {
          if (is_second_order(i.kind) || is_factor_sync(i.kind)) ++counts[kind_name(i.kind)];
          return false;
        });
        const int placements = static_cast<int>(step.placements.size());
        for (const char* kind : {"CURVATURE_A", "CURVATURE_B"})
          EXPECT_EQ(counts[kind], layers * model_stages(step) * c.micros) << kind;
        for (const char* kind : {"INVERT_A", "INVERT_B"})
          EXPECT_EQ(counts[kind], layers * placements);
        const bool copies = placements > model_stages(step) || c.pipelines > 1;
        for (const char* kind : {"SYNC_A", "SYNC_B"})
          EXPECT_EQ(counts[kind], copies ? layers * placements : 0) << kind;
        EXPECT_EQ(counts["PRECONDITION"], placements * cycle.steps);
        // Its steps are what it is made of: they come together again.
        std::size_t length = 0;
        for (const Schedule& s : steps_of(cycle))
          for (const Program& p : s.workers) length += unroll(p).size();
        std::size_t whole = 0;
        for (const Program& p : cycle.workers) whole += unroll(p).size();
        EXPECT_EQ(length, whole);
      }
    }
  }
}

// A filled step takes no longer than one that multiplies its gradients and does nothing else, where
// every piece fits a gap.
TEST_P(EveryPlan, HidesWhatFits) {
  const Case c = GetParam();
  if (c.pipelines > 1) return;  // the same rows as of one
  const Schedule step = one_step(c.method, c.stages, c.micros);
  Costs costs = published();
  const auto per_step = [&](const Schedule& cycle) {
    return simulate(cycle, costs).step_time / cycle.steps;
  };
  CurvatureOptions plain = how_of(step, FillRule::After, 6, 1 << 10);
  costs.stages[0].curvature.factors = costs.stages[0].curvature.inversion = 0;
  const double bound = per_step(with_curvature(step, plain, costs));
  costs = published();
  const Schedule filled = with_curvature(step, how_of(step, FillRule::Best), costs);
  const double after =
      per_step(with_curvature(step, how_of(step, FillRule::After, 6, filled.steps), costs));
  EXPECT_LE(per_step(filled), after * (1 + 1e-9));
  // With a bubble that holds pieces of 25.55 / 12 and inversions of 71.67 / 12.
  const Simulation alone = simulate(step, costs);
  if (alone.bubble_fraction * alone.makespan > 30 && c.stages > 1)
    EXPECT_LE(per_step(filled), bound * 1.005) << c.method << " " << c.stages;
}

INSTANTIATE_TEST_SUITE_P(Methods, EveryPlan, testing::ValuesIn(cases()), [](const auto& param) {
  std::string name =
      fmt::format("{}_{}_{}", param.param.method, param.param.stages, param.param.pipelines);
  std::replace_if(
      name.begin(), name.end(), [](char ch) { return ch == '-'; }, '_');
  return name;
});

// Source: Osawa et al. 2023, section 4 and its cost model: plain K-FAC adds N curvature + inversion
// + preconditioning to a step, a filled one preconditioning.
TEST(CurvatureCosts, AreThoseOfThePublishedModel) {
  const Costs costs = published();
  const Schedule step = one_step("gpipe", 4, 4);
  const double pipe = simulate(step, costs).step_time;
  EXPECT_NEAR(pipe, 7 * (9.75 + 16.45), 1e-9);
  const Schedule plain = with_curvature(step, how_of(step, FillRule::After), costs);
  // Worker 0 ends last, and so its work comes on top.
  EXPECT_NEAR(simulate(plain, costs).step_time, pipe + 4 * 25.55 + 71.67 + 6.81, 1e-6);
  const Schedule filled = with_curvature(step, how_of(step, FillRule::Best), costs);
  EXPECT_EQ(filled.steps, 3);  // (71.67 + 4 x 25.55) / (183.4 - 4 x 26.2) = 2.21 steps of bubbles
  EXPECT_NEAR(simulate(filled, costs).step_time / 3, pipe + 6.81, 1e-6);
}

TEST(CurvatureFiles, KeepThePlan) {
  for (const char* method : {"1f1b", "chimera"}) {
    const Schedule step = one_step(method, 4, 4);
    const Schedule cycle = with_curvature(step, how_of(step, FillRule::Best, 2), published());
    EXPECT_EQ(parse_plan(to_json(cycle), "plan.json"), cycle);
    PlanFacts facts;
    facts.steps = cycle.steps;
    if (std::string(method) == "chimera") facts.replicas = 2;
    const Schedule read = parse_plan(to_csv(cycle), "plan.csv", facts);
    EXPECT_EQ(to_csv(read), to_csv(cycle));
    EXPECT_EQ(read.lowering.factor_layers, cycle.lowering.factor_layers);
    EXPECT_NO_THROW(verify(read));
  }
}

TEST(CurvatureRefusals, NameWhatDoesNotFit) {
  const auto said = [](const Schedule& s, CurvatureOptions how) -> std::string {
    try {
      with_curvature(s, how, Costs{});
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const Schedule step = one_step("1f1b", 2, 2);
  CurvatureOptions how = how_of(step, FillRule::After);
  EXPECT_EQ(said(step, how), "");
  how.layers = {1};
  EXPECT_THAT(said(step, how), HasSubstr("one number per model stage, 2, wanted; got 1"));
  how.layers = {0, 0};
  EXPECT_THAT(said(step, how), HasSubstr("some on one"));
  how = how_of(step, FillRule::After, 1, 0);
  EXPECT_THAT(said(step, how), HasSubstr("at least 1, got 0"));
  how = how_of(step, FillRule::After);
  how.slack = 0.5;
  EXPECT_THAT(said(step, how), HasSubstr("slack: at least 1, got 0.5"));
  Sizes sizes;
  sizes.stages = sizes.micro_batches = 2;
  sizes.steps = 4;
  const Schedule asynchronous = lower(generate("pipedream", sizes), {});
  EXPECT_THAT(said(asynchronous, how_of(asynchronous, FillRule::After)),
              HasSubstr("'pipedream' has no flush"));
  EXPECT_THAT([] { parse_fill_rule("most"); },
              testing::ThrowsMessage<Error>(HasSubstr("known: after, best")));
}

// Every plan with one instruction of K-FAC's gone, doubled or moved is refused, or is as right.
class Corrupted : public testing::Test {
 protected:
  static std::string refusal(const Schedule& s) {
    try {
      verify(s);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::Plan) << e.what();
      return e.what();
    }
    return "";
  }

  // The plan with its row of that worker changed.
  template <class Change>
  static std::string after(Schedule cycle, std::size_t worker, Change&& change) {
    std::vector<Instr> row = unroll(cycle.workers[worker]);
    change(row);
    cycle.workers[worker] = {{}, {}, 0, 0, row};
    return refusal(cycle);
  }

  static std::vector<Instr>::iterator find(std::vector<Instr>& row, Kind kind, int part = 0) {
    return std::find_if(row.begin(), row.end(),
                        [&](const Instr& i) { return i.kind == kind && i.part == part; });
  }
};

TEST_F(Corrupted, ByADropIsRefused) {
  for (const char* method : {"1f1b", "chimera"}) {
    for (const FillRule rule : {FillRule::After, FillRule::Best}) {
      const Schedule step = one_step(method, 4, 4);
      const Schedule cycle = with_curvature(step, how_of(step, rule, 2), published());
      const std::size_t length = unroll(cycle.workers[1]).size();
      int dropped = 0;
      for (std::size_t at = 0; at < length; ++at) {
        const Instr i = unroll(cycle.workers[1])[at];
        if (!is_second_order(i.kind) && !is_factor_sync(i.kind)) continue;
        ++dropped;
        EXPECT_NE(after(cycle, 1, [&](auto& row) { row.erase(row.begin() + at); }), "")
            << to_string(i);
        EXPECT_NE(after(cycle, 1, [&](auto& row) { row.insert(row.begin() + at, i); }), "")
            << to_string(i) << " doubled";
      }
      EXPECT_GT(dropped, 10);
    }
  }
}

TEST_F(Corrupted, IsNamed) {
  const Schedule step = one_step("1f1b", 2, 2);
  const Schedule cycle = with_curvature(step, how_of(step, FillRule::After, 2), published());
  const auto moved = [&](Kind kind, Kind before) {
    return after(cycle, 0, [&](auto& row) {
      const auto at = find(row, kind);
      const Instr i = *at;
      row.erase(at);
      row.insert(find(row, before), i);
    });
  };
  EXPECT_THAT(moved(Kind::CurvatureA, Kind::Forward), HasSubstr("0CURVATURE_A0 waits for 0F0"));
  EXPECT_THAT(moved(Kind::CurvatureB, Kind::Backward), HasSubstr("0CURVATURE_B0 waits for 0B0"));
  EXPECT_THAT(
      moved(Kind::InvertA, Kind::CurvatureB),
      HasSubstr("0INVERT_A comes before the gradient factor of layer 0 is whole: 0 of a step's"));
  EXPECT_THAT(moved(Kind::Precondition, Kind::InvertB),
              HasSubstr("0PRECONDITION comes between the two inversions of layer 0"));
  EXPECT_THAT(moved(Kind::ReduceScalars, Kind::Precondition),
              HasSubstr("before the scalars are reduced"));
  EXPECT_THAT(moved(Kind::Precondition, Kind::Forward),
              HasSubstr("0UPDATE comes before its gradient is multiplied by inverses"));
  EXPECT_THAT(after(cycle, 0, [&](auto& row) { row.erase(find(row, Kind::CurvatureA)); }),
              HasSubstr("is whole: 1 of 2 micro-batches"));
  EXPECT_THAT(after(cycle, 0, [&](auto& row) { find(row, Kind::InvertA)->part = 7; }),
              HasSubstr("is of layer 7, but 2 of stage 0 have factors"));
  const Schedule two = one_step("1f1b", 2, 2, /*pipelines=*/2);
  Schedule summed = with_curvature(two, how_of(two, FillRule::After, 1), published());
  EXPECT_EQ(refusal(summed), "");
  EXPECT_THAT(after(summed, 0, [&](auto& row) { row.erase(find(row, Kind::SyncB)); }),
              HasSubstr("comes before the gradient factor of layer 0 is summed over the copies"));
}

// What is kept of micro-batches for K-FAC: with all of the work behind a step, all of them.
TEST(CurvatureMemory, IsCounted) {
  const Schedule step = one_step("1f1b", 4, 8);
  const VerifyReport report =
      verify(with_curvature(step, how_of(step, FillRule::After), published()));
  for (const StageNeeds& needs : report.stages) EXPECT_EQ(needs.tap_copies, 8);
  EXPECT_EQ(report.oldest_inverse, 0);
  const VerifyReport filled =
      verify(with_curvature(step, how_of(step, FillRule::Best), published()));
  EXPECT_GT(filled.oldest_inverse, 0);
  for (const StageNeeds& needs : filled.stages) EXPECT_LE(needs.tap_copies, 8);
}

}  // namespace
}  // namespace hetu
