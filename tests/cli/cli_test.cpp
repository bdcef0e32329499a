// Runs the hetu binary as a user does, and checks its output streams and exit status.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/run_hetu.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Cli, RehearsesAPlanWithAThreadPerWorker) {
  const Outcome o = hetu(
      "rehearse 1f1b --stages 3 --micro-batches 4 --time-unit 3ms --repeat 1 --trace r.json "
      "--format json");
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("\"ratio\": "));
  EXPECT_THAT(o.out, HasSubstr("\"makespan\": 18.0"));
  const std::string trace = read_text(folder() / "r.json");
  EXPECT_THAT(trace, HasSubstr("\"pid\":0"));
  EXPECT_THAT(trace, HasSubstr("\"pid\":1"));
  for (const char* bad : {"--time-unit 3", "--payload -1", "--repeat 0", "--format csv"}) {
    const Outcome refused = hetu(fmt::format("rehearse 1f1b --stages 2 --micro-batches 2 {}", bad));
    EXPECT_EQ(refused.status, 2) << bad;
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  }
}

TEST(Cli, SimulatesPipelinesThatAverageInGroups) {
  const std::string run =
      "simulate pipedream --stages 2 --micro-batches 8 --steps 20 --pipelines 4 --allreduce 0.1 "
      "--slow pipeline=1,factor=2 --sync-method ";
  const Outcome o = hetu(run + "preduce --sync-period 5 --format json --group-log g.jsonl");
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("\"median_size\": "));
  // 3.5 pipelines with a throughput of a third each
  EXPECT_THAT(o.out, HasSubstr("\"throughput\": 1.16"));
  const std::string log = read_text(folder() / "g.jsonl");
  EXPECT_THAT(log, StartsWith("{\"run\":0,\"time_us\":"));
  EXPECT_GT(std::count(log.begin(), log.end(), '\n'), 200);
  EXPECT_THAT(hetu(run + "adpsgd --format trace").out, HasSubstr("PARTIAL_REDUCE"));
  EXPECT_THAT(hetu(run + "adpsgd-lockstep").out, HasSubstr("makespan"));
}

