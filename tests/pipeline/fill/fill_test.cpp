#include "pipeline/fill/fill.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/text_file.h"
#include "pipeline/fill/pickle.h"
#include "pipeline/fill/timeline_file.h"
#include "tests/temporary_folder.h"

namespace hetu {
namespace {

using testing::HasSubstr;

// Returns GPipe of 4 stages and 4 micro-batches with F 1000 and B 2000. One layer has curvature
// 1600, synchronisation 200 and inversion 1500, for A and B alike.
std::vector<NodeTimeline> gpipe() {
  std::vector<NodeTimeline> nodes;
  for (int s = 0; s < 4; ++s) {
    NodeTimeline node{"node" + std::to_string(s), {{"call_forward", {}}, {"call_backward", {}}}};
    for (int m = 0; m < 4; ++m) {
      const std::int64_t f = 1000 * (s + m), b = 7000 + 2000 * (3 - s + m);
      node.labels[0].intervals.push_back({f, f + 1000});
      node.labels[1].intervals.push_back({b, b + 2000});
    }
    std::int64_t at = 30000;
    for (const auto& [prefix, time] :
         {std::pair{"cov_kron_", 1600}, std::pair{"sync_kron_", 200}, std::pair{"inv_kron_", 1500}})
      for (const char* factor : {"A:fc", "B:fc"}) {
        node.labels.push_back({prefix + std::string(factor), {{at, at + time}}});
        at += time;
      }
    nodes.push_back(node);
  }
  return nodes;
}

// Returns the order of a node's items without the bounds and the switches. Equal neighbours are
// joined, as in "cov_kron_A:fc x4".
std::string order_of(const FilledNode& node) {
  const std::map<std::string, std::string> names = {{"call_forward", "F"}, {"call_backward", "B"}};
  std::vector<std::pair<std::string, int>> runs;
  for (const FilledNode::Item& item : node.items) {
    if (item.label[0] == '-' || item.label[0] == 't') continue;
    const auto known = names.find(item.label);
    std::string name = known != names.end() ? known->second
                                            : item.label.substr(0, item.label.find('_')) +
                                                  item.label[item.label.find(':') - 1];
    if (runs.empty() || runs.back().first != name) runs.emplace_back(name, 0);
    ++runs.back().second;
  }
  std::string text;
  for (const auto& [name, count] : runs)
    text += (text.empty() ? "" : " ") + name + (count > 1 ? std::to_string(count) : "");
  return text;
}

// Source: a synthetic case worked out by hand with the rule of Osawa et al.
TEST(Fill, PlacesTheSyntheticCaseAsTheRuleSays) {
  const std::vector<FilledNode> nodes = fill_bubbles(gpipe(), {});
  const std::vector<std::string> want = {
      "F4 covA4 syncA invA covB4 syncB invB B4", "F4 covA4 syncA invA invB B4 covB4 syncB",
      "invB F4 covA4 syncA B4 covB4 syncB invA", "invB F4 B4 covA4 covB4 syncA syncB invA"};
  ASSERT_EQ(nodes.size(), 4U);
  for (std::size_t s = 0; s < 4; ++s) {
    EXPECT_EQ(order_of(nodes[s]), want[s]) << "node " << s;
    EXPECT_EQ(nodes[s].iterations, 1);
    EXPECT_EQ(nodes[s].length_ns, 21000);
    EXPECT_NEAR(100 * nodes[s].usage(), 88.57, 0.005);
    const std::vector<std::string> labels = nodes[s].orders().at(0);
    EXPECT_EQ(labels.front(), "-- start --");
    EXPECT_EQ(labels.back(), "turn_on_save_inputs_outgrads");
  }
}

TEST(Fill, SkipsAsThePublishedProgramDoes) {
  const std::vector<FilledNode> nodes = fill_bubbles(gpipe(), {1.05, true});
  EXPECT_THAT(order_of(nodes[2]), testing::EndsWith("covB4 invA syncB"));
  EXPECT_THAT(order_of(nodes[3]), testing::EndsWith("covA4 syncA invA covB4 syncB"));
  for (const FilledNode& node : nodes) EXPECT_NEAR(100 * node.usage(), 88.57, 0.005);
}

struct Recording {
  std::vector<NodeTimeline> nodes;
  std::int64_t work_ns = 0;  ///< work of node 0, without the rounding losses of its pieces
  int pieces = 0;
};

Recording drawn(std::mt19937& random) {
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  const int micro_batches = draw(1, 5), layers = draw(1, 3);
  Recording r;
  NodeTimeline node{"node", {{"call_forward", {}}, {"call_backward", {}}}};
  std::int64_t at = draw(0, 1000);
  for (int pass = 0; pass < 2; ++pass)
    for (int m = 0; m < micro_batches; ++m) {
      at += draw(0, 3) == 0 ? draw(0, 4000) : 0;
      const std::int64_t end = at + draw(100, 2000);
      node.labels[static_cast<std::size_t>(pass)].intervals.push_back({at, end});
      r.work_ns += end - at;
      at = end;
    }
  for (const char* kind : {"cov", "sync", "inv"})
    for (const char factor : {'A', 'B'})
      for (int l = 0; l < layers; ++l) {
        const int pieces = kind[0] == 'c' ? micro_batches : 1;
        const std::int64_t piece = draw(1, 1500);
        node.labels.push_back({std::string(kind) + "_kron_" + factor + ":" + std::to_string(l),
                               {{at, at + piece * pieces}}});
        r.work_ns += piece * pieces;
        r.pieces += pieces;
        at += piece * pieces;
      }
  r.nodes.push_back(node);
  return r;
}

// Nothing overlaps, and everything is done once per cycle. Work that doesn't wrap keeps its order.
TEST(Fill, AnyRecordingIsFilledWhole) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  for (int i = 0; i < 300; ++i) {
    const Recording r = drawn(random);
    const bool skips = i % 3 == 0;
    const FilledNode node = fill_bubbles(r.nodes, {1.0 + (i % 2) * 0.05, skips})[0];
    const std::string what =
        "case " + std::to_string(i) + " of seed " + std::to_string(kSeed) + ": " + order_of(node);
    std::int64_t fixed_ns = 0, busy_ns = 0, last = 0;
    int placed = 0;
    std::map<std::string, int> seen;
    for (const FilledNode::Item& item : node.items) {
      ASSERT_GE(item.at.start_ns, last) << what;
      last = item.at.end_ns;
      busy_ns += item.at.duration_ns();
      if (item.label.rfind("call_", 0) == 0) fixed_ns += item.at.duration_ns();
      if (item.label.find("_kron_") == std::string::npos) continue;
      ++placed;
      ++seen[item.label];
    }
    ASSERT_EQ(placed, r.pieces) << what;
    ASSERT_EQ(busy_ns - fixed_ns, r.work_ns - fixed_ns / node.iterations) << what;
    for (const NodeTimeline::Recorded& work : r.nodes[0].labels)
      if (work.label.rfind("cov_", 0) == 0) {
        ASSERT_EQ(seen[work.label], static_cast<int>(r.nodes[0].labels[0].intervals.size()))
            << what;
      }
    ASSERT_EQ(node.orders().size(), static_cast<std::size_t>(node.iterations)) << what;
  }
}

TEST(Fill, RefusesWhatIsNoRecording) {
  const auto says = [](const std::vector<NodeTimeline>& nodes, const std::string& words) {
    EXPECT_THAT([&] { fill_bubbles(nodes, {}); }, testing::ThrowsMessage<Error>(HasSubstr(words)));
  };
  says({}, "no timeline given; give one per node");
  says({{"n.json", {{"call_backward", {{0, 1}}}}}}, "n.json: no 'call_forward'");
  says({{"n", {{"call_forward", {{0, 1}, {1, 2}}}, {"call_backward", {{3, 4}}}}}},
       "n: 2 of 'call_forward' but 1 of 'call_backward'");
  says({{"n", {{"call_forward", {{0, 1}}}, {"call_backward", {{3, 2}}}}}},
       "n: a 'call_backward' ends at 2, before it starts at 3");
  says({{"n", {{"call_forward", {{9, 10}}}, {"call_backward", {{3, 4}}}}}},
       "the last backward ends at 4");
}

template <std::size_t N>
std::string bytes_of(const char (&text)[N]) {
  return {text, N - 1};
}

// {"start_end": [(0, 1), (1, 2)], "call_forward": [(1, 2), (3, 4), (5, 6), (None, None)], "x": []}
// as Python's pickle writes it with protocols 2 and 4. (1, 2) is one object in two positions.
const std::string kPickles[] = {
    bytes_of("\x80\x02}q\x00(X\x09\x00\x00\x00start_endq\x01]q\x02(K\x00K\x01\x86q\x03K\x01K\x02"
             "\x86q\x04"
             "eX\x0c\x00\x00\x00"
             "call_forwardq\x05]q\x06(h\x04K\x03K\x04\x86q\x07K\x05K\x06\x86q\x08"
             "NN\x86q\x09"
             "eX\x01\x00\x00\x00xq\x0a]q\x0bu."),
    bytes_of("\x80\x04\x95L\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x09start_end\x94]\x94(K\x00K"
             "\x01\x86\x94K\x01K\x02\x86\x94"
             "e\x8c\x0c"
             "call_forward\x94]\x94(h\x04K\x03K\x04\x86\x94K\x05K\x06\x86\x94NN\x86\x94"
             "e\x8c\x01x\x94]\x94u.")};

TEST(Pickle, GivesPlainData) {
  const auto want = nlohmann::json::parse(
      R"({"start_end": [[0, 1], [1, 2]], "call_forward": [[1, 2], [3, 4], [5, 6], [null, null]], "x": []})");
  for (const std::string& bytes : kPickles) {
    ASSERT_TRUE(is_pickle(bytes));
    EXPECT_EQ(nlohmann::json::parse(json_of_pickle(bytes, "p")), want);
  }
  EXPECT_EQ(json_of_pickle(pickle_of({{{"a", "b"}, {}}, {{"ä"}}}), "p"),
            R"([[["a","b"],[]],[["ä"]]])");
}

// The reader never looks up a class name, and damage only causes an error.
TEST(Pickle, NothingRunsAndNothingBreaks) {
  const std::string runs = bytes_of(
      "\x80\x02"
      "cposix\nsystem\nX\x02\x00\x00\x00ls\x85R.");
  EXPECT_THAT([&] { json_of_pickle(runs, "p.pickle"); },
              testing::ThrowsMessage<Error>(
                  HasSubstr("p.pickle: byte 2 of the pickle: opcode 0x63 is not supported")));
  std::mt19937 random(3);
  int refused = 0;
  for (const std::string& good : kPickles)
    for (int i = 0; i < 20000; ++i) {
      std::string bytes = good;
      for (int n = static_cast<int>(random() % 3); n >= 0; --n)
        bytes[random() % bytes.size()] = static_cast<char>(random());
      if (i % 4 == 0) bytes.resize(random() % bytes.size());
      try {
        json_of_pickle(bytes, "p");
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::Io);
        ++refused;
      }
    }
  EXPECT_GT(refused, 1000);
}

TEST(TimelineFile, KeepsTheLastIterationWithoutWhatWasNotRecorded) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.pickle";
  write_text(path, kPickles[1]);
  const NodeTimeline node = read_timeline(path);
  ASSERT_EQ(node.labels.size(), 2U);
  EXPECT_EQ(node.labels[0].label, "call_forward");
  ASSERT_EQ(node.labels[0].intervals.size(), 1U);
  EXPECT_EQ(node.labels[0].intervals[0].start_ns, 5);
  for (const auto& [text, words] :
       {std::pair{"[1]", "expected a dictionary of lists"}, std::pair{"nope", "neither JSON nor"},
        std::pair{R"({"start_end": [1, 2], "x": [[1, 2]]})",
                  "'x' must be a list with equally many"},
        std::pair{R"({"start_end": [1], "x": [[1, "2"]]})",
                  "'x': expected [start, end] in whole ns"}}) {
    write_text(path, text);
    EXPECT_THAT([&] { read_timeline(path); }, testing::ThrowsMessage<Error>(HasSubstr(words)));
  }
}

}  // namespace
}  // namespace hetu
