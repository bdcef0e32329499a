// Tests the costs that are not times of instructions: the costs of K-FAC, and working memory.
#include "pipeline/cost/cost.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "pipeline/generate/generate.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr double kMiB = 1048576;
constexpr const char* kTable =
    "bs,time_f,time_b,time_kron,time_inv,time_prec,mem_param,mem_act,mem_peak_err,mem_save_err,"
    "mem_kron\n8,1,2,3,70,7,10,4,5,6,90\n";

TEST(CurvatureCosts, TablesGiveThoseOfAStage) {
  for (const int blocks : {1, 3}) {
    const StageCost c =
        parse_costs(kTable, "t.csv", {.micro_batch_size = 8, .blocks_per_stage = blocks}).stages[0];
    const CurvatureCost wanted = {.factors = 3.0 * blocks,
                                  .inversion = 70.0 * blocks,
                                  .precondition = 7.0 * blocks,
                                  .saved_bytes = 6 * kMiB * blocks,
                                  .factor_bytes = 90 * kMiB * blocks};
    EXPECT_EQ(c.curvature, wanted) << blocks << " blocks";
    EXPECT_DOUBLE_EQ(c.working_bytes, 5 * kMiB) << "one block after another";
  }
}

TEST(CurvatureCosts, StandInAFileOfCosts) {
  Costs costs = parse_costs(kTable, "t.csv", {.micro_batch_size = 8, .blocks_per_stage = 2});
  costs.stages.assign(2, costs.stages[0]);
  costs.stages[1].curvature.inversion = 11;
  costs.blocks.assign(4, {costs.stages[1], 1});
  const Costs back = parse_costs(to_json(costs, generate("gpipe", {.stages = 2})), "back");
  EXPECT_EQ(back.stages, costs.stages);
  EXPECT_EQ(back.blocks, costs.blocks);
  const Costs told = parse_costs(
      R"({"unit": "s", "stages": [{"working_bytes": 3, "curvature": {"factors": 0.5, "inversion": 2,
          "precondition": 0.25, "saved_bytes": 9, "factor_bytes": 8}}]})",
      "c.json");
  const CurvatureCost wanted = {500, 2000, 250, 9, 8};
  EXPECT_EQ(told.stages[0].curvature, wanted);
  EXPECT_EQ(told.stages[0].working_bytes, 3);
  EXPECT_THAT([] { parse_costs(R"({"stages": [{"curvature": {"factor": 1}}]})", "c.json"); },
              ThrowsMessage<Error>(HasSubstr("c.json: stage 0: curvature: unknown key 'factor'")));
}

// Times and bytes add up over blocks and stages for every cut. Working memory is that of the block
// that needs most.
TEST(CurvatureCosts, AreCutAsTheModelIs) {
  Costs costs;
  costs.per_worker = false;
  costs.stages.clear();
  for (int s = 0; s < 4; ++s) {
    StageCost c;
    c.curvature = {1.0 + s, 2.0 + s, 3.0 + s, 4.0 + s, 5.0 + s};
    c.working_bytes = 10 * (s + 1);
    costs.stages.push_back(c);
  }
  Costs with_blocks = costs;
  for (const StageCost& c : costs.stages) with_blocks.blocks.push_back({c, 1});
  for (const Costs& from : {costs, with_blocks}) {
    for (const int stages : {1, 2, 3}) {
      if (from.blocks.empty() && stages == 3) continue;  // would divide a stage
      const Costs cut = recut(from, stages);
      for (const auto part :
           {&CurvatureCost::factors, &CurvatureCost::inversion, &CurvatureCost::precondition,
            &CurvatureCost::saved_bytes, &CurvatureCost::factor_bytes}) {
        double before = 0, after = 0;
        for (const StageCost& c : from.stages) before += c.curvature.*part;
        for (const StageCost& c : cut.stages) after += c.curvature.*part;
        EXPECT_NEAR(after, before, 1e-9) << stages << " stages";
      }
      EXPECT_EQ(cut.stages.back().working_bytes, 40);
    }
  }
}

TEST(CurvatureCosts, RefusesWhatIsNoNumber) {
  const Schedule plan = generate("gpipe", {.stages = 2});
  for (const auto part :
       {&CurvatureCost::factors, &CurvatureCost::inversion, &CurvatureCost::precondition,
        &CurvatureCost::saved_bytes, &CurvatureCost::factor_bytes}) {
    Costs costs;
    costs.stages[0].curvature.*part = std::nan("");
    EXPECT_THROW(check_costs(costs, plan, 1), Error);
  }
  Costs costs;
  costs.stages[0].working_bytes = -1;
  EXPECT_THAT([&] { check_costs(costs, plan, 1); },
              ThrowsMessage<Error>(HasSubstr("working bytes")));
}

}  // namespace
}  // namespace hetu