TEST(Cli, DrawsARefusedPlanWithThePlaceMarked) {
  // One plan holds only computations. The other is refused only after lowering, because it has no
  // slots.
  file("cycle.csv", "0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n");
  file("valid.csv", "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
  for (const char* plan : {"cycle.csv", "valid.csv --send-slots 0"}) {
    const Outcome told = hetu(fmt::format("verify {}", plan));
    ASSERT_EQ(told.status, 1) << told.err;
    for (const char* format : {"svg", "html"}) {
      const Outcome o = hetu(fmt::format("schedule {} --format {} -o r.{}", plan, format, format));
      EXPECT_EQ(o.status, 1) << plan;
      EXPECT_EQ(o.err, told.err) << plan;
      const std::string figure = read_text(folder() / fmt::format("r.{}", format));
      EXPECT_THAT(figure, HasSubstr(": refused"));
      EXPECT_THAT(figure, HasSubstr("is at cell"));
    }
  }
  // Formats without a figure write nothing.
  EXPECT_EQ(hetu("schedule cycle.csv --format csv -o none.csv").status, 1);
  EXPECT_FALSE(std::filesystem::exists(folder() / "none.csv"));
}

TEST(Cli, DrawsThreeIterationsInTheProfileStyle) {
  const std::string plan = "chimera --stages 4 --micro-batches 4 --style profile --format svg";
  for (const char* command : {"schedule", "simulate"}) {
    const Outcome o = hetu(fmt::format("{} {}", command, plan));
    EXPECT_EQ(o.status, 0) << o.err;
    EXPECT_THAT(o.out, HasSubstr(">chimera: 4 stages, 4 micro-batches [GPU util. "));
    EXPECT_THAT(o.out, HasSubstr(">GPU 4</text>"));
    EXPECT_THAT(o.out, HasSubstr("flush @ GPU1"));
  }
}

TEST(Cli, PrintsAndPredictsThePlansOfEveryMethod) {
  for (const char* plan :
       {"gpipe --stages 4 --micro-batches 8", "1f1b --stages 4 --micro-batches 8",
        "dapple --stages 4 --micro-batches 8", "dp --micro-batches 8",
        "chimera --stages 4 --micro-batches 6 --pairs 2",
        "chimera --stages 4 --micro-batches 9 --concat halving --sync eager-opt --allreduce 2",
        "pipedream-2bw --stages 4 --micro-batches 4 --steps 3",
        "varuna --stages 4 --micro-batches 8 --recompute 1 --latency 1 --runtime-rule",
        "auto --stages 4 --micro-batches 8 --chunks 2 --memory-limit 3"}) {
    for (const char* command : {"schedule", "verify", "simulate"}) {
      const Outcome o = hetu(fmt::format("{} {}", command, plan));
      EXPECT_EQ(o.status, 0) << o.err;
      EXPECT_EQ(o.err, "");
      EXPECT_FALSE(o.out.empty());
    }
    const Outcome one = hetu(fmt::format("verify {}", plan));
    EXPECT_EQ(std::count(one.out.begin(), one.out.end(), '\n'), 1);
    for (const char* format : {"grid", "csv", "json", "svg", "html", "trace"}) {
      for (const char* command : {"schedule", "simulate"}) {
        const Outcome o =
            hetu(fmt::format("{} {} --format {} -o out.{}", command, plan, format, format));
        EXPECT_EQ(o.status, 0) << o.err;
        EXPECT_EQ(o.out, "");
        EXPECT_FALSE(read_text(folder() / fmt::format("out.{}", format)).empty());
      }
    }
  }
}

// Options that only some methods take must change the output.
TEST(Cli, OptionsOfMethodsReachThem) {
  struct Case {
    const char* arguments;
    const char* shows;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"simulate chimera --stages 4 --micro-batches 8 --concat doubling",
            "\"makespan\": 27.0"},
           {"simulate chimera --stages 4 --micro-batches 8 --concat best", "\"makespan\": 26.0"},
           {"simulate chimera --stages 4 --micro-batches 4 --pairs 2 --backward 1",
            "\"makespan\": 8.0"},
           {"simulate chimera --stages 8 --micro-batches 8 --allreduce 3 --sync end",
            "\"step_time\": 42.0"},
           {"simulate chimera --stages 8 --micro-batches 8 --allreduce 3 --sync eager-opt",
            "\"step_time\": 39.0"},
           {"simulate pipedream --stages 4 --micro-batches 4 --steps 6", "\"steady_bubble\": 0.0"},
           {"simulate hetpipe --stages 4 --micro-batches 4 --steps 6", "\"steps\": 6"},
           {"simulate varuna --stages 4 --micro-batches 5 --recompute 1 --latency 1",
            "\"makespan\": 35.0"},
           {"simulate varuna --stages 4 --micro-batches 5 --recompute 1 --latency 1 --runtime-rule",
            "\"makespan\": 30.0"},
           {"schedule varuna --stages 4 --micro-batches 5 --runtime-rule",
            "\"run_policy\": \"forward-before-late-gradient\""},
           {"simulate zb-2p --stages 4 --micro-batches 12", "\"span_bubble_rate\": 0.0"},
           {"simulate zb-2p --stages 4 --micro-batches 12 --memory-limit 1", "\"makespan\": 108.0"},
           {"simulate auto --stages 4 --micro-batches 12 --memory-limit 8",
            "\"span_bubble_rate\": 0.0"},
       }) {
    const Outcome o = hetu(fmt::format("{} --format json", c.arguments));
    EXPECT_EQ(o.status, 0) << o.err;
    EXPECT_THAT(o.out, HasSubstr(c.shows)) << c.arguments;
  }
  // Versions of a file follow the rule that the options give.
  hetu("schedule pipedream-2bw --stages 3 --micro-batches 4 --steps 3 --format csv -o w.csv");
  EXPECT_THAT(hetu("verify w.csv --steps 3 --version-rule lag1").out, HasSubstr("versions 2"));
  EXPECT_EQ(hetu("verify w.csv --steps 3").status, 1);
  EXPECT_EQ(hetu("verify w.csv --steps 3 --version-rule wave").status, 1);
}

