#include <gmock/gmock.h>

#include <algorithm>

#include "tests/cli/run_hetu.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class TimelineCommand : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const Outcome o =
        hetu("simulate 1f1b --stages 3 --micro-batches 4 --format trace -o plan.json");
    ASSERT_EQ(o.status, 0) << o.err;
  }
};

TEST_F(TimelineCommand, DrawsOneOrSeveralTraces) {
  ASSERT_EQ(hetu("timeline plan.json -o one.svg").status, 0);
  const std::string one = read_text(folder() / "one.svg");
  EXPECT_THAT(one, HasSubstr(">1f1b: 3 stages, 4 micro-batches</text>"));
  EXPECT_THAT(one, HasSubstr(">predicted</text>"));
  EXPECT_THAT(one, HasSubstr("makespan 18 units  ·  busy 66.7 %  ·  bubble 33.3 %</text>"));
  EXPECT_THAT(one, HasSubstr("peak: activations held at once"));
  const Outcome other =
      hetu("simulate gpipe --stages 2 --micro-batches 4 --format trace -o b.json");
  ASSERT_EQ(other.status, 0) << other.err;
  ASSERT_EQ(hetu("timeline plan.json b.json -o two.svg --title 'Both <'").status, 0);
  const std::string two = read_text(folder() / "two.svg");
  EXPECT_THAT(two, HasSubstr(">Both &lt;</text>"));
  EXPECT_THAT(two, HasSubstr(">1f1b, predicted</text>"));
  EXPECT_THAT(two, HasSubstr(">gpipe, predicted</text>"));
  ASSERT_EQ(
      hetu("timeline plan.json b.json --titles '1F1B,GPipe (ours)' --height 90 --beside -o t.svg")
          .status,
      0);
  const std::string titled = read_text(folder() / "t.svg");
  EXPECT_THAT(titled, HasSubstr(">1F1B</text>"));
  EXPECT_THAT(titled, HasSubstr(">GPipe (ours)</text>"));
  EXPECT_THAT(titled, HasSubstr("height=\"340."));
  ASSERT_EQ(hetu("timeline plan.json plan.json -o same.svg").status, 0);
  EXPECT_THAT(read_text(folder() / "same.svg"), HasSubstr(">1f1b (plan.json), predicted</text>"));
}

// A trace without costs keeps plain units, alone or beside its like, and shares an axis in ms with
// a trace in ms.
TEST_F(TimelineCommand, KeepsTheUnitOfATrace) {
  file("ms.json", R"({"unit": "ms", "stages": [{"forward": 2}]})");
  const std::string run = "simulate 1f1b --stages 3 --micro-batches 4 --format trace ";
  ASSERT_EQ(hetu(run + "--costs ms.json -o in_ms.json").status, 0);
  EXPECT_THAT(hetu("timeline plan.json").out, HasSubstr("makespan 18 units"));
  EXPECT_THAT(hetu("timeline plan.json plan.json").out, HasSubstr("makespan 18 units"));
  EXPECT_THAT(hetu("timeline in_ms.json").out, HasSubstr("makespan 24 ms"));
  EXPECT_THAT(hetu("timeline plan.json in_ms.json").out, HasSubstr("makespan 18 ms"));
}

TEST_F(TimelineCommand, DrawsWhoMetWhomOfAGroupLog) {
  const Outcome made = hetu(
      "simulate pipedream --stages 2 --micro-batches 40 --pipelines 3 --sync-method preduce "
      "--forward 30 --backward 60 --slow pipeline=2,factor=3 --group-log g.jsonl");
  ASSERT_EQ(made.status, 0) << made.err;
  const Outcome table = hetu("timeline --groups g.jsonl");
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, StartsWith("stage   groups  mean size  mean wait  joined within\n    0"));
  EXPECT_THAT(table.out, HasSubstr("updates averaged together"));
  ASSERT_EQ(hetu("timeline --groups g.jsonl -o g.svg --title Groups").status, 0);
  const std::string figure = read_text(folder() / "g.svg");
  for (const char* text : {">Groups</text>", ">stage 1</text>", ">pipeline 2</text>", " ms</text>"})
    EXPECT_THAT(figure, HasSubstr(text));
  file("bad.jsonl", "{\"time_us\":1}\n");
  file("lost.jsonl", "{\"time_us\":1,\"lost\":2}\n");
  for (const auto& [arguments, says] :
       {std::pair{"--groups bad.jsonl", "bad.jsonl:1: not a line of a group log"},
        {"--groups lost.jsonl", "contains no group"},
        {"--groups plan.json", "plan.json:1: not a line of a group log"},
        {"--groups g.jsonl plan.json", "remove TRACE 'plan.json'"},
        {"--groups g.jsonl -o g.html", "svg, pdf, png and a table, got html"},
        {"--groups g.jsonl -o g.svg --from 9 --to 8", "--to 8 must be above --from 9"},
        {"--groups g.jsonl -o g.svg --from 1e9 --to 2e9", "no group closed between"}}) {
    const Outcome o = hetu(fmt::format("timeline {}", arguments));
    EXPECT_NE(o.status, 0) << arguments;
    EXPECT_THAT(o.err, HasSubstr(says)) << arguments;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
}

