// Tests how blocks are cut into stages for devices of unequal speed, and the simulations of the
// results.
#include "pipeline/cost/partition.h"

#include <gmock/gmock.h>

#include <limits>
#include <map>
#include <random>

#include "base/error.h"
#include "pipeline/cost/cost.h"
#include "pipeline/generate/generate.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct Drawn {
  std::vector<double> blocks, speed;
  std::vector<std::vector<int>> most;  // by stage, then first block: the largest end
  int stages = 1;
};

Drawn drawn(std::mt19937_64& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  Drawn d;
  d.blocks.resize(1 + below(7));
  for (double& b : d.blocks) b = 1 + below(9);
  const int blocks = static_cast<int>(d.blocks.size());
  d.stages = 1 + below(std::min(4, blocks));
  for (int s = 0; s < d.stages; ++s) {
    d.speed.push_back(below(2) == 0 ? 1 : 0.25 * (1 + below(8)));
    std::vector<int>& most = d.most.emplace_back();
    for (int b = 0; b < blocks; ++b) most.push_back(below(4) == 0 ? b + below(3) : blocks);
  }
  return d;
}

double slowest(const Drawn& d, const std::vector<int>& cut) {
  double most = 0;
  for (int s = 0; s < d.stages; ++s) {
    const int blocks = static_cast<int>(d.blocks.size());
    const int end = s + 1 < d.stages ? cut[s + 1] : blocks;
    if (cut[s] >= end || end > d.most[s][cut[s]]) return std::numeric_limits<double>::infinity();
    double sum = 0;
    for (int b = cut[s]; b < end; ++b) sum += d.blocks[b];
    most = std::max(most, sum / d.speed[s]);
  }
  return most;
}

// Returns the best result over all cuts, by enumeration.
double least(const Drawn& d, std::vector<int> cut = {0}) {
  if (static_cast<int>(cut.size()) == d.stages) return slowest(d, cut);
  double best = std::numeric_limits<double>::infinity();
  for (int b = cut.back() + 1; b < static_cast<int>(d.blocks.size()); ++b) {
    cut.push_back(b);
    best = std::min(best, least(d, cut));
    cut.pop_back();
  }
  return best;
}

TEST(Partition, MakesTheSlowestStageAsQuickAsAnyCutDoes) {
  const std::uint64_t seed = std::random_device{}();
  std::mt19937_64 random(seed);
  int none = 0;
  for (int i = 0; i < 3000; ++i) {
    SCOPED_TRACE(fmt::format("seed {}, draw {}", seed, i));
    const Drawn d = drawn(random);
    const auto cut = balance_blocks(d.blocks, d.stages, {d.speed, [&](int s, int first, int end) {
                                                           return end <= d.most[s][first];
                                                         }});
    const double best = least(d);
    ASSERT_EQ(cut.has_value(), best < std::numeric_limits<double>::infinity());
    none += cut ? 0 : 1;
    if (cut) {
      ASSERT_DOUBLE_EQ(slowest(d, *cut), best);
    }
  }
  EXPECT_GT(none, 30) << "seed " << seed;
}

TEST(Partition, IsReadAsItIsWritten) {
  for (const char* text : {"operations", "times", "3,5,2", "3,5,2/4,4,2", "1"})
    EXPECT_EQ(to_text(parse_partition(text)), text);
  for (const char* text : {"", "3,,5", "3,x", "0,3", "3,5/", "/3,5", "speed"})
    EXPECT_THROW(parse_partition(text), Error) << text;
}

TEST(Partition, CutsEachPipelineForItsOwnWorkersOrAllForTheSlowest) {
  const std::vector<double> blocks(8, 1);
  PipelineDevices devices{2, 2, {1, 1, 1, 1.0 / 3}, true};
  using Cuts = std::vector<std::vector<int>>;
  EXPECT_EQ(cut_pipelines({}, blocks, devices), (Cuts{{0, 4}, {0, 6}}));
  devices.apart = false;
  EXPECT_EQ(cut_pipelines({}, blocks, devices), (Cuts{{0, 6}, {0, 6}}));
  devices.speed = {1, 1.0 / 3};
  devices.apart = true;
  EXPECT_EQ(cut_pipelines({}, blocks, devices), (Cuts{{0, 6}, {0, 6}}));
  EXPECT_EQ(cut_pipelines(parse_partition("5,3/2,6"), blocks, devices), (Cuts{{0, 5}, {0, 2}}));
  EXPECT_EQ(cut_pipelines(parse_partition("5,3"), blocks, devices), (Cuts{{0, 5}, {0, 5}}));
}

void expect_refused(const char* text, const PipelineDevices& devices, const char* why) {
  EXPECT_THAT([&] { cut_pipelines(parse_partition(text), std::vector<double>(8, 1), devices); },
              ThrowsMessage<Error>(HasSubstr(why)));
}

TEST(Partition, RefusesWhatDoesNotFit) {
  const PipelineDevices apart{2, 2, {}, true};
  expect_refused("5,2", apart, "--partition 5,2: 7 blocks in total, but the model has 8");
  expect_refused("5,2,1", apart, "3 numbers for 2 stages");
  expect_refused("5,3/4,4/3,5", apart, "3 lists for 2 pipelines; give 1 list, or one per pipeline");
  expect_refused("5,3/4,4", {2, 2, {}, false},
                 "different lists per pipeline need hetpipe on at least 2 pipelines");
  expect_refused("operations", {2, 2, {1, 1, 1}, true}, "3 numbers for 4 workers; give 1, 2 or 4");
  expect_refused("operations", {2, 2, {1, -1}, true}, "a finite number above 0, got -1");
  expect_refused("times", {9, 2, {}, true}, "9 stages do not fit");
}

