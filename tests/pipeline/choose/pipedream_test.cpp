// Tests PipeDream's planner against an enumeration of all plans, and against the configurations
// that its authors published. The published profiles are not part of the tree.
#include "pipeline/choose/pipedream.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <tuple>

#include "base/error.h"
#include "base/text_file.h"
#include "pipeline/choose/pipedream_graph.h"

namespace hetu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr double kNone = std::numeric_limits<double>::infinity();

struct Model {
  std::vector<PipeDreamLayer> layers;
  PipeDreamOptions options;

  double weights(int from, int to) const {
    double sum = 0;
    for (int i = from; i < to; ++i) sum += layers[i].weight_bytes;
    return sum;
  }
  double activations(int from, int to) const {
    double sum = 0;
    for (int i = from; i < to; ++i) sum += layers[i].activation_bytes;
    return sum;
  }
};

// Enumerates every pipeline of layers [from, to) on `machines` machines of a level, of which
// `after` follow, and returns the least time of its slowest stage or message. Written without the
// planner's tables: each call tries every first stage and every number of its copies.
double enumerated(const Model& m, int depth, int from, int to, int machines, bool is_first,
                  int after);

double on_one_machine(const Model& m, int depth, int from, int to) {
  if (depth >= 0) return enumerated(m, depth, from, to, m.options.levels[depth].count, true, 0);
  double sum = 0;
  for (int i = from; i < to; ++i) sum += m.layers[i].time_s;
  return sum;
}

double enumerated(const Model& m, int depth, int from, int to, int machines, bool is_first,
                  int after) {
  const MachineLevel& level = m.options.levels[depth];
  const bool paper = m.options.costs == PipeDreamCosts::Paper;
  const double inner = depth > 0 ? m.options.levels[depth - 1].count : 1;
  double best = kNone;
  for (int end = from + 1; end <= to; ++end) {
    for (int c = 1; c <= (m.options.replicate ? machines : 1); ++c) {
      if ((end == to) != (c == machines)) continue;  // the rest needs layers and machines
      const double sum = (c - 1) * m.weights(from, end) / level.bandwidth;
      const double whole = on_one_machine(m, depth - 1, from, end);
      double time = paper ? std::max(whole, 2 * sum) / c : (whole + 4 * sum / c / inner) / c;
      const double per = level.bandwidth * (paper ? 1 : c);
      if (!is_first) time = std::max(time, 2 * m.layers[from - 1].activation_bytes / per);
      const bool sends = end < static_cast<int>(m.layers.size());
      if (!paper && !is_first && sends)
        time = std::max(time, 2 * m.layers[end - 1].activation_bytes / per);
      const int left = machines + after;
      const double bytes = (left + c - 1) / c * (m.weights(from, end) + m.activations(from, end));
      if (level.memory_bytes > 0 && bytes > level.memory_bytes) continue;
      if (end < to)
        time = std::max(time, enumerated(m, depth, end, to, machines - c, false, after));
      best = std::min(best, time);
    }
  }
  return best;
}

class Random {
 public:
  explicit Random(int seed) : engine_(seed) {}
  int below(int n) { return static_cast<int>(engine_() % static_cast<unsigned>(n)); }

  Model model(int layers) {
    Model m;
    for (int i = 0; i < layers; ++i)
      m.layers.push_back({1.0 + below(9), 1e9 * below(4), 1e9 * below(5)});
    return m;
  }

 private:
  std::mt19937 engine_;
};

void expect_optimal(const Model& m, const std::string& what) {
  const int depth = static_cast<int>(m.options.levels.size()) - 1;
  const int layers = static_cast<int>(m.layers.size());
  const double least = on_one_machine(m, depth, 0, layers);
  if (std::isinf(least)) {
    EXPECT_THROW(plan_pipedream(cuts_of_chain(m.layers), m.options), Error) << what;
    return;
  }
  const PipeDreamPlan plan = plan_pipedream(cuts_of_chain(m.layers), m.options);
  EXPECT_NEAR(plan.time_s, least, 1e-6 * least) << what;
  int copies = 0, end = -1;
  for (const PipeDreamStage& s : plan.stages) {
    EXPECT_EQ(s.first, end) << what;
    end = s.last;
    copies += s.copies;
  }
  EXPECT_EQ(end, layers - 1) << what;
  int machines = 1;
  for (const MachineLevel& level : m.options.levels) machines *= level.count;
  EXPECT_EQ(copies, machines) << what;
}