TEST(Cli, FilesTravelThroughAllCommands) {
  ASSERT_EQ(hetu("schedule 1f1b --stages 3 --micro-batches 5 --format csv -o p.csv").status, 0);
  ASSERT_EQ(hetu("schedule 1f1b --stages 3 --micro-batches 5 --format json -o p.json").status, 0);
  ASSERT_EQ(
      hetu("schedule 1f1b --stages 3 --micro-batches 5 --lowered --format csv -o l.csv").status, 0);
  const std::string direct =
      hetu("simulate 1f1b --stages 3 --micro-batches 5 --latency 0.5 --format json").out;
  for (const char* source : {"p.csv", "p.json", "l.csv"}) {
    EXPECT_EQ(hetu(fmt::format("verify {}", source)).status, 0);
    const std::string read =
        hetu(fmt::format("simulate {} --latency 0.5 --format json", source)).out;
    EXPECT_EQ(read.substr(read.find("\"stages\"")), direct.substr(direct.find("\"stages\"")))
        << source;
  }
  // The trace of a simulation holds the costs of the simulation.
  ASSERT_EQ(hetu("simulate p.json --forward 3 --backward 4 --format trace -o t.json").status, 0);
  EXPECT_EQ(hetu("simulate p.json --costs t.json --format csv").status, 0);
  EXPECT_THAT(hetu("simulate p.json --costs t.json --format json").out,
              HasSubstr("\"makespan\": 49.0"));
}

// torch's table of DualPipeV marks pairs of instructions to run as one. Run separately, they take
// less time.
TEST(Cli, PairsOfAFileRunAsTwoWhereThatIsAsked) {
  const std::string plan = "dualpipev --stages 4 --micro-batches 8 --pair-semantics atomic";
  hetu(fmt::format("schedule {} --format csv -o pairs.csv", plan));
  EXPECT_THAT(read_text(folder() / "pairs.csv"), HasSubstr("OVERLAP_F_B"));
  for (const auto& [how, makespan] :
       {std::pair{"", 27.8}, std::pair{"--pair-semantics atomic", 27.8},
        std::pair{"--pair-semantics split", 26.1}}) {
    const Outcome o = hetu(fmt::format("simulate pairs.csv --latency 0.05 --format json {}", how));
    EXPECT_EQ(o.status, 0) << o.err;
    EXPECT_NEAR(nlohmann::json::parse(o.out)["makespan"], makespan, 1e-9) << how;
  }
}

TEST(Cli, TheJsonIsTheContracts) {
  const std::string out = hetu("simulate 1f1b --stages 2 --micro-batches 4 --format json").out;
  for (const char* key :
       {"method", "stages", "micro_batches", "time_unit", "makespan", "ideal", "bubble_fraction",
        "bubble_overhead", "span_bubble_rate", "workers", "busy", "start", "end",
        "peak_activations", "weight_versions", "step_time", "throughput"})
    EXPECT_THAT(out, HasSubstr(fmt::format("\"{}\":", key)));
  EXPECT_THAT(out, HasSubstr("\"makespan\": 15.0"));
}

