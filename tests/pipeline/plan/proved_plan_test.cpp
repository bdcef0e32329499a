// Tests the one chain that makes a proved plan: every method, with recomputations, split backwards
// and flushes, equals the steps of the chain made by hand, and is proved.
#include "pipeline/plan/proved_plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Sizes sizes_of(int stages, int micro_batches, int steps = 1) {
  return {.stages = stages, .micro_batches = micro_batches, .steps = steps};
}

TEST(ProvedPlan, EveryMethodIsLoweredAndProved) {
  int made = 0;
  for (const Method& m : methods()) {
    for (const int stages : {1, 2, 4}) {
      for (const bool recompute : {false, true}) {
        Sizes sizes = sizes_of(stages, 8);
        if (!is_legal(m, sizes)) continue;
        Schedule by_hand = generate(m.name, sizes);
        if (recompute && holds(by_hand, Kind::Recompute)) continue;
        if (recompute) by_hand = with_recompute(by_hand);
        sizes.with_recompute = recompute;
        const Schedule plan = computations({.method = m.name, .sizes = sizes});
        EXPECT_EQ(plan, by_hand) << m.name << ", " << stages << " stages";
        EXPECT_EQ(computations({.rows = generate(m.name, sizes), .sizes = sizes}), plan) << m.name;
        const ProvedPlan proved = proved_plan(plan, {});
        EXPECT_EQ(proved.lowered, lower(by_hand)) << m.name;
        EXPECT_EQ(proved.report.peak_activations.size(), plan.workers.size()) << m.name;
        ++made;
      }
    }
  }
  EXPECT_GE(made, 60);
}

TEST(ProvedPlan, FlushesComeBeforeTheOtherChanges) {
  PlanSource source{.method = "1f1b", .sizes = sizes_of(2, 4, 3), .flushes = true};
  source.sizes.with_recompute = true;
  const Schedule one_step = generate("1f1b", sizes_of(2, 4));
  EXPECT_EQ(computations(source), with_recompute(with_flushes(one_step, 3)));
  source.method = "pipedream";
  source.sizes.micro_batches = 1;
  EXPECT_THAT(
      [&] { computations(source); },
      ThrowsMessage<Error>(HasSubstr("'pipedream' updates after its backwards, without a flush")));
}

TEST(ProvedPlan, BackwardsAreSplitByTheCosts) {
  Costs slow_weights;
  slow_weights.stages.clear();  // there is one by default
  for (const double weight : {0.2, 5.0, 0.2, 5.0})
    slow_weights.stages.push_back({.forward = 1, .input_grad = 2, .weight_grad = weight});
  PlanSource source{.method = "1f1b", .sizes = sizes_of(4, 8)};
  source.sizes.split_backward = true;
  const Schedule rows = generate("1f1b", sizes_of(4, 8));
  const Schedule by_default = computations(source);
  EXPECT_EQ(by_default, with_split_backward(rows, Costs()));
  source.costs = &slow_weights;
  EXPECT_EQ(computations(source), with_split_backward(rows, slow_weights));
  EXPECT_NE(computations(source), by_default);
}

TEST(ProvedPlan, TheRuntimeRuleIsAppliedByTheGeneratorOrByTheRun) {
  PlanSource source{.method = "varuna", .sizes = sizes_of(3, 6)};
  source.sizes.runtime_rule = true;
  EXPECT_EQ(computations(source), generate("varuna", source.sizes));
  source.rule_at_run_time = true;
  Schedule planned = generate("varuna", sizes_of(3, 6));
  planned.run_policy = RunPolicy::ForwardBeforeLateGradient;
  EXPECT_EQ(computations(source), planned);
  source.method = "1f1b";
  EXPECT_THAT([&] { computations(source); },
              ThrowsMessage<Error>(HasSubstr("--runtime-rule does not apply to 1f1b")));
}

TEST(ProvedPlan, AWrongPlanIsRefusedInTheUsersOwnRows) {
  Schedule wrong = generate("gpipe", sizes_of(2, 2));
  wrong.workers[1].prologue.pop_back();
  for (const auto& attempt : {std::function<void()>([&] { proved_plan(wrong, {}); }),
                              std::function<void()>([&] { prove(wrong, lower(wrong), {}); })})
    EXPECT_THROW(attempt(), Error);
  // The lowered plan has more instructions than the user's, so its steps have other numbers.
  try {
    prove(wrong, lower(generate("gpipe", sizes_of(2, 2))), {});
    ADD_FAILURE() << "the user's own plan was not proved";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Plan);
  }
}

TEST(ProvedPlan, SendSlotsAreEnoughAndOneMore) {
  for (const char* method : {"gpipe", "1f1b", "zb-h1", "chimera", "interleaved-1f1b"}) {
    const Schedule lowered = proved_plan(generate(method, sizes_of(4, 8)), {}).lowered;
    EXPECT_EQ(send_slots_for(lowered, {}), least_send_slots(lowered) + 1) << method;
    EXPECT_EQ(send_slots_for(lowered, {Costs()}),
              std::max(least_send_slots(lowered), ample_send_slots(lowered, Costs())) + 1)
        << method;
    EXPECT_NO_THROW(verify(lowered, {.send_slots = send_slots_for(lowered, {}) - 1})) << method;
  }
}

}  // namespace
}  // namespace hetu
