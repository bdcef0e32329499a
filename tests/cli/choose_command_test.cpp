#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run_hetu.h"

namespace hetu {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(ChooseCommand, RanksUnderALimit) {
  const Outcome o = hetu("choose --stages 4 --micro-batches 8 --memory-limit 2.5 --top 3");
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("\n   1  v-min M=8 "));
  EXPECT_THAT(o.out, HasSubstr(" refused:\n"));
  EXPECT_THAT(o.out,
              HasSubstr("  plan needs more activations than the limit of 2.5 micro-batches:\n"
                        "    gpipe M=8, gpipe M=8 +recompute, 1f1b M=8, "));
  EXPECT_THAT(o.out,
              HasSubstr("peak: most activations of a worker, in micro-batches: an F adds 1"));
  const Outcome table =
      hetu("choose --stages 4 --micro-batches 8 --memory-limit 2.5 -o table.csv && cat table.csv");
  ASSERT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out,
              AllOf(HasSubstr("\n1,v-min,8,"), HasSubstr("\n,gpipe,8,1,1,direct,true,")));
  const Outcome two =
      hetu("choose --stages 4 --methods gpipe,1f1b --micro-batches 4,8 --format json");
  ASSERT_EQ(two.status, 0) << two.err;
  EXPECT_THAT(two.out, HasSubstr("\"time_per_sample\": 4.125"));
  EXPECT_THAT(two.out, Not(HasSubstr("zb-h1")));
}

// The one stage has no bytes, but the blocks have, from which two stages are cut.
TEST(ChooseCommand, TakesTheBytesOfBlocks) {
  const std::string block = R"({"activation_bytes": 1048576, "weight_bytes": 1048576})";
  const std::string blocks = R"("blocks": [)" + block + ", " + block + ", " + block + "]";
  file("one.json", R"({"stages": [{"forward": 3}], )" + blocks + "}");
  file("alone.json", "{" + blocks + "}");
  const std::string base = "choose --micro-batches 4 --methods gpipe,1f1b --speed 1,0.5 ";
  for (const char* costs : {"one.json", "alone.json"}) {
    const Outcome o = hetu(base + "--stages 2 --memory-limit 9MiB --costs " + std::string(costs));
    ASSERT_EQ(o.status, 0) << o.err;
    EXPECT_THAT(o.out, HasSubstr("\n   1  1f1b M=4 ")) << costs;
    EXPECT_THAT(o.out, HasSubstr("gpipe M=4")) << costs;
    EXPECT_THAT(o.out, HasSubstr("worker 0 peaks at 10.0 MiB; the limit is 9.0 MiB")) << costs;
    EXPECT_THAT(o.out, HasSubstr("ignores the workers' speeds; hetu plan searches")) << costs;
  }
  const Outcome stage = hetu(
      "choose --stages 1 --micro-batches 4 --methods 1f1b --costs one.json "
      "--memory-limit 9MiB");
  EXPECT_THAT(stage.out,
              HasSubstr("the costs in this number of stages (1) have no activation_bytes"));
  EXPECT_EQ(hetu("simulate 1f1b --stages 2 --micro-batches 4 --costs alone.json").status, 0);
}

// With a batch of 64, M = 4 uses the table row of micro-batch size 16, and M = 8 that of size 8.
// There is no row for M = 16.
TEST(ChooseCommand, ReadsATableRowPerMicroBatchSize) {
  file("blocks.csv", "bs,time_f,time_b,mem_act,mem_param\n8,1,2,100,50\n16,1.5,3,200,50\n");
  const std::string base =
      "choose --stages 4 --costs blocks.csv --blocks-per-stage 1 --batch-size 64 --methods gpipe "
      "--micro-batches 4,8,16 --format json ";
  const Outcome o = hetu(base);
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("\"step_time\": 31.5"));  // (4 + 3) 4.5
  EXPECT_THAT(o.out, HasSubstr("\"step_time\": 33.0"));  // (8 + 3) 3
  EXPECT_THAT(o.out, HasSubstr("no row for a micro-batch size of 4"));
  EXPECT_THAT(hetu(base + "--memory-limit 400MiB").out, Not(HasSubstr("\"recompute\": false,\n"
                                                                      "   \"asynchronous\"")));
}