Costs costs_of_blocks(int blocks) {
  Costs costs;
  costs.per_worker = false;
  costs.blocks.assign(blocks, {{.forward = 0.25,
                                .input_grad = 0.25,
                                .weight_grad = 0.25,
                                .activation_bytes = 8,
                                .weight_bytes = 1},
                               1});
  costs.stages.assign(4, {});
  return costs;
}

Schedule plan_of(int staleness) {
  Lowering how;
  how.pipelines = 2;
  how.sharing = ParameterServers{staleness};
  return lower(generate("hetpipe", {.stages = 4, .micro_batches = 8, .steps = 12}), how);
}

// A worker at half speed delays its pipeline and every other one. It delays them less if its
// neighbours take some of its blocks. The slow worker then has 2 blocks, and the largest stage of
// the other workers has 5.
TEST(Partition, OfItsOwnLetsAPipelineWithASlowWorkerKeepUp) {
  Costs costs = costs_of_blocks(16);
  costs.speed = {1, 1, 1, 1, 1, 0.5, 1, 1};
  const PipelineDevices devices{4, 2, costs.speed, true};
  const Schedule plan = plan_of(0);
  const Costs alike = recut(costs, parse_partition("4,4,4,4"), devices);
  const Costs apart = recut(costs, {}, devices);
  EXPECT_TRUE(alike.cuts.empty());
  ASSERT_EQ(apart.cuts.size(), 2U);
  EXPECT_EQ(apart.cuts[0], (std::vector<int>{0, 4, 8, 12}));
  EXPECT_EQ(apart.stages.size(), 8U);
  const Simulation slow = simulate(plan, alike), quick = simulate(plan, apart);
  // Steady throughput of two pipelines, each 1 / (forward and backward of the slowest stage).
  EXPECT_NEAR(slow.throughput, 2 / (2 * 3.0), 0.02);
  EXPECT_NEAR(quick.throughput, 2 / (5 * 0.75), 0.03);
  // Each worker has blocks of its own: 4, 4, 4, 4 and, for example, 5, 2, 5, 4.
  for (int w = 0; w < 8; ++w) {
    const double blocks = apart.stages[w].activation_bytes / 8;
    EXPECT_DOUBLE_EQ(quick.workers[w].peak_bytes, blocks * (8 * quick.workers[w].peak_activations +
                                                            quick.workers[w].weight_versions));
  }
}

// The second stage of the first pipeline holds blocks of both stages of the other pipeline, whose
// first stage pushes last. A pull without staleness must wait for that push too.
TEST(Partition, OfItsOwnHasPullsThatWaitForEveryStageTheyMeet) {
  Costs costs = costs_of_blocks(4);
  costs.speed = {1, 1, 0.5, 0.5};
  costs.stages.assign(2, {});
  costs.link.bandwidth = 1e9;
  costs = recut(costs, parse_partition("1,3/3,1"), {2, 2, {}, true});
  Lowering how;
  how.pipelines = 2;
  how.sharing = ParameterServers{};
  const Schedule plan =
      lower(generate("hetpipe", {.stages = 2, .micro_batches = 3, .steps = 6}), how);
  SimulateOptions options;
  options.events = true;
  std::map<int, double> pushed, pulled;  // end by wave
  for (const TraceEvent& e : simulate(plan, costs, options).events) {
    if (e.kind == "PUSH" && e.worker == 2) pushed[e.step] = e.start_us + e.duration_us;
    if (e.kind == "PULL" && e.worker == 1) pulled[e.step] = e.start_us + e.duration_us;
  }
  EXPECT_EQ(pushed.size(), 6U);
  ASSERT_GE(pulled.size(), 5U);
  for (const auto& [wave, end] : pulled) EXPECT_GE(end, pushed.at(wave)) << "wave " << wave;
}

TEST(Partition, StandsInAFileOfCosts) {
  Costs costs = recut(costs_of_blocks(16), parse_partition("4,4,4,4/5,2,5,4"), {4, 2, {}, true});
  const Schedule plan = plan_of(1);
  Costs read = parse_costs(to_json(costs, plan), "file");
  EXPECT_EQ(read.cuts, costs.cuts);
  EXPECT_EQ(read.stages, costs.stages);
  read.cuts.pop_back();
  EXPECT_THAT(
      [&] { simulate(plan, read); },
      ThrowsMessage<Error>(HasSubstr("costs of 1 differently cut pipelines do not fit a plan of 2 "
                                     "pipelines")));
  for (const auto& [text, why] :
       {std::pair{R"({"stages": [{}], "cuts": []})", "'cuts' is empty"},
        {R"({"stages": [{}], "cuts": [[1, 2]]})",
         "cut 0: the first blocks of the stages must ascend"},
        {R"({"stages": [{}], "cuts": [[0, 2], [0, 0]]})", "cut 1: the first blocks of the stages"},
        {R"({"stages": [{}], "cuts": [[0, 2], [0]]})",
         "cut 1: this cut has 1 stages, but cut 0 has 2"},
        {R"({"stages": [{}], "cuts": [3]})", "cut 0: expected a list of blocks"}})
    EXPECT_THAT(([text = text] { parse_costs(text, "c"); }), ThrowsMessage<Error>(HasSubstr(why)));
}

}  // namespace
}  // namespace hetu
