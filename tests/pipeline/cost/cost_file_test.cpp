// Tests costs from files: JSON, the published tables, and traces of runs. An error names its
// position.
#include <gmock/gmock.h>

#include "base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Costs, JsonIsReadWithItsUnitsAndLinks) {
  const Costs c =
      parse_costs(R"({"unit": "s", "stages": [{"forward": 0.5}, {"input_grad": 2, "bytes_out": 7}],
      "link": {"latency": 0.001, "bandwidth": 1000, "pairs": [{"from": 0, "to": 1, "latency": 0.2, "bandwidth": 1e6}]},
      "allreduce": 1, "reduce_scalars": 0.25, "workers": [{"speed": 0.5, "memory_limit": 9}, {}]})",
                  "c.json");
  EXPECT_EQ(c.unit, "ms");
  EXPECT_FALSE(c.per_worker);
  EXPECT_DOUBLE_EQ(c.stages[0].forward, 500);
  EXPECT_DOUBLE_EQ(c.stages[1].input_grad, 2000);
  EXPECT_DOUBLE_EQ(c.stages[1].weight_grad, 1000);
  EXPECT_DOUBLE_EQ(c.stages[1].bytes_out, 7);
  EXPECT_DOUBLE_EQ(c.link.latency, 1);
  EXPECT_DOUBLE_EQ(c.link.bandwidth, 1);
  EXPECT_DOUBLE_EQ(c.pairs[0].latency, 200);
  EXPECT_EQ(c.speed, (std::vector<double>{0.5, 1}));
  EXPECT_DOUBLE_EQ(c.allreduce, 1000);
  EXPECT_DOUBLE_EQ(c.reduce_scalars, 250);
}

TEST(Costs, TablesGiveBlocksOfAStage) {
  const std::string table = "bs,time_f,time_b,mem_param,mem_act\n1,1,2,10,4\n2,1.5,3,10,8\n";
  const Costs c = parse_costs(table, "t.csv", {.micro_batch_size = 2, .blocks_per_stage = 3});
  EXPECT_DOUBLE_EQ(c.stages[0].forward, 4.5);
  EXPECT_DOUBLE_EQ(c.stages[0].input_grad + c.stages[0].weight_grad, 9);
  EXPECT_DOUBLE_EQ(c.stages[0].recompute, 4.5);
  EXPECT_DOUBLE_EQ(c.stages[0].weight_bytes, 30 * 1048576.0);
  EXPECT_DOUBLE_EQ(c.stages[0].activation_bytes, 24 * 1048576.0);
  EXPECT_THAT(
      [&] { parse_costs(table, "t.csv", {.micro_batch_size = 4, .blocks_per_stage = 1}); },
      ThrowsMessage<Error>("t.csv: no row for a micro-batch size of 4; the table has 1, 2"));
}

TEST(Costs, SumsAreReadFromATraceWithoutTheWaitForTheirMembers) {
  Costs c;
  c.unit = "ms";
  c.stages = {{.forward = 1, .reduce_grad = 0.7}, {.forward = 3, .reduce_grad = 1.3}};
  c.reduce_scalars = 0.4;
  Lowering how;
  how.reduce_scalars = true;
  const Schedule plan = lower(generate("chimera", {.stages = 2, .micro_batches = 4}), how);
  const Simulation r = simulate(plan, c, {.events = true});
  Trace trace{r.events, "{\"plan\":" + to_json(plan) + "}"};
  const Costs back = parse_costs(trace_to_json(trace), "run.json");
  ASSERT_EQ(back.stages.size(), 2u);
  EXPECT_NEAR(back.stages[0].reduce_grad, 0.7, 1e-5);
  EXPECT_NEAR(back.stages[1].reduce_grad, 1.3, 1e-5);
  EXPECT_NEAR(back.reduce_scalars, 0.4, 1e-5);
  // As in a measurement, one member arrives 5 ms before the last one.
  for (TraceEvent& e : trace.events) {
    e.source = TraceSource::Measured;
    if (e.worker != 0 || e.kind.rfind("REDUCE", 0) != 0) continue;
    e.start_us -= 5000;
    e.duration_us += 5000;
  }
  const Costs measured = parse_costs(trace_to_json(trace), "run.json");
  EXPECT_NEAR(measured.stages[0].reduce_grad, 0.7, 1e-5);
  EXPECT_NEAR(measured.stages[1].reduce_grad, 1.3, 1e-5);
  EXPECT_NEAR(measured.reduce_scalars, 0.4, 1e-5);
}

