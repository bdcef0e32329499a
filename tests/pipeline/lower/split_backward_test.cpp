// Tests --split-backward. Every plan must verify, have the same work in the same order, and keep no
// more activations. The gain is compared with ZB-H1's closed form and on published times of blocks.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "pipeline/fill/curvature.h"
#include "pipeline/generate/generate.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"
#include "pipeline/verify/verify.h"
#include "tests/pipeline/fill/curvature_plans.h"
#include "tests/pipeline/generate/generated.h"

namespace hetu {
namespace {

using namespace testing_plans;  // NOLINT: a test's own words

std::vector<const char*> whole_backwards() {
  std::vector<const char*> names;
  for (const Method& m : methods()) {
    Sizes sizes;
    sizes.stages = 4;
    sizes.micro_batches = 8;
    if (m.by_costs || !is_legal(m, sizes)) continue;
    const Schedule s = m.generate(resolved(m, sizes));
    if (s.most_versions == 1 && !s.half_micros && holds(s, Kind::Backward)) names.push_back(m.name);
  }
  return names;
}

double most_kept(const Simulation& run) {
  double most = 0;
  for (const WorkerTiming& w : run.workers) most = std::max(most, w.peak_activations);
  return most;
}

// Returns the micro-batches of one kind of instruction of a stage, in the order of its row.
std::vector<int> micros_of(const Schedule& s, Kind kind, int stage) {
  std::vector<int> micros;
  for (const Program& p : s.workers)
    for (const Instr& i : unroll(p))
      if (i.kind == kind && i.stage == stage) micros.push_back(i.micro);
  return micros;
}

TEST(SplitBackward, IsTheSameWorkWithinTheSameActivationsAndNeverLonger) {
  const std::vector<const char*> names = whole_backwards();
  EXPECT_THAT(std::vector<std::string>(names.begin(), names.end()),
              testing::IsSupersetOf({"gpipe", "1f1b", "chimera", "gems", "hanayo"}));
  const Costs costs;
  const int plans = over_grid(names, [&](const Schedule& s) {
    if (s.half_micros || !holds(s, Kind::Backward)) return;
    const Schedule split = with_split_backward(s, costs);
    EXPECT_NO_THROW(verify(split)) << name(s);
    EXPECT_NO_THROW(verify(lower(split))) << name(s);
    EXPECT_FALSE(holds(split, Kind::Backward)) << name(s);
    const Simulation before = simulate(s, costs), after = simulate(split, costs);
    EXPECT_LE(after.makespan, before.makespan * (1 + 1e-9)) << name(s);
    EXPECT_LE(most_kept(after), most_kept(before) + 1e-9) << name(s);
    for (int stage = 0; stage < static_cast<int>(s.placements.size()); ++stage) {
      std::vector<int> sums = micros_of(s, Kind::Backward, stage);
      for (const int micro : micros_of(s, Kind::WeightGrad, stage)) sums.push_back(micro);
      // some backwards are already split, in an order of their own
      if (holds(s, Kind::WeightGrad)) continue;
      EXPECT_EQ(micros_of(split, Kind::WeightGrad, stage), sums) << name(s);
    }
  });
  EXPECT_GT(plans, 300);
}

// With equal times, its step takes as long as ZB-H1's, (M + P - 1)(F + B + W) - 2 (P - 1) W. Its
// workers keep the same number of activations.
TEST(SplitBackward, MakesZeroBubblePlansOf1f1b) {
  for (const auto& [stages, micros] : {std::pair{2, 2}, {4, 4}, {4, 8}, {8, 8}, {8, 32}}) {
    const Schedule s = generate("1f1b", {.stages = stages, .micro_batches = micros});
    const Simulation run = simulate(with_split_backward(s, Costs()), Costs());
    EXPECT_DOUBLE_EQ(run.makespan, 3 * (micros + stages - 1) - 2 * (stages - 1));
    EXPECT_EQ(most_kept(run), stages);
  }
}

// No published method with one copy per stage is as fast on these sizes.
TEST(SplitBackward, TakesFromChimeraMoreThanASixth) {
  const Costs costs = published();
  for (const auto& [stages, micros, whole, split] :
       {std::tuple{4, 4, 137.7, 114.5}, {4, 8, 255.9, 219.3}, {8, 8, 308.3, 238.8}}) {
    const Sizes sizes = {.stages = stages, .micro_batches = micros};
    const Schedule s = generate("chimera", sizes);
    EXPECT_NEAR(simulate(s, costs).makespan, whole, 0.06);
    const double now = simulate(with_split_backward(s, costs), costs).makespan;
    EXPECT_NEAR(now, split, 0.06);
    for (const char* method : {"zb-h1", "zb-h2"})
      EXPECT_LT(now, simulate(generate(method, sizes), costs).makespan) << method;
  }
}

// Bubbles are smaller, so refreshes are rarer. Each step is shorter.
TEST(SplitBackward, GoesWithFilledWork) {
  const Costs costs = published();
  Lowering how;
  how.reduce_scalars = true;
  const Schedule whole = generate("chimera", {.stages = 4, .micro_batches = 4});
  std::vector<double> each;
  for (const Schedule& s : {whole, with_split_backward(whole, costs)}) {
    const Schedule step = lower(s, how);
    const Schedule cycle = with_curvature(step, how_of(step, FillRule::Best), costs);
    EXPECT_NO_THROW(verify(cycle));
    each.push_back(simulate(cycle, costs).step_time / cycle.steps);
  }
  EXPECT_NEAR(each[0], 151.3, 0.05);
  EXPECT_NEAR(each[1], 131.0, 0.05);
}

TEST(SplitBackward, RefusesWhatItCannotSplit) {
  const auto says = [](const char* method, Sizes sizes, const char* what) {
    const Schedule s = generate(method, sizes);
    EXPECT_THAT([&] { with_split_backward(s, Costs()); },
                testing::ThrowsMessage<Error>(fmt::format(
                    "--split-backward needs a plan with a flush and whole backwards, such as 1f1b "
                    "or chimera; '{}' {}",
                    s.method, what)));
  };
  says("zb-h1", {.stages = 4, .micro_batches = 4}, "has no whole backward");
  says("pipedream", {.stages = 4, .micro_batches = 4}, "updates without a flush");
  says("chimera", {.stages = 4, .micro_batches = 8, .concat = "halving"},
       "splits backwards into half micro-batches");
  says("dualpipe", {.stages = 4, .micro_batches = 8, .pair_semantics = "atomic"},
       "has pairs that run as one");
}

}  // namespace
}  // namespace hetu