TEST(PipeDream, IsTheBestOfAllPlansOnOneLevel) {
  for (const PipeDreamCosts costs : {PipeDreamCosts::Paper, PipeDreamCosts::Program}) {
    for (int seed = 0; seed < 300; ++seed) {
      Random random(seed);
      Model m = random.model(1 + random.below(6));
      m.options = {.costs = costs, .replicate = random.below(4) > 0};
      m.options.levels = {{.count = 1 + random.below(4), .bandwidth = 1e9 * (1 + random.below(3))}};
      if (seed % 3 == 0) m.options.levels[0].memory_bytes = 1e9 * (10 + random.below(60));
      expect_optimal(m, fmt::format("costs {}, seed {}", static_cast<int>(costs), seed));
    }
  }
}

TEST(PipeDream, IsTheBestOfAllPlansOnTwoLevels) {
  for (const PipeDreamCosts costs : {PipeDreamCosts::Paper, PipeDreamCosts::Program}) {
    for (int seed = 0; seed < 100; ++seed) {
      Random random(seed);
      Model m = random.model(1 + random.below(6));
      m.options = {.costs = costs};
      for (const int count : {1 + random.below(3), 1 + random.below(3)})
        m.options.levels.push_back({.count = count, .bandwidth = 1e9 * (1 + random.below(3))});
      expect_optimal(m, fmt::format("costs {}, seed {}", static_cast<int>(costs), seed));
    }
  }
}

TEST(PipeDream, RefusesWhatCannotRun) {
  const std::vector<PipeDreamCut> one = cuts_of_chain({{1, 1, 1}});
  EXPECT_THAT([&] { plan_pipedream({}, {.levels = {{}}}); },
              ThrowsMessage<Error>(HasSubstr("at least one layer")));
  EXPECT_THAT([&] { plan_pipedream(one, {}); },
              ThrowsMessage<Error>(HasSubstr("at least one level")));
  EXPECT_THAT([&] { plan_pipedream(one, {.levels = {{.count = 0}}}); },
              ThrowsMessage<Error>(HasSubstr("1 to 4096 machines, got 0")));
  EXPECT_THAT([&] { plan_pipedream(one, {.levels = {{.bandwidth = 0}}}); },
              ThrowsMessage<Error>(HasSubstr("above 0 bytes per second, got 0")));
  EXPECT_THAT([&] { plan_pipedream(one, {.levels = {{.memory_bytes = 1}}}); },
              ThrowsMessage<Error>(HasSubstr("no plan fits")));
  EXPECT_THAT(
      [&] {
        plan_pipedream(cuts_of_chain({{-1, 1, 1}}), {.levels = {{}}});
      },
      ThrowsMessage<Error>(HasSubstr("cut 0 must be finite and at least 0, got -1")));
}

const char* const kNode =
    " -- forward_compute_time=1.000, backward_compute_time=2.000, activation_size=8.0, "
    "parameter_size=4.000\n";

// Returns a graph: an input, then a - b - d and a - c - d.
std::string diamond() {
  std::string text;
  for (const char* node :
       {"node1 -- Input", "node2 -- A", "node3 -- B", "node4 -- C", "node5 -- D"})
    text += std::string(node) + kNode;
  for (const char* edge :
       {"node1 -- node2", "node2 -- node3", "node2 -- node4", "node3 -- node5", "node4 -- node5"})
    text += std::string("\t") + edge + "\n";
  return text;
}

TEST(PipeDreamGraph, CutsBranches) {
  const PipeDreamModel model = cut_pipedream_graph(parse_pipedream_graph(diamond(), "graph.txt"));
  // {A}, {A B}, {A C}, {A B C} and all. The two sets of two layers don't contain each other.
  ASSERT_EQ(model.cuts.size(), 5U);
  EXPECT_THAT(model.cuts[2].before, ElementsAre(0));
  EXPECT_THAT(model.cuts[3].before, ElementsAre(0, 1, 2));
  EXPECT_DOUBLE_EQ(model.cuts[3].time_s, 9e-3);
  EXPECT_DOUBLE_EQ(model.cuts[1].message_bytes, 16);  // of A, for C, and of B
  EXPECT_DOUBLE_EQ(model.cuts[3].message_bytes, 24);  // the authors count A twice over: see header
  EXPECT_DOUBLE_EQ(model.cuts[4].weight_bytes, 16);   // not of the input
  const PipeDreamPlan plan = plan_pipedream(model.cuts, {.levels = {{.count = 2}}});
  EXPECT_EQ(plan.stages.size() == 1 ? plan.stages[0].copies : 2, 2);
  EXPECT_THAT(layers_of(model, {.first = 0, .last = 3}), ElementsAre("node3 B", "node4 C"));
}