TEST(Cli, PrintsTheDeadlockOfUnbufferedSendsAndExitsWithOne) {
  const Outcome o = hetu("verify 1f1b --stages 2 --micro-batches 4 --send-slots 0");
  EXPECT_EQ(o.status, 1);
  EXPECT_EQ(o.out, "");
  EXPECT_EQ(o.err,
            "schedule deadlocks with 0 send slots (messages that may wait between two workers):\n"
            "  worker 0 is at cell 4 with messages, after its 0F1: 0SEND_F1 waits for 1RECV_F1\n"
            "  worker 1 is at cell 4 with messages, after its 1B0: 1SEND_B0 waits for 0RECV_B0\n");
  EXPECT_EQ(hetu("verify 1f1b --stages 2 --micro-batches 4 --send-slots 1").status, 0);
  EXPECT_EQ(hetu("verify gpipe --stages 2 --micro-batches 4 --send-slots 0").status, 0);
}

TEST(Cli, HelpNamesEveryOptionAndMethod) {
  EXPECT_EQ(hetu("--help").status, 0);
  EXPECT_THAT(hetu("--version").out, StartsWith("hetu "));
  const Outcome o = hetu("schedule 1f1b --help");
  EXPECT_EQ(o.status, 0);
  for (const char* name :
       {"--stages", "--send-slots", "--costs", "-o", "gpipe", "1f1b", "dp", "any M >= 1"})
    EXPECT_THAT(o.out, HasSubstr(name));
  EXPECT_EQ(hetu("").status, 2);
}