TEST_F(TimelineCommand, DrawsTwoTracesOnOneHtmlPage) {
  ASSERT_EQ(hetu("simulate gpipe --stages 2 --micro-batches 4 --format trace -o b.json").status, 0);
  const Outcome o = hetu("timeline plan.json b.json -o two.html");
  ASSERT_EQ(o.status, 0) << o.err;
  const std::string two = read_text(folder() / "two.html");
  EXPECT_THAT(two, HasSubstr("\"title\":\"1f1b, predicted\""));
  EXPECT_THAT(two, HasSubstr("\"title\":\"gpipe, predicted\""));
  EXPECT_THAT(two, HasSubstr("\"knowsInputs\":true"));
}

// The figure has 20 x 8 inches. Standard output states the time of an iteration: D F + (2D - 2) B =
// 16 ms.
TEST_F(TimelineCommand, SaysWhatAnIterationOfAProfileTakes) {
  ASSERT_EQ(hetu("simulate chimera --stages 4 --micro-batches 4 --format trace -o c.json").status,
            0);
  const Outcome o = hetu("timeline c.json --style profile -o p.svg");
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(o.out, "predicted: an iteration takes 16.00 ms, mean of 1\n");
  EXPECT_THAT(read_text(folder() / "p.svg"), HasSubstr("width=\"1920\" height=\"768\""));
  EXPECT_EQ(hetu("timeline plan.json -o q.svg").out, "");
}

TEST_F(TimelineCommand, LabelsARunThatMeansNothing) {
  std::string text = read_text(folder() / "plan.json");
  const std::size_t at = text.find("\"plan\":");
  ASSERT_NE(at, std::string::npos);
  text.insert(at, "\"meaningless\":\"one-byte:p2p\",");
  file("half.json", text);
  const Outcome o = hetu("timeline half.json --title mine");
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, StartsWith("mine, meaningless (--payload one-byte:p2p)\n"));
}

TEST_F(TimelineCommand, PrintsAGridWithoutAFile) {
  const Outcome o = hetu("timeline plan.json");
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out,
              StartsWith("1f1b: 3 stages, 4 micro-batches\n\npredicted\nmakespan 18 units,"));
  EXPECT_THAT(o.out, HasSubstr("\nw2 |.  .  F0 B0--- F1 B1---"));
}

TEST_F(TimelineCommand, RefusesInOneLine) {
  file("torn.json", "{\"traceEvents\": [");
  file("empty.json", "{\"traceEvents\": []}");
  file("far.json", R"({"traceEvents":[{"ph":"X","pid":0,"tid":2000000000,"ts":0,"dur":1,)"
                   R"("args":{"kind":"F","stage":0,"micro":0,"part":0,"step":0}}]})");
  for (const auto& [arguments, words] : std::vector<std::pair<std::string, std::string>>{
           {"", "no TRACE"},
           {"plan.json --titles a,b -o x.svg", "--titles: 2 titles for 1 traces"},
           {"plan.json --height 90", "--height and --beside are for --format svg"},
           {"plan.json --height 5 -o x.svg", "expected 20 to 2000 mm"},
           {"missing.json -o x.svg", "missing.json: cannot be opened"},
           {"torn.json -o x.svg", "torn.json: not a Hetu trace"},
           {"empty.json -o x.svg", "no events"},
           {"far.json -o x.svg", "'tid' must be from 0 to 1000000, got 2000000000"},
           {"plan.json -o x.gif",
            "-o x.gif: unknown suffix '.gif'; known: .txt, .svg, .pdf, .png, .html"},
           {"plan.json -o x.svg --step 3", "step 3 is not in the trace"},
           {"plan.json -o x.svg --steps 0", "--steps"},
           {"plan.json -o x.svg --format gif", "unknown 'gif'"},
           {"plan.json -o x.html --style profile", "--style profile"}}) {
    const Outcome o = hetu("timeline " + arguments);
    EXPECT_EQ(o.status, 2) << arguments;
    EXPECT_EQ(o.out, "") << arguments;
    EXPECT_THAT(o.err, StartsWith("hetu timeline: ")) << arguments;
    EXPECT_THAT(o.err, HasSubstr(words)) << arguments;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    EXPECT_FALSE(std::filesystem::exists(folder() / "x.svg")) << arguments;
  }
}

}  // namespace
}  // namespace hetu
