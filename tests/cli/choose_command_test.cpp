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

TEST(ChooseCommand, RefusesInOneLine) {
  for (const auto& [arguments, words] : std::vector<std::pair<std::string, std::string>>{
           {"", "needs --stages"},
           {"1f1b --stages 2", "takes options only, got '1f1b'"},
           {"--stages 2 --methods nonsense", "unknown method 'nonsense'"},
           {"--stages 2 --costs missing.json", "missing.json: cannot be opened"},
           {"--stages 2 --micro-batches 0", "--micro-batches"},
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