// A file that lacks a whole micro-batch is a valid plan of fewer, so the verdict says what it has
// counted.
TEST(Cli, VerdictSaysWhatIsCountedAndHowGradientsAreAdded) {
  file("two.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  const std::string counted = "2 micro-batches (counted in the file; --micro-batches M checks";
  EXPECT_THAT(hetu("verify two.csv").out, HasSubstr(counted));
  EXPECT_THAT(hetu("verify two.csv --micro-batches 2").out, Not(HasSubstr("counted")));
  EXPECT_EQ(hetu("verify two.csv --micro-batches 3").status, 1);
  EXPECT_THAT(hetu("verify two.csv").out,
              HasSubstr("; gradients added in the order of micro-batches (with --sums tree: 1 term "
                        "per stage)\n"));
  EXPECT_THAT(hetu("verify gpipe --stages 2 --micro-batches 2").out, Not(HasSubstr("counted")));
  file("turned.csv", "0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n");
  EXPECT_THAT(hetu("verify turned.csv").out,
              HasSubstr("; gradients of stage 0 added in another order than that of micro-batches, "
                        "which changes last bits"));
}

TEST(Cli, CountsWithTheRightNouns) {
  EXPECT_THAT(hetu("verify 1f1b --stages 1 --micro-batches 1 --send-slots 1").out,
              HasSubstr("valid: 1 stage, 1 micro-batch, 1 send slot; "));
  const std::string looped = "interleaved-1f1b --stages 2 --micro-batches 4";
  EXPECT_THAT(hetu("verify " + looped).out,
              HasSubstr("valid: 2 workers, 4 stages, 4 micro-batches, unbounded send slots; "));
  EXPECT_THAT(hetu("simulate " + looped).out,
              StartsWith("interleaved-1f1b: 2 workers, 4 stages, 4 micro-batches\n"));
  EXPECT_THAT(hetu("simulate gpipe --stages 2 --micro-batches 2").out, HasSubstr(" = 1 unit\n"));
}

// A limit without a unit follows the published count, in which I frees a half. Bytes are kept until
// W.
TEST(Cli, CountsActivationsByItsRuleAndBytesUntilW) {
  file("late.csv", "0F0,0F1,0I0,0I1,0F2,0F3,0I2,0I3,0W0,0W1,0W2,0W3\n");
  file("bytes.json", R"({"stages": [{"activation_bytes": 1048576}]})");
  EXPECT_EQ(hetu("verify late.csv --memory-limit 3").status, 0);
  EXPECT_EQ(hetu("verify late.csv --memory-limit 2.5").status, 1);
  const std::string bytes = "verify late.csv --costs bytes.json --memory-limit ";
  EXPECT_EQ(hetu(bytes + "4MiB").status, 0);
  const Outcome o = hetu(bytes + "3.9MiB");
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.err, HasSubstr("worker 0 peaks at 4.0 MiB"));
}

TEST(Cli, HelpOfVerifyLeavesOutFiguresAndRuns) {
  const std::string help = hetu("verify --help").out;
  for (const char* name : {"--send-slots", "--memory-limit", "--costs", "--sync-method"})
    EXPECT_THAT(help, HasSubstr(std::string("\n  ") + name));
  for (const char* name : {"--style", "--width", "--jitter", "--slow", "--group-options"})
    EXPECT_THAT(help, Not(HasSubstr(std::string("\n  ") + name)));
  EXPECT_EQ(hetu("verify 1f1b --stages 2 --micro-batches 2 --jitter 0.1").status, 0);
}

TEST(Cli, NamesTheUnitsOfAMemoryLimit) {
  const Outcome o = hetu("verify 1f1b --stages 2 --micro-batches 4 --memory-limit 8GB");
  EXPECT_EQ(o.status, 2);
  EXPECT_THAT(o.err, HasSubstr("bytes with KiB, MiB or GiB, such as 16GiB; got '8GB'"));
}

TEST(Cli, ShowsTheCutOfBlocks) {
  file("cut.json", R"({"stages": [{}, {}], "blocks": [{}, {}, {}, {}, {}]})");
  const std::string run = "simulate zb-v --stages 2 --micro-batches 4 --costs cut.json ";
  EXPECT_THAT(hetu(run).out, HasSubstr("blocks per stage (--partition): 2,1,1,1\n"));
  EXPECT_THAT(hetu(run + "--partition 1,1,1,2").out, Not(HasSubstr("blocks per stage")));
}

TEST(Cli, WrongPlansExitWithOneAndNameTheirWorkers) {
  struct Case {
    const char* text;
    const char* says;
  };
  for (const Case& c :
       {Case{"0F0,0B0\n1B0,1F0\n",
             "1B0 stands before 1F0 in the row of worker 1:\n"
             "  worker 1 is at cell 1: 1B0 waits for 1F0, which is cell 2"},
        {"0F0,0F1,0B0,0B1\n1F0,1B0,1F1,2B1\n",
         "plan has a stage 2, but there are stages 0 to 1 (2 workers):\n  worker 1 at cell 4: 2B1"},
        {"0F0\n1F0,1B0\n", "worker 0 never runs 0B0"},
        {"0F0,0B0,0B0\n1F0,1B0\n", "0B0 occurs twice:"},
        {"0F0,1B0\n1F0,0B0\n", "is misplaced"},
        {"0F0,1F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
         "1F1 is misplaced:\n  worker 0 at cell 2: 1F1, but "
         "stage 1 is on worker 1"},
        {"0F0,0F1,0B0,0UPDATE,0B1,0UPDATE\n1F0,1B0,1F1,1B1,1UPDATE\n", "weight versions"}}) {
    file("wrong.csv", c.text);
    for (const char* command : {"schedule", "verify", "simulate"}) {
      const Outcome o = hetu(fmt::format("{} wrong.csv", command));
      EXPECT_EQ(o.status, 1) << c.says;
      EXPECT_EQ(o.out, "");
      EXPECT_THAT(o.err, HasSubstr(c.says));
      EXPECT_THAT(o.err, HasSubstr("\n  worker "));
    }
  }
  EXPECT_EQ(hetu("verify 1f1b --stages 4 --micro-batches 8 --memory-limit 4").status, 0);
  const Outcome o = hetu("verify 1f1b --stages 4 --micro-batches 8 --memory-limit 3");
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.err, HasSubstr("worker 0 peaks at 4"));
}

