#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run_hetu.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(CompareCommand, ReadsTheTraceOfARehearsal) {
  const Outcome run = hetu(
      "rehearse chimera --stages 4 --micro-batches 4 --latency 0.5 --allreduce 1 --time-unit 4ms "
      "--repeat 1 --trace run.json");
  ASSERT_EQ(run.status, 0) << run.err;
  const Outcome o = hetu("compare run.json --behind 0");
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, StartsWith("chimera: 4 workers, 4 micro-batches; step 0; ms\n"));
  for (const char* words : {"\nF (mean of 16) ", "\nREDUCE_GRAD (mean of 8) ", "\nworker 3 busy ",
                            "\n0 -> 1 transit ", "\n3 -> 2 waiting ", " ms  "})
    EXPECT_THAT(o.out, HasSubstr(words));
  // A run by a clock may be on time. This is the same run with every event a quarter later.
  auto late = nlohmann::json::parse(read_text(folder() / "run.json"));
  for (nlohmann::json& event : late["traceEvents"])
    if (event["ph"] == "X" && event["pid"] == 1) event["ts"] = 1.25 * event["ts"].get<double>();
  const Outcome behind = hetu("compare " + file("late.json", late.dump()) + " --behind 0");
  ASSERT_EQ(behind.status, 0) << behind.err;
  for (const char* words : {"behind its plan is ", "The step ended with "})
    EXPECT_THAT(behind.out, HasSubstr(words));
  EXPECT_THAT(o.out, testing::Not(HasSubstr("not in the plan")));
  const Outcome json = hetu("compare run.json --format json -o out.json");
  EXPECT_EQ(json.status, 0) << json.err;
  EXPECT_THAT(read_text(folder() / "out.json"), HasSubstr("\"first_behind\": "));
}

// A run is set against a prediction from other costs, here twice as slow, cut from their blocks.
TEST(CompareCommand, PredictsFromOtherCosts) {
  const std::string run = "rehearse gpipe --stages 2 --micro-batches 4 --time-unit 4ms --repeat 2 ";
  ASSERT_EQ(hetu(run + "--trace run.json").status, 0);
  const auto predicted = [](const std::string& options) {
    const Outcome o = hetu("compare run.json --format json " + options);
    EXPECT_EQ(o.status, 0) << o.err;
    const auto json = nlohmann::json::parse(o.out);
    EXPECT_EQ(json["unplanned_events"], 0);
    return json["runs"][0]["step_time"]["predicted"].get<double>();
  };
  EXPECT_NEAR(predicted(""), 4 * 15, 1e-6);
  file("slow.json", R"({"stages": [{"forward": 8, "input_grad": 8, "weight_grad": 8}]})");
  EXPECT_NEAR(predicted("--costs slow.json"), 8 * 15, 1e-6);
  file("blocks.json", R"({"stages": [{}], "blocks": [
    {"forward": 8, "input_grad": 8, "weight_grad": 8},
    {"forward": 0, "input_grad": 0, "weight_grad": 0},
    {"forward": 8, "input_grad": 8, "weight_grad": 8}]})");
  EXPECT_NEAR(predicted("--costs blocks.json --partition 1,2"), 8 * 15, 1e-6);
  EXPECT_NEAR(predicted("--costs blocks.json --partition 2,1"), 8 * 15, 1e-6);
  EXPECT_THAT(hetu("compare run.json --costs slow.json").out,
              HasSubstr("; ms\npredicted from slow.json, a forecast\n\n"));
  file("three.json", R"({"stages": [{}, {}, {}]})");
  EXPECT_THAT(hetu("compare run.json --costs three.json").err,
              HasSubstr("costs of 3 stages do not fit a plan of 2 model stages"));
  EXPECT_THAT(hetu("compare run.json --partition 1,2").err, HasSubstr("needs --costs FILE"));
}

// A profile has several sizes. The run's trace states its own, or an option does.
TEST(CompareCommand, TakesASizeOfAProfile) {
  ASSERT_EQ(hetu("rehearse gpipe --stages 2 --micro-batches 4 --time-unit 4ms --repeat 2 --trace "
                 "sized.json")
                .status,
            0);
  const auto sizes = [](int size) {
    const std::string block =
        fmt::format(R"({{"forward": {0}, "input_grad": {0}, "weight_grad": {0}}})", size);
    return fmt::format(R"("{0}": {{"stages": [{{}}], "blocks": [{1}, {1}]}})", size, block);
  };
  file("profile.json", R"({"micro_batch_sizes": {)" + sizes(2) + ", " + sizes(4) + "}}");
  const std::string compare = "compare sized.json --costs profile.json ";
  EXPECT_THAT(hetu(compare).err, HasSubstr("give --micro-batch-size B"));
  const Outcome given = hetu(compare + "--micro-batch-size 4 --format json");
  ASSERT_EQ(given.status, 0) << given.err;
  const auto step = [](const Outcome& o) {
    return nlohmann::json::parse(o.out)["runs"][0]["step_time"]["predicted"].get<double>();
  };
  EXPECT_NEAR(step(given), 4 * 15, 1e-6);
  auto stated = nlohmann::json::parse(read_text(folder() / "sized.json"));
  stated["metadata"]["costs"]["samples_per_micro_batch"] = 2;
  file("sized.json", stated.dump());
  EXPECT_NEAR(step(hetu(compare + "--format json")), 2 * 15, 1e-6);
  file("plain.json", R"({"stages": [{}]})");
  EXPECT_THAT(hetu("compare sized.json --costs plain.json --micro-batch-size 2").err,
              HasSubstr("plain.json is not a profile"));
}

TEST(CompareCommand, RehearsalsAreDrawnBesideTheirPlan) {
  const std::string run = "rehearse zb-v --stages 2 --micro-batches 4 --time-unit 2ms --repeat 2 ";
  const Outcome grid = hetu(run + "--format grid");
  ASSERT_EQ(grid.status, 0) << grid.err;
  for (const char* words : {"\npredicted", "\nmeasured", "\nstep 2 ", "\nstep time "})
    EXPECT_THAT(grid.out, HasSubstr(words));
  ASSERT_EQ(hetu(run + "--format svg -o run.svg").status, 0);
  const std::string svg = read_text(folder() / "run.svg");
  EXPECT_THAT(svg, HasSubstr(">predicted</text>"));
  EXPECT_THAT(svg, HasSubstr(">measured</text>"));
  EXPECT_EQ(hetu(run + "--format csv").status, 2);
}

TEST(CompareCommand, RefusesInOneLine) {
  ASSERT_EQ(hetu("simulate 1f1b --stages 2 --micro-batches 4 --format trace -o plan.json").status,
            0);
  file("noplan.json", R"({"traceEvents":[{"ph":"X","pid":1,"tid":0,"ts":0,"dur":1,)"
                      R"("args":{"kind":"F","stage":0,"micro":0,"part":0,"step":0}}]})");
  for (const auto& [arguments, words] : std::vector<std::pair<std::string, std::string>>{
           {"", "one TRACE, got 0"},
           {"a b", "one TRACE, got 2"},
           {"missing.json", "missing.json: cannot be opened"},
           {"plan.json", "no measured events"},
           {"noplan.json", "no plan in the metadata"},
           {"plan.json --behind x", "--behind"}}) {
    const Outcome o = hetu("compare " + arguments);
    EXPECT_EQ(o.status, 2) << arguments;
    EXPECT_THAT(o.err, StartsWith("hetu compare: ")) << arguments;
    EXPECT_THAT(o.err, HasSubstr(words)) << arguments;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
}

}  // namespace
}  // namespace hetu
