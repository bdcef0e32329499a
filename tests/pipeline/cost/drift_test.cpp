// Tests the distance of measured times from planned ones, and the gain of a new placement of
// K-FAC's work by the measured times.
#include "pipeline/cost/drift.h"

#include <gmock/gmock.h>

#include "pipeline/simulate/simulate.h"
#include "pipeline/verify/verify.h"
#include "tests/pipeline/fill/curvature_plans.h"

namespace hetu {
namespace {

Costs by_stage(int stages) {
  Costs costs = published();
  costs.stages.assign(stages, costs.stages[0]);
  return costs;
}

void slow_down(StageCost& c, double factor) {
  for (double* time : {&c.forward, &c.input_grad, &c.weight_grad, &c.curvature.factors,
                       &c.curvature.inversion, &c.curvature.precondition})
    *time *= factor;
}

TEST(Drift, IsTheShareOfTimeThatLiesElsewhere) {
  const Schedule step = one_step("1f1b", 4, 4);
  const Schedule cycle = with_curvature(step, how_of(step, FillRule::Best), published());
  const Costs planned = by_stage(4);
  EXPECT_EQ(drift(cycle, planned, planned), 0);
  Costs measured = planned;
  // its share changes from 1 of 4 to 2 of 5, and that of the others to 1 of 5
  slow_down(measured.stages[2], 2);
  EXPECT_NEAR(drift(cycle, planned, measured), 0.3, 1e-12);
  for (StageCost& c : measured.stages) slow_down(c, 3);
  EXPECT_NEAR(drift(cycle, planned, measured), 0.3, 1e-12);
  measured = planned;
  for (StageCost& c : measured.stages) slow_down(c, 7);  // a machine that is slower throughout
  EXPECT_NEAR(drift(cycle, planned, measured), 0, 1e-12);
  for (StageCost& c : measured.stages) c.curvature = {};  // one kind takes no time
  EXPECT_GT(drift(cycle, planned, measured), 0.5);
}

// The plan assumes a quarter of the real time of factors. Pieces don't fit their bubbles, and steps
// exceed the bound. Placed by the measured times, they meet it again.
TEST(Drift, PlacedAnewByMeasuredTimesAStepIsAsShortAsItCanBe) {
  for (const char* method : {"gpipe", "1f1b", "chimera"}) {
    const Schedule step = one_step(method, 4, 4);
    Costs wrong = published();
    wrong.stages[0].curvature.factors /= 4;
    wrong.stages[0].curvature.inversion /= 4;
    const auto each = [](const Schedule& cycle) {
      return simulate(cycle, published()).step_time / cycle.steps;
    };
    const Schedule before = with_curvature(step, how_of(step, FillRule::Best), wrong);
    const Schedule anew = with_curvature(step, how_of(step, FillRule::Best), published());
    EXPECT_NO_THROW(verify(anew)) << method;
    EXPECT_GT(drift(before, wrong, published()), 0.2) << method;
    const double copies = std::string(method) == "chimera" ? 2 : 1;
    const double bound = simulate(step, published()).step_time +
                         copies * published().stages[0].curvature.precondition;
    EXPECT_GT(each(before), 1.05 * bound) << method;
    EXPECT_LT(each(anew), 1.001 * bound) << method;
  }
}

}  // namespace
}  // namespace hetu