TEST(Cli, BadInputIsOneLineAndExitsWithTwo) {
  file("empty.csv", "");
  file("cut.csv", "0F0,0F1,0B");
  file("unknown.csv", "0F0,0X0\n");
  file("long.csv", std::string(100 << 20, 'F'));
  file("bad.json", "{\"workers\": [");
  file("costs.json", R"({"stages": [{"forward": -1}]})");
  file("three.json", R"({"stages": [{}, {}, {}]})");
  file("table.csv", "bs,time_f,time_b\n1,1,2\n");
  file("one.csv", "0F0,0B0\n");
  file("words.json", R"({"concat": "halvin", "workers": [{"prologue": ["0F0", "0B0"]}]})");
  file("pairs.json", R"({"pair_semantics": "both", "workers": [{"prologue": ["0F0", "0B0"]}]})");
  file("semicolons.csv", "0F0;0B0\n1F0;1B0\n");
  file("gap.csv", "0F0,0B0\n1F0,1B0,5F0\n");
  file("keep.txt", "untouched");
  const std::string sizes = "1f1b --stages 2 --micro-batches 2 --pipelines 2 ";
  EXPECT_EQ(hetu("schedule " + sizes + "--lowered --format json -o lowered.json").status, 0);
  const std::string plan = "1f1b --stages 2 --micro-batches 4 ";
  struct Case {
    std::string arguments;
    const char* says;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"bogus", "unknown 'bogus'; known: schedule, verify"},
           {"simulat", "unknown 'simulat'; did you mean 'simulate'? known: schedule, verify"},
           {"verify", "no METHOD or FILE given"},
           {"verify foo", "unknown method 'foo'; the methods, with other names in brackets: gpipe"},
           {"verify 1f1b gpipe", "remove 'gpipe'"},
           {"verify 1f1b", "1f1b needs --stages P"},
           {"verify 1f1b --stages 4", "1f1b needs --micro-batches M"},
           {"verify dp --stages 4 --micro-batches 1",
            "dp takes P = 1 stages, got P = 4; nearest legal: 1"},
           {"verify chimera --stages 5 --micro-batches 4", "nearest legal: 4 or 6"},
           {"verify chimera --stages 8 --micro-batches 4 --pairs 2 --concat doubling",
            "one pair of pipelines"},
           {"verify pipedream-2bw --stages 4 --micro-batches 2", "nearest legal: 4"},
           {"verify auto --stages 4 --micro-batches 8 --memory-limit 0.5",
            "memory limit must be at least 1 micro-batch, got 0.5"},
           {"verify varuna --stages 4 --micro-batches 8 --with-recompute", "recomputes already"},
           {"verify zb-1p --stages 4 --micro-batches 8 --runtime-rule", "does not apply to zb-1p"},
           {"verify 1f1b --stages 0 --micro-batches 1", "--stages: expected a whole number from 1"},
           {"verify 1f1b --stages 99999999999999999999 --micro-batches 1",
            "--stages: expected a whole number"},
           {"verify 1f1b --stages 200000 --micro-batches 200000", "more than a plan can hold"},
           {"verify " + plan + "--stage 4", "did you mean '--stages'?"},
           {"verify " + plan + "--send-slots", "--send-slots needs a value"},
           {"verify " + plan + "--lowered=1", "--lowered takes no value"},
           {"verify " + plan + "--chunks 2", "--chunks does not apply to 1f1b"},
           {"verify " + plan + "--pairs 2", "--pairs does not apply to 1f1b"},
           {"verify " + plan + "--replicas 2", "--replicas is for a FILE"},
           {"verify semicolons.csv",
            "line 1, cell 1: cells are separated by commas, not by semicolons"},
           {"verify gap.csv", "stage 5 is present (worker 1 at cell 3: 5F0)"},
           {"verify " + plan + "--memory-limit 1GiB", "needs --costs with activation_bytes"},
           {"simulate " + plan + "--forward nan",
            "--forward: expected a finite number >= 0, got 'nan'"},
           {"simulate " + plan + "--forward -1",
            "--forward: expected a finite number >= 0, got '-1'"},
           {"simulate " + plan + "--backward 2 --input-grad 1",
            "--backward can't be combined with --input-grad"},
           {"simulate " + plan + "--costs costs.json",
            "'forward' must be a finite number >= 0, got -1"},
           {"simulate " + plan + "--costs three.json", "costs of 3 stages do not fit a plan of 2"},
           {"simulate " + plan + "--costs table.csv", "needs --micro-batch-size"},
           {"simulate " + plan + "--costs none.json", "none.json: cannot be opened"},
           {"simulate " + plan + "--costs three.json --forward 1",
            "--costs can't be combined with --forward"},
           {"simulate " + plan + "--speed 1,0", "--speed: expected a finite number >= 1e-09"},
           {"simulate " + plan + "--speed 1,1,1", "speed: 3 numbers for 2 workers"},
           {"simulate " + plan + "--slow factor=2", "needs a pipeline or a worker"},
           {"simulate " + plan + "--slow pipeline=7,factor=2", "slow: there is no pipeline 7"},
           {"simulate " + plan + "--slow pipeline=0,worker=1,factor=2", "a worker, not both"},
           {"simulate " + plan + "--slow worker=1,factor=2,factor=3", "'factor' is given twice"},
           {"simulate " + plan + "--slow worker=-1,factor=2", "worker: expected a whole number"},
           {"simulate " + plan + "--slow worker=1,least=-1",
            "least: expected a finite number >= 0"},
           {"simulate " + plan + "--slow worker=1,factor=inf", "factor: expected a finite number"},
           {"simulate " + plan + "--slow host=1,factor=2", "--slow: unknown 'host'; known: pipel"},
           {"simulate " + plan + "--sync-method preduce --pipelines 2",
            "such as pipedream, but '1f1b' has no updates in its rows"},
           {"simulate " + plan + "--sync-period 5",
            "--sync-period is for --sync-method preduce, not allreduce"},
           {"simulate pipedream --stages 2 --micro-batches 4 --pipelines 2 --sync-method preduce "
            "--group-options wiat=1",
            "--group-options: unknown 'wiat'"},
           {"simulate " + plan + "--group-log g.jsonl", "--sync-method allreduce has no groups"},
           {"simulate pipedream --stages 2 --micro-batches 4 --sync-method preduce",
            "groups need at least 2 pipelines, got 1"},
           {"simulate pipedream --stages 2 --micro-batches 40 --pipelines 4 --sync-method preduce "
            "--min-group 5",
            "the minimum group size must be from 1 to 4, the number of pipelines, got 5"},
           {"simulate " + plan + "--format html --style profile", "profile is for --format svg"},
           {"simulate " + plan + "--style gantt", "unknown 'gantt'"},
           {"simulate " + plan + "--format gif", "unknown 'gif'"},
           {"simulate " + plan + "--width 84",
            "--width is for --format svg, pdf and png, not grid"},
           {"simulate " + plan + "--format csv --title x", "--title is for figures and grids"},
           {"simulate " + plan + "-o missing/x.json --format json", "cannot be written"},
           {"verify none.csv", "none.csv: cannot be opened"},
           {"verify .", "is a directory"},
           {"verify empty.csv", "empty.csv: the file is empty"},
           {"verify cut.csv", "cut.csv: line 1, cell 3: action '0B'"},
           {"verify unknown.csv", "unknown.csv: line 1, cell 2: unknown action '0X0'"},
           {"verify long.csv", "long.csv: line 1 is 104857600 bytes long"},
           {"verify bad.json", "bad.json: "},
           {"verify cut.csv --chunks 2", "--chunks does not apply to a FILE"},
           {"verify one.csv --pair-semantics atomic",
            "one.csv: pair semantics atomic needs a pair"},
           {"simulate lowered.json --sync end", "--sync end: the plan is lowered already"},
           {"verify words.json", "'concat' must be \"direct\""},
           {"verify pairs.json", "pairs.json: unknown pair semantics 'both'; known: split, atomic"},
       }) {
    const Outcome o = hetu(c.arguments);
    EXPECT_EQ(o.status, 2) << c.arguments << "\n" << o.err;
    EXPECT_EQ(o.out, "") << c.arguments;
    EXPECT_THAT(o.err, HasSubstr(c.says)) << c.arguments;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    EXPECT_LT(o.err.size(), 600u);
  }
  // A failed command must keep the existing file and leave no other file.
  EXPECT_EQ(hetu("schedule 1f1b --stages 2 -o keep.txt").status, 2);
  EXPECT_EQ(read_text(folder() / "keep.txt"), "untouched");
  for (const auto& entry : std::filesystem::directory_iterator(folder()))
    EXPECT_THAT(entry.path().string(), Not(HasSubstr(".tmp")));
}