// Chimera's published choice for BERT-48 on 32 workers and 512 samples is W = 8, D = 4, B = 8. The
// costs are the times of BERT-large's block on a P100: 128 x (1024 + 1) floats per sample between
// stages, 10 GB/s, 20 us (assumed: unpublished).
TEST(ChooseCommand, SearchesGridsOfWorkers) {
  const std::string base =
      "choose --workers 32 --global-batch 512 --blocks 48 --costs " HETU_SOURCE_DIR
      "/config/costs/bert-large_p100.csv --bytes 524800 --latency 0.02 --bandwidth 1e7 ";
  const Outcome o = hetu(base + "--memory-limit 16GiB --methods chimera");
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("fastest simulated: chimera W=8 D=4 B=8 N=8\n"));
  EXPECT_THAT(o.out, HasSubstr("chimera W=4 D=8 B=8 N=16 "));
  EXPECT_THAT(o.out, HasSubstr("48 blocks can't be split into 32 equal stages"));
  const Outcome one = hetu(base + "--memory-limit 1GiB --methods gpipe --format json");
  ASSERT_EQ(one.status, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("\"recompute\": true"));
  EXPECT_THAT(one.out, HasSubstr("a worker needs more than 1024.0 MiB"));
}

// Runs a search and returns its JSON.
nlohmann::json search(const std::string& arguments) {
  const Outcome o = hetu("choose --format json " + arguments);
  EXPECT_EQ(o.status, 0) << o.err;
  return o.status == 0 ? nlohmann::json::parse(o.out) : nlohmann::json::object();
}

// The work of a stage follows from D and B, for costs of any origin. F and B of a micro-batch are B
// / D of the model's. The sum of a stage's gradient takes 1 / D of the model's.
TEST(ChooseCommand, SharesTheModelsCostsAmongStages) {
  file("two.json",
       R"({"stages": [{"forward": 2, "input_grad": 2, "weight_grad": 2},
                      {"forward": 2, "input_grad": 2, "weight_grad": 2}], "allreduce": 6})");
  const std::string grid = "--workers 8 --global-batch 64 --methods gpipe,1f1b ";
  for (const auto& [costs, model, sum] : std::vector<std::tuple<std::string, double, double>>{
           {"", 3, 0},
           {"--forward 4 --backward 8 --allreduce 12", 12, 12},
           {"--micro-batch-size 4 --forward 8 --backward 16", 6, 0},
           {"--costs two.json", 12, 12},
           {"--costs two.json --allreduce 4", 12, 4}}) {
    const nlohmann::json all = search(grid + costs);
    ASSERT_GT(all["found"].size(), 20U) << costs;
    for (const nlohmann::json& c : all["found"]) {
      const double n = c["micro_batches"], d = c["stages"], b = c["micro_batch_size"];
      const double slots = n + d - 1;
      EXPECT_NEAR(c["closed_compute"].get<double>(), slots * model * b / d, 1e-9) << costs << c;
      EXPECT_NEAR(c["closed_allreduce"].get<double>(), c["pipelines"] > 1 ? sum / d : 0, 1e-9);
    }
    // Without messages and sums, the only cost is the bubble, and one stage has no bubble.
    if (sum > 0) continue;
    EXPECT_EQ(all["found"][0]["stages"], 1) << costs;
  }
}

