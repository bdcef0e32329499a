#include <gmock/gmock.h>

#include "tests/cli/run_hetu.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(ChooseCommand, RanksUnderALimit) {
  const Outcome o = hetu("choose --stages 4 --micro-batches 8 --memory-limit 2.5 --top 3");
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("\n   1  v-min M=8 "));
  EXPECT_THAT(o.out, HasSubstr("refused, as:\n"));
  EXPECT_THAT(o.out, HasSubstr("plan needs more activations than the limit of 2.5"));
  const Outcome two =
      hetu("choose --stages 4 --methods gpipe,1f1b --micro-batches 4,8 --format json");
  ASSERT_EQ(two.status, 0) << two.err;
  EXPECT_THAT(two.out, HasSubstr("\"time_per_sample\": 4.125"));
  EXPECT_THAT(two.out, Not(HasSubstr("zb-h1")));
}

// A batch of 64: M = 4 takes the row of 16, M = 8 that of 8; there is none for M = 16.
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

// Chimera's published choice for BERT-48 on 32 workers and 512 samples, W = 8, D = 4, B = 8, from
// the times of BERT-large's block on a P100: 128 x (1024 + 1) floats of a sample between stages,
// 10 GB/s, 20 us (assumed: unpublished).
TEST(ChooseCommand, SearchesGridsOfWorkers) {
  const std::string base =
      "choose --workers 32 --global-batch 512 --blocks 48 --costs " HETU_SOURCE_DIR
      "/config/costs/bert-large_p100.csv --bytes 524800 --latency 0.02 --bandwidth 1e7 ";
  const Outcome o = hetu(base + "--memory-limit 16GiB --methods chimera");
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("fastest simulated: chimera W=8 D=4 B=8 N=8\n"));
  EXPECT_THAT(o.out, HasSubstr("chimera W=4 D=8 B=8 N=16 "));
  EXPECT_THAT(o.out, HasSubstr("48 blocks make no 32 equal stages"));
  const Outcome one = hetu(base + "--memory-limit 1GiB --methods gpipe --format json");
  ASSERT_EQ(one.status, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("\"recompute\": true"));
  EXPECT_THAT(one.out, HasSubstr("a worker needs more than 1024.0 MiB"));
  // The unit costs of options: 8 workers, each stage 1 / D of F and B.
  const Outcome units = hetu("choose --workers 8 --global-batch 8 --methods 1f1b");
  ASSERT_EQ(units.status, 0) << units.err;
  EXPECT_THAT(units.out, HasSubstr("1f1b W=8 D=1 B=1 N=1 "));
}

TEST(ChooseCommand, RefusesInOneLine) {
  for (const auto& [arguments, words] : std::vector<std::pair<std::string, std::string>>{
           {"", "needs --stages"},
           {"1f1b --stages 2", "takes options only, got '1f1b'"},
           {"--stages 2 --methods nonsense", "unknown method 'nonsense'"},
           {"--stages 2 --costs missing.json", "missing.json: cannot be opened"},
           {"--stages 2 --micro-batches 0", "--micro-batches"},
           {"--workers 4", "--workers needs --global-batch S"},
           {"--workers 4 --global-batch 8 --stages 2", "--stages says how workers lie"},
           {"--workers 4 --global-batch 8 --micro-batches 2", "not with --micro-batches"},
           {"--workers 4 --global-batch 8 --methods zb-v", "knows gpipe, 1f1b and chimera"},
           {"--workers 4 --global-batch 8 --memory-limit 3", "in bytes"},
           {"--workers 4 --global-batch 8 --asynchronous", "a flush after each step"},
           {"--workers 4 --global-batch 8 --blocks-per-stage 2", "--blocks / D"},
           {"--stages 4 --global-batch 8", "go with --workers"},
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