TEST(Costs, AStagesOwnSumGoesBeforeTheCommonOne) {
  const Schedule plan = lower(generate("chimera", {.stages = 2, .micro_batches = 2}));
  Costs c;
  c.unit = "ms";
  c.per_worker = false;
  c.stages.assign(2, {});
  c.allreduce = 2;
  const double common = simulate(plan, c).step_time;
  c.stages[0].reduce_grad = c.stages[1].reduce_grad = 5;
  EXPECT_GT(simulate(plan, c).step_time, common + 2.9);
  EXPECT_EQ(parse_costs(to_json(c, plan), "c").stages, c.stages);
}

// A step is a sum of kernels. A kernel that takes longer counts in the mean. The time of a process
// that was stopped does not.
TEST(Costs, OfATraceAreMeansWithoutAccidentsAndWarmUp) {
  Trace trace;
  const auto ran = [&](int step, const char* kind, double us) {
    trace.events.push_back({.source = TraceSource::Measured,
                            .kind = kind,
                            .stage = 0,
                            .step = step,
                            .duration_us = us});
  };
  for (const double us : {5000, 5000, 5000, 5000}) ran(0, "F", us);  // warm-up
  for (const double us : {1000, 1000, 1900, 9000}) ran(1, "F", us);  // 9000: stopped
  for (const double us : {1000, 1000, 1900, 1000}) ran(2, "F", us);
  for (int step = 0; step < 3; ++step) ran(step, "B", 4000);
  const Costs costs = parse_costs(trace_to_json(trace), "run.json");
  EXPECT_DOUBLE_EQ(costs.stages.at(0).forward, 8.8 / 7);
  EXPECT_DOUBLE_EQ(costs.stages.at(0).input_grad, 2);
}

TEST(Costs, ATraceGivesBackTheCostsItWasSimulatedWith) {
  Costs c;
  c.unit = "ms";
  c.stages = {{.forward = 1, .input_grad = 2, .weight_grad = 2, .update = 3},
              {.forward = 4, .input_grad = 1, .weight_grad = 1, .update = 5}};
  const Simulation r =
      simulate(lower(generate("1f1b", {.stages = 2, .micro_batches = 5})), c, {.events = true});
  const Costs back = parse_costs(trace_to_json({.events = r.events}), "run.json");
  ASSERT_EQ(back.stages.size(), 2u);
  EXPECT_DOUBLE_EQ(back.stages[0].input_grad, 2);
  EXPECT_DOUBLE_EQ(back.stages[1].forward, 4);
  EXPECT_DOUBLE_EQ(back.stages[1].update, 5);
}

TEST(Costs, BadFilesNameTheirPlace) {
  const std::vector<std::pair<std::string, const char*>> cases = {
      {"", "c: the file is empty"},
      {"hello", "c: expected costs in JSON"},
      {"{", "c: "},
      {"{}", "'stages' is missing"},
      {R"({"stages": []})", "'stages' is empty"},
      {R"({"stages": {}})", "must be a list"},
      {R"({"stages": [3]})", "c: stage 0: expected an object"},
      {R"({"stages": [{}, {"foward": 1}]})",
       "c: stage 1: unknown key 'foward'; known keys: forward"},
      {R"({"stages": [{"forward": -1}]})", "'forward' must be a finite number >= 0, got -1"},
      {R"({"stages": [{"forward": 1e999}]})", "c: "},
      {R"({"stages": [{"forward": "x"}]})", "'forward' must be a number"},
      {R"({"stages": [{}], "unit": "h"})", "'unit' must be"},
      {R"({"stages": [{}], "workers": [{"speed": 0}]})", "c: worker 0: 'speed' must be above 0"},
      {R"({"stages": [{}], "link": {"pairs": [{"from": -1, "to": 0}]}})",
       "c: link: pair 0: 'from'"},
      {R"({"traceEvents": []})", "no events of any stage"},
      {"bs,time_f\n1,x\n", "c:2: expected a number >= 0, found 'x'"},
      {"bs,time_f\n1\n", "c:2: the row has 1 cells, but the table has 2 columns"},
      {std::string(100000, '['), "c: expected costs in JSON, a table"},
      {"{" + std::string(100000, '['), "nest deeper"},
  };
  for (const auto& [text, message] : cases) {
    try {
      parse_costs(text, "c", {.micro_batch_size = 1, .blocks_per_stage = 1});
      ADD_FAILURE() << text.substr(0, 80);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(message));
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
      EXPECT_EQ(exit_status(e.code()), 2);
    }
  }
}

}  // namespace
}  // namespace hetu