// The sizes are the largest that the options take. No product of them may overflow.
TEST(ChooseCommand, SearchesTheLargestSizes) {
  const nlohmann::json all = search(
      "--workers 65536 --global-batch 268435456 --methods gpipe --top 1 --micro-batch-size "
      "1048576");
  ASSERT_FALSE(all["found"].empty());
  for (const nlohmann::json& c : all["found"])
    EXPECT_EQ(c["pipelines"].get<std::int64_t>() * c["micro_batch_size"].get<std::int64_t>() *
                  c["micro_batches"].get<std::int64_t>(),
              268435456);
}

TEST(ChooseCommand, WritesATableOfGrids) {
  const Outcome o = hetu("choose --workers 4 --global-batch 8 --methods chimera --format csv");
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, StartsWith("rank,method,pipelines,stages,"));
  EXPECT_THAT(o.out, HasSubstr("\n1,chimera,"));
  EXPECT_THAT(o.out, HasSubstr("\n,,,,,,,,,,,,,"));
}

TEST(ChooseCommand, SaysWhichCostsASearchRestsOn) {
  const std::string grid = "choose --workers 4 --global-batch 8 ";
  EXPECT_THAT(hetu(grid).out,
              AllOf(HasSubstr("forward 1, backward 2; each stage takes 1/D\n"),
                    HasSubstr("messages and all-reduces take no time; to include them, give "
                              "--latency"),
                    Not(HasSubstr("equally fast"))));
  EXPECT_THAT(hetu(grid + "--latency 1 --speed 1,1,1,2").out,
              AllOf(Not(HasSubstr("take no time")), HasSubstr("assume equally fast workers")));
  EXPECT_THAT(hetu("choose --help").out, HasSubstr("Each of D stages takes 1/D of the times"));
}

TEST(ChooseCommand, RefusesInOneLine) {
  file("one.json", R"({"stages": [{"forward": 2}]})");
  file("blocks.csv", "bs,time_f,time_b\n8,1,2\n");
  for (const auto& [arguments, words] : std::vector<std::pair<std::string, std::string>>{
           {"", "needs --stages"},
           {"1f1b --stages 2", "takes options only, got '1f1b'"},
           {"--stages 2 --methods nonsense", "unknown method 'nonsense'"},
           {"--stages 2 --costs missing.json", "missing.json: cannot be opened"},
           {"--stages 2 --micro-batches 0", "--micro-batches"},
           {"--workers 4", "--workers needs --global-batch S"},
           {"--workers 4 --global-batch 8 --stages 2", "--stages can't be combined with --workers"},
           {"--workers 4 --global-batch 8 --micro-batches 2", "not --micro-batches"},
           {"--workers 4 --global-batch 8 --methods zb-v", "knows gpipe, 1f1b and chimera"},
           {"--workers 4 --global-batch 8 --memory-limit 3", "in bytes"},
           {"--workers 4 --global-batch 8 --asynchronous", "a flush after each step"},
           {"--workers 4 --global-batch 8 --blocks-per-stage 2", "--blocks / D"},
           {"--workers 4 --global-batch 8 --memory-limit 1GiB", "needs --costs with"},
           {"--stages 4 --memory-limit 1GiB", "needs --costs with"},
           {"--workers 4 --global-batch 8 --blocks 8", "--blocks 8 counts the blocks of a CSV"},
           {"--workers 4 --global-batch 8 --blocks 8 --costs one.json", "the blocks of a CSV"},
           {"--workers 4 --global-batch 8 --costs blocks.csv", "give --blocks L"},
           {"--stages 2 --costs one.json --blocks-per-stage 2", "one.json is not one"},
           {"--stages 4 --global-batch 8", "need --workers"},
           {"--stages 2 --format svg", "unknown 'svg'"}}) {
    const Outcome o = hetu("choose " + arguments);
    EXPECT_EQ(o.status, 2) << arguments;
    EXPECT_THAT(o.err, StartsWith("hetu choose: ")) << arguments;
    EXPECT_THAT(o.err, HasSubstr(words)) << arguments;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
}

}  // namespace
}  // namespace hetu