TEST(PipeDreamGraph, SumsOutputsAndReadsStages) {
  const std::string text =
      "node1 -- LSTM(2, 3) -- forward_compute_time=1.5, backward_compute_time=2.5, "
      "activation_size=[6.0; 1.5], parameter_size=4.000 -- stage_id=3\n";
  const std::vector<PipeDreamNode> nodes = parse_pipedream_graph(text, "graph.txt");
  EXPECT_DOUBLE_EQ(nodes.at(0).activation_bytes, 7.5);
  EXPECT_DOUBLE_EQ(nodes.at(0).forward_ms, 1.5);
}

TEST(PipeDreamGraph, NamesFileLineAndFault) {
  const auto parse = [](const std::string& text) { parse_pipedream_graph(text, "graph.txt"); };
  const std::string a = std::string("a -- A") + kNode, b = std::string("b -- B") + kNode;
  EXPECT_THAT([&] { parse(""); }, ThrowsMessage<Error>(HasSubstr("no layers")));
  EXPECT_THAT([&] { parse("node1 -- Conv"); }, ThrowsMessage<Error>(HasSubstr("graph.txt:1: exp")));
  EXPECT_THAT([&] { parse(a + a); },
              ThrowsMessage<Error>(HasSubstr("graph.txt:2: layer 'a' is repeated")));
  EXPECT_THAT([&] { parse(a + "\ta -- z\n"); },
              ThrowsMessage<Error>(HasSubstr("graph.txt:2: the edge names layer 'z'")));
  EXPECT_THAT([&] { parse(a + b + "\ta -- b\n\tb -- a\n"); },
              ThrowsMessage<Error>(HasSubstr("the edges form a cycle")));
  EXPECT_THAT(
      [&] {
        parse(
            "a -- A -- forward_compute_time=x, backward_compute_time=1, "
            "activation_size=1, parameter_size=1");
      },
      ThrowsMessage<Error>(HasSubstr("forward_compute_time must be a finite number")));
  // 13 parallel branches have 2^13 subsets
  std::string wide = a;
  for (int i = 0; i < 13; ++i) wide += fmt::format("n{} -- N{}", i, kNode);
  for (int i = 0; i < 13; ++i) wide += fmt::format("\ta -- n{}\n", i);
  EXPECT_THAT([&] { cut_pipedream_graph(parse_pipedream_graph(wide, "graph.txt")); },
              ThrowsMessage<Error>(HasSubstr("more than 4096 cuts")));
}

// A published configuration, the levels of machines with which it follows from the profile, and the
// first layer of each stage after the first one, as the authors' files of its stages have it. Where
// `begins` is empty, only the copies agree (docs/lab/pipedream.md).
struct Published {
  const char* model;
  const char* configuration;
  std::vector<MachineLevel> levels;
  std::vector<const char*> begins;
};

class PublishedPlans : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(__FILE__).parent_path() /
              "../../../../shared/data/measured/pipedream";
    if (!std::filesystem::is_directory(folder_))
      GTEST_SKIP() << "the published profiles are not there: " << folder_;
  }

  PipeDreamModel model(const std::string& name) const {
    const std::string path = folder_ / (name + ".graph.txt");
    return cut_pipedream_graph(parse_pipedream_graph(read_text(path), path));
  }

  // Returns the copies of the stages in a configuration, such as "3-1".
  std::string copies(const std::string& configuration) const {
    const auto conf = nlohmann::json::parse(read_text(folder_ / "conf" / configuration));
    const auto& ranks = conf.at("stage_to_rank_map");
    std::string text;
    for (std::size_t s = 0; s < ranks.size(); ++s)
      text += fmt::format("{}{}", s > 0 ? "-" : "", ranks.at(std::to_string(s)).size());
    return text;
  }

  std::filesystem::path folder_;
};