// Numbers are bounded on input, so that no sum, product or quotient of them is infinite.
TEST(Cli, BoundsEveryNumber) {
  const std::string sizes = " --stages 2 --micro-batches 4 --bytes 1 --";
  for (const char* method : {"auto", "1f1b"}) {
    for (const char* option :
         {"forward", "backward", "input-grad", "weight-grad", "recompute", "update", "allreduce",
          "latency", "bytes", "bandwidth", "jitter", "hetero", "speed"}) {
      for (const char* value : {"1e308", "1e16", "1e999", "inf", "nan", "-1"}) {
        const Outcome o =
            hetu(fmt::format("simulate {}{}{} {} --format json", method, sizes, option, value));
        EXPECT_EQ(o.status, 2) << option << " " << value << o.out;
        EXPECT_THAT(o.err, HasSubstr(fmt::format("--{}: expected a ", option))) << value;
        EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
      }
    }
  }
  const Outcome largest =
      hetu("simulate auto" + sizes + "forward 1e15 --latency 1e15 --speed 1e-9 --bandwidth 1e-9");
  EXPECT_EQ(largest.status, 0) << largest.err;
  EXPECT_THAT(largest.out, Not(HasSubstr("inf")));
  file("huge.json", R"({"stages": [{"forward": 1e308}]})");
  file("slow.json", R"({"stages": [{}], "link": {"bandwidth": 1e-300}})");
  file("speed.json", R"({"stages": [{}], "workers": [{"speed": 1e-300}]})");
  file("huge.csv", "bs,time_f,time_b\n1,1e308,1\n");
  for (const auto& [arguments, message] : std::vector<std::pair<std::string, std::string>>{
           {"--bandwidth 1e-300", "--bandwidth must be 0 (unlimited) or at least 1e-09"},
           {"--costs huge.json", "'forward' must be at most 1000000000000000, got 1e+308"},
           {"--costs slow.json", "'bandwidth' must be 0 (unlimited) or at least"},
           {"--costs speed.json", "'speed' must be from 1e-09"},
           {"--costs huge.csv --micro-batch-size 1 --blocks-per-stage 1", "huge.csv:2: expected a"},
           {"--memory-limit 1e300GiB", "--memory-limit: expected a number of at most"},
           {"--memory-limit 9999999GiB",
            "--memory-limit: expected at most 1000000000000000 bytes"}}) {
    const Outcome o = hetu("simulate 1f1b --stages 2 --micro-batches 4 " + arguments);
    EXPECT_EQ(o.status, 2) << arguments;
    EXPECT_THAT(o.err, HasSubstr(message)) << arguments;
  }
  const Outcome waits =
      hetu("rehearse 1f1b --stages 2 --micro-batches 2 --forward 1e15 --time-unit 1s --repeat 1");
  EXPECT_EQ(waits.status, 2) << waits.out;
  EXPECT_THAT(waits.err, HasSubstr("a rehearsal takes at most a day"));
}

}  // namespace
}  // namespace hetu
