// Tests which errors in K-FAC's work the verifier finds in plans.
#include <gmock/gmock.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "pipeline/fill/curvature.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/ir/reduction.h"
#include "pipeline/verify/verify.h"
#include "tests/pipeline/fill/curvature_plans.h"
#include "tests/pipeline/refusal.h"

namespace hetu {
namespace {

using testing::HasSubstr;

// Removes, duplicates or moves one K-FAC instruction of a plan. The result must be refused, or be
// valid as well.
class Corrupted : public testing::Test {
 protected:
  // Returns the verifier's message for the plan with a changed row of one worker.
  template <class Change>
  static std::string after(Schedule cycle, std::size_t worker, Change&& change) {
    std::vector<Instr> row = unroll(cycle.workers[worker]);
    change(row);
    cycle.workers[worker] = {{}, {}, 0, 0, row};
    return refusal_of(cycle);
  }

  static std::vector<Instr>::iterator find(std::vector<Instr>& row, Kind kind, int part = 0) {
    return std::find_if(row.begin(), row.end(),
                        [&](const Instr& i) { return i.kind == kind && i.part == part; });
  }
};

TEST_F(Corrupted, ByADropIsRefused) {
  for (const char* method : {"1f1b", "chimera"}) {
    for (const FillRule rule : {FillRule::After, FillRule::Best, FillRule::Wrap}) {
      const bool wraps = rule == FillRule::Wrap;
      const Schedule step = one_step(method, 4, 4);
      const Schedule cycle =
          wraps ? wrapped(step) : with_curvature(step, how_of(step, rule, 2), published());
      EXPECT_EQ(cycle.lowering.wraps, wraps);
      const std::size_t length = unroll(cycle.workers[1]).size();
      int dropped = 0;
      for (std::size_t at = 0; at < length; at += wraps ? 7 : 1) {  // a sample of a long row
        const Instr i = unroll(cycle.workers[1])[at];
        if (!is_second_order(i.kind) && !is_factor_exchange(i.kind)) continue;
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
      HasSubstr("0INVERT_A comes before the gradient factor of layer 0 is complete: it has 0 of a "
                "step's"));
  EXPECT_THAT(moved(Kind::Precondition, Kind::InvertB),
              HasSubstr("0PRECONDITION comes between the two inversions of layer 0"));
  EXPECT_THAT(moved(Kind::ReduceScalars, Kind::Precondition),
              HasSubstr("before the scalars are reduced"));
  EXPECT_THAT(moved(Kind::Precondition, Kind::Forward),
              HasSubstr("0UPDATE comes before its gradient is multiplied by inverses"));
  EXPECT_THAT(after(cycle, 0, [&](auto& row) { row.erase(find(row, Kind::CurvatureA)); }),
              HasSubstr("is complete: it has 1 of 2 micro-batches"));
  EXPECT_THAT(after(cycle, 0, [&](auto& row) { find(row, Kind::InvertA)->part = 7; }),
              HasSubstr("is for layer 7, but stage 0 has 2 layer(s) with factors"));
  const Schedule two = one_step("1f1b", 2, 2, /*pipelines=*/2);
  Schedule summed = with_curvature(two, how_of(two, FillRule::After, 1), published());
  EXPECT_EQ(refusal_of(summed), "");
  EXPECT_THAT(after(summed, 0, [&](auto& row) { row.erase(find(row, Kind::SyncB)); }),
              HasSubstr("comes before the gradient factor of layer 0 is summed over the copies"));
}

// Replica 0 owns layers 0 and 2, and replica 1 owns layer 1. Replica 1 has no layer in round 1.
TEST_F(Corrupted, OwnersAreNamed) {
  const Schedule step = one_step("chimera", 2, 2);
  const Schedule cycle = with_curvature(step, how_of(step, FillRule::After, 3), published());
  EXPECT_EQ(refusal_of(cycle), "");
  const auto at = [](std::vector<Instr>& row, Kind kind, int stage) {
    return std::find_if(row.begin(), row.end(), [&](const Instr& i) {
      return i.kind == kind && i.part == 1 && i.stage == stage;
    });
  };
  const int two = placement_of(cycle, 1, 0), one = placement_of(cycle, 1, 1);
  const auto changed = [&](int stage, const auto& change) {
    return after(cycle, static_cast<std::size_t>(cycle.placements[stage].workers[0]), change);
  };
  EXPECT_THAT(changed(two,
                      [&](auto& row) {
                        const Instr gather = *at(row, Kind::Gather, two);
                        row.erase(at(row, Kind::Gather, two));
                        row.insert(at(row, Kind::InvertB, two), gather);
                      }),
              HasSubstr(fmt::format("{}GATHER:1 comes before {}INVERT_B:1", two, two)));
  for (const int stage : {two, one})
    EXPECT_THAT(changed(stage, [&](auto& row) { row.erase(at(row, Kind::Gather, stage)); }),
                HasSubstr("GATHER:1 is posted by 1 of its 2 workers"));
  // The pipelines share one row, so an instruction that is missing in it is missing in all
  // pipelines.
  const Schedule side_by_side = one_step("1f1b", 2, 2, /*pipelines=*/2);
  const Schedule shared =
      with_curvature(side_by_side, how_of(side_by_side, FillRule::After, 3), published());
  EXPECT_THAT(after(shared, 0, [&](auto& row) { row.erase(at(row, Kind::Gather, 0)); }),
              HasSubstr("the two inversions of layer 2, or before they are gathered"));
  EXPECT_THAT(after(shared, 0,
                    [&](auto& row) {
                      for (const Kind kind : {Kind::InvertA, Kind::InvertB, Kind::Gather})
                        row.erase(at(row, kind, 0));
                    }),
              HasSubstr("has no 0GATHER:1 after it"));
  EXPECT_THAT(changed(one,
                      [&](auto& row) {
                        Instr more = *at(row, Kind::Gather, one);
                        more.kind = Kind::InvertB;
                        row.insert(at(row, Kind::Gather, one), more);
                      }),
              HasSubstr("is for round 1, in which this copy inverts none of the 3 layers with"));
  Schedule averaged = cycle;
  averaged.lowering.sharing = WeightAverages{};
  EXPECT_THAT([&] { verify(averaged); },
              testing::ThrowsMessage<Error>(HasSubstr("can't divide inversions among owners")));
}

// All copies must use the inverses of a refresh from the same step on, whoever computes them.
TEST_F(Corrupted, CopiesDoNotDisagree) {
  for (const InverseMakers makers : {InverseMakers::Owners, InverseMakers::All}) {
    const Schedule step = one_step("chimera", 2, 2);
    const Schedule cycle =
        with_curvature(step, how_of(step, FillRule::After, 2, 2, makers), published());
    std::vector<Instr> moved;
    const std::string said = after(cycle, 0, [&](auto& row) {
      std::copy_if(row.begin(), row.end(), std::back_inserter(moved),
                   [](const Instr& i) { return is_inversion(i.kind) || i.kind == Kind::Gather; });
      std::erase_if(row,
                    [](const Instr& i) { return is_inversion(i.kind) || i.kind == Kind::Gather; });
      const auto first = std::find_if(row.begin(), row.end(),
                                      [](const Instr& i) { return i.kind == Kind::Update; });
      const auto next = std::find_if(first, row.end(),
                                     [](const Instr& i) { return i.kind == Kind::Precondition; });
      row.insert(next, moved.begin(), moved.end());
    });
    EXPECT_FALSE(moved.empty());
    if (makers == InverseMakers::All)
      EXPECT_THAT(said, HasSubstr("those of another copy of the stage in step"));
    else  // the copies that have computed their inverses wait for the others
      EXPECT_THAT(said, HasSubstr("deadlock"));
  }
}

// Work that wraps is verified in the cycle after the first one.
TEST_F(Corrupted, WrapIsNamed) {
  const Schedule step = one_step("1f1b", 4, 4);
  const Schedule cycle = wrapped(step);
  EXPECT_EQ(refusal_of(cycle), "");
  Schedule untold = cycle;
  untold.lowering.wraps = false;
  EXPECT_THAT(refusal_of(untold), HasSubstr("is complete: it has 0 of a step's micro-batches"));
  std::size_t worker = 0;
  std::vector<bool> before;
  for (std::size_t w = 0; w < cycle.workers.size(); ++w) {
    const std::vector<bool> here = Reductions(cycle).of_cycle_before(unroll(cycle.workers[w]));
    if (std::count(here.begin(), here.end(), true) > 0) {
      worker = w;
      before = here;
    }
  }
  const auto first = std::find(before.begin(), before.end(), true) - before.begin();
  const Instr early = unroll(cycle.workers[worker])[first];
  const auto moved = [&](const auto& where) {
    return after(cycle, worker, [&](auto& row) {
      row.erase(row.begin() + first);
      row.insert(where(row), early);
    });
  };
  // The inversion comes after a chunk of the next cycle's work on the factor that it must empty.
  EXPECT_THAT(moved([&](auto& row) {
                return std::find_if(row.begin(), row.end(),
                                    [&](const Instr& i) {
                                      return is_curvature(i.kind) && i.part == early.part &&
                                             is_of_inputs(i.kind) == is_of_inputs(early.kind);
                                    }) +
                       1;
              }),
              HasSubstr("is complete: it has 1 of 4 micro-batches"));
  // The inversion lies in another step than the layer's other inversion.
  EXPECT_THAT(moved([&](auto& row) {
                return std::find_if(row.begin(), row.end(),
                                    [](const Instr& i) { return i.kind == Kind::Update; }) +
                       1;
              }),
              testing::Not(testing::IsEmpty()));
  EXPECT_THAT(after(cycle, worker,
                    [&](auto& row) {
                      std::erase_if(row, [&](const Instr& i) {
                        return is_inversion(i.kind) && i.part == early.part;
                      });
                    }),
              HasSubstr("holds micro-batches of step 0"));
}

}  // namespace
}  // namespace hetu