TEST_F(PublishedPlans, FollowFromTheProfiles) {
  const std::vector<Published> all = {
      {"vgg16", "gpus=4_hybrid", {{4, 1e9}}, {"node19 Conv2d(256, 512"}},
      {"vgg16", "gpus=8_hybrid", {{8, 8e9}}, {"node24 ReLU"}},
      {"vgg16", "gpus=2_hybrid", {{3, 1e9}}, {}},
      {"vgg16", "gpus=2_mp", {{2, 5e9}}, {"node10 ReLU"}},
      {"vgg16", "gpus=16_hybrid", {{16, 3.125e9}}, {}},
      {"alexnet", "gpus=4_hybrid", {{4, 1e9}}, {"node18 Linear(in_features=9216"}},
      {"resnet50", "gpus=2_hybrid", {{3, 1e9}}, {}},
      {"resnet50", "gpus=4_hybrid", {{4, 5e9}}, {"node69 ReLU", "node119 BatchNorm2d(1024"}},
      {"resnet50",
       "gpus=8_hybrid",
       {{4, 5e9}, {2, 1.25e9}},
       {"node69 ReLU", "node119 BatchNorm2d(1024"}},
      {"resnet50",
       "gpus=16_hybrid",
       {{4, 5e9}, {4, 1.25e9}},
       {"node69 ReLU", "node119 BatchNorm2d(1024"}},
      {"gnmt", "gpus=4_hybrid", {{4, 1e9}}, {}},
      {"gnmt", "gpus=12_hybrid", {{12, 10e9}}, {}},
  };
  for (const Published& p : all) {
    const PipeDreamModel m = model(p.model);
    const PipeDreamPlan plan =
        plan_pipedream(m.cuts, {.levels = p.levels, .costs = PipeDreamCosts::Program});
    const std::string file = fmt::format("{}_{}_conf.json", p.model, p.configuration);
    EXPECT_EQ(copies_text(plan), copies(file)) << file << "\n" << to_text(plan, m);
    if (p.begins.empty()) continue;
    ASSERT_EQ(plan.stages.size(), p.begins.size() + 1) << to_text(plan, m);
    for (std::size_t s = 0; s < p.begins.size(); ++s)
      EXPECT_THAT(layers_of(m, plan.stages[s + 1]).front(), HasSubstr(p.begins[s])) << file;
  }
}

TEST_F(PublishedPlans, OfStraightPipelinesHaveOneCopyOfEachStage) {
  for (const auto& [name, configuration, machines] :
       {std::tuple{"vgg16", "gpus=4_straight_mp", 4},
        std::tuple{"vgg16", "gpus=16_straight_mp", 16},
        std::tuple{"alexnet", "gpus=4_straight_mp", 4}, std::tuple{"gnmt", "gpus=4_mp", 4}}) {
    const PipeDreamPlan plan = plan_pipedream(
        model(name).cuts,
        {.levels = {{machines, 3.125e9}}, .costs = PipeDreamCosts::Program, .replicate = false});
    EXPECT_EQ(copies_text(plan), copies(fmt::format("{}_{}_conf.json", name, configuration)));
  }
}

TEST_F(PublishedPlans, TakeTheTimesThatTheAuthorsProgramPrints) {
  const PipeDreamModel vgg = model("vgg16");
  const auto time = [&](int machines) {
    return plan_pipedream(vgg.cuts,
                          {.levels = {{machines, 1e9}}, .costs = PipeDreamCosts::Program});
  };
  EXPECT_NEAR(time(4).time_s, 0.205520896, 1e-9);
  EXPECT_NEAR(time(8).time_s, 0.1038331702857143, 1e-9);
  EXPECT_NEAR(time(16).time_s, 0.05652976738461536, 1e-9);
  EXPECT_NEAR(time(4).single_s, 0.672535, 1e-9);
  EXPECT_NEAR(time(4).single_s / time(4).data_parallel_s, 1.153168107820878, 1e-9);
}

TEST_F(PublishedPlans, NeedCompressedBranches) {
  EXPECT_THAT([&] { model("inception_v3"); },
              ThrowsMessage<Error>(HasSubstr("replace each branch by one layer")));
}

}  // namespace
}  // namespace hetu
