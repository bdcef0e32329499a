#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/run_hetu.h"

namespace hetu {
namespace {

using testing::HasSubstr;

// Returns a timeline of one node and one micro-batch, with a bubble of 10 between its passes.
// `late` shifts all times of the node.
std::string timeline(int late) {
  const auto at = [late](int t) { return t + late; };
  return nlohmann::json{{"start_end", {{0, 1}}},
                        {"call_forward", {{at(0), at(10)}}},
                        {"call_backward", {{at(20), at(40)}}},
                        {"cov_kron_A:fc", {{at(50), at(54)}}}}
      .dump();
}

TEST(FillCommand, ReportsUsageAndWritesOrders) {
  file("run_node10_timeline.json", timeline(1));
  file("run_node9_timeline.json", timeline(0));
  const Outcome o = hetu(
      "fill run_node10_timeline.json,run_node9_timeline.json --save_path orders.pickle "
      "--print_workloads");
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, testing::StartsWith("node0:1 pipeline iterations (usage: 85.00 %)\n"
                                         "-- start -- 0 0 0\ncall_forward 0 10 10\n"
                                         "cov_kron_A:fc 10 14 4\nbubble 14 20 6\n"));
  EXPECT_THAT(o.out, HasSubstr("\nnode1:1 pipeline iterations (usage: 85.00 %)\n"));
  EXPECT_THAT(read_text(folder() / "orders.pickle"), HasSubstr("cov_kron_A:fc"));
  ASSERT_EQ(hetu("fill run_node9_timeline.json --save_path orders.json").status, 0);
  const auto orders = nlohmann::json::parse(read_text(folder() / "orders.json"));
  EXPECT_EQ(orders[0][0][2], "cov_kron_A:fc");
}

TEST(FillCommand, RefusesInOneLine) {
  file("bad.json", "{}");
  file("good.json", timeline(0));
  for (const auto& [arguments, words] :
       {std::pair{"fill", "no TIMELINE; usage: hetu fill"},
        std::pair{"fill none.json", "none.json"}, std::pair{"fill bad.json", "start_end"},
        std::pair{"fill good.json --slack 0.5", "slack must be at least 1, got 0.5"}}) {
    const Outcome o = hetu(arguments);
    EXPECT_NE(o.status, 0) << arguments;
    EXPECT_THAT(o.err, HasSubstr(words)) << arguments;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
}

// A value that is stored and recalled twice doubles each time. These 149 bytes would expand to
// gigabytes.
TEST(FillCommand, RefusesAPickleThatRepeatsItself) {
  std::string doubling = "\x80\x02K\x01";
  for (int i = 0; i < 24; ++i) doubling += std::string("q\x01h\x01\x86", 5);
  file("doubling.pickle", doubling + ".");
  const Outcome o = hetu("fill doubling.pickle");
  EXPECT_EQ(o.status, 2) << o.out;
  EXPECT_THAT(o.err, HasSubstr("it has too many copies of the same values"));
  // Storing alone can repeat the text as well.
  std::string remembering = "\x80\x02(" + std::string(200000, 'N') + "t";
  for (int i = 0; i < 250; ++i) remembering += {'q', static_cast<char>(i)};
  file("remembering.pickle", remembering + ".");
  EXPECT_THAT(hetu("fill remembering.pickle").err,
              HasSubstr("it has too many copies of the same values"));
}

TEST(FillCommand, RefusesDeepNesting) {
  std::string lists = "\x80\x02";
  constexpr int kDeep = 200000;
  lists += std::string(kDeep, ']') + std::string(kDeep - 1, 'a') + ".";
  file("deep.pickle", lists);
  std::string tuples = "\x80\x02)";
  for (int i = 0; i < kDeep; ++i) tuples += '\x85';
  file("tuples.pickle", tuples + ".");
  file("deep.json", std::string(kDeep, '[') + std::string(kDeep, ']'));
  for (const char* name : {"deep.pickle", "tuples.pickle", "deep.json"}) {
    const Outcome o = hetu(std::string("fill ") + name);
    EXPECT_EQ(o.status, 2) << name;
    EXPECT_THAT(o.err, HasSubstr("nest deeper than 64")) << name;
  }
}

}  // namespace
}  // namespace hetu
