#include "pipeline/choose/rank.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "base/error.h"
#include "pipeline/cost/partition.h"
#include "pipeline/lower/lower.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Ranking rank(const RankOptions& options, const Costs& costs) {
  return rank_methods(options, [&](int) { return costs; });
}

RankOptions options_for(int stages, std::vector<int> micros) {
  RankOptions o;
  o.stages = stages;
  o.micro_batches = std::move(micros);
  return o;
}

// Returns random costs of `count` stages.
Costs drawn(std::mt19937& random, int count) {
  std::uniform_real_distribution<double> of(0.5, 2);
  Costs costs;
  costs.per_worker = false;
  costs.unit = "ms";
  costs.stages.clear();
  for (int s = 0; s < count; ++s) {
    costs.stages.push_back({.forward = of(random),
                            .input_grad = of(random),
                            .weight_grad = of(random),
                            .recompute = of(random),
                            .update = of(random),
                            .bytes_out = of(random),
                            .activation_bytes = 100 * of(random),
                            .weight_bytes = 50 * of(random)});
  }
  return costs;
}

double total(const Costs& costs, double StageCost::*part) {
  double sum = 0;
  for (const StageCost& c : costs.stages) sum += c.*part;
  return sum;
}

// Stages are joined, but divided only if all are equal.
TEST(Recut, KeepsTheModelWhole) {
  std::mt19937 random(7);
  for (const int from : {1, 2, 3, 4, 8}) {
    for (int to = 1; to <= 12; ++to) {
      Costs costs = drawn(random, from);
      if (from % to != 0 && from > 1) {
        EXPECT_THAT([&] { recut(costs, to); },
                    ThrowsMessage<Error>(HasSubstr("stages are not divided; add \"blocks\"")))
            << from << " to " << to;
        costs.stages.assign(from, costs.stages[0]);
      }
      const Costs cut = recut(costs, to);
      ASSERT_EQ(cut.stages.size(), static_cast<std::size_t>(to));
      for (const auto part : {&StageCost::forward, &StageCost::input_grad, &StageCost::weight_grad,
                              &StageCost::recompute, &StageCost::update,
                              &StageCost::activation_bytes, &StageCost::weight_bytes})
        EXPECT_NEAR(total(cut, part), total(costs, part), 1e-9) << from << " to " << to;
      EXPECT_DOUBLE_EQ(cut.stages.back().bytes_out, costs.stages.back().bytes_out);
    }
  }
  const Costs halves = recut(drawn(random, 1), 2);
  EXPECT_DOUBLE_EQ(halves.stages[0].forward, halves.stages[1].forward);
}

TEST(Recut, CutsBlocksAsTrainingDoes) {
  std::mt19937 random(8);
  Costs costs = drawn(random, 3);
  std::vector<double> weights;
  for (const StageCost& c : drawn(random, 11).stages) {
    weights.push_back(1 + weights.size() % 3);
    costs.blocks.push_back({c, weights.back()});
  }
  for (const int stages : {1, 2, 4, 7, 11}) {
    const Costs cut = recut(costs, stages);
    std::vector<int> first = balance_blocks(weights, stages);
    first.push_back(11);
    for (int s = 0; s < stages; ++s) {
      double forward = 0;
      for (int b = first[s]; b < first[s + 1]; ++b) forward += costs.blocks[b].cost.forward;
      EXPECT_DOUBLE_EQ(cut.stages[s].forward, forward);
      EXPECT_EQ(cut.stages[s].bytes_out, costs.blocks[first[s + 1] - 1].cost.bytes_out);
    }
  }
  EXPECT_EQ(recut(costs, 3).stages, costs.stages) << "the cut that was measured stays";
  EXPECT_THAT([&] { recut(costs, 12); }, ThrowsMessage<Error>(HasSubstr("12")));
  EXPECT_EQ(parse_costs(to_json(costs, generate("gpipe", {.stages = 3})), "back").blocks,
            costs.blocks);
}

TEST(Rank, PredictsAsSimulateDoes) {
  std::mt19937 random(9);
  for (const int stages : {2, 4}) {
    Costs costs = drawn(random, stages);
    for (const StageCost& c : drawn(random, 5 * stages).stages) costs.blocks.push_back({c, 1});
    RankOptions o = options_for(stages, {stages, 3 * stages});
    o.pipelines = 2;
    const Ranking ranking = rank(o, costs);
    std::set<std::string> methods;
    double before = 0;
    for (const Ranked& r : ranking.ranked) {
      SCOPED_TRACE(name_of(r.method, r.sizes));
      methods.insert(r.method);
      EXPECT_GE(r.time_per_sample, before * (1 - 1e-9));
      before = r.time_per_sample;
      const Costs cut = recut(costs, stages * r.sizes.chunks);
      Sizes sizes = r.sizes;
      sizes.costs = &cut;
      Schedule plan = generate(r.method, sizes);
      if (r.sizes.with_recompute) plan = with_recompute(plan);
      const Simulation s =
          simulate(lower(plan, {.pipelines = 2, .sync = SyncPlace::EagerOpt}), cut);
      EXPECT_NEAR(r.step_time, s.step_time, 1e-9);
      EXPECT_NEAR(r.time_per_sample, s.step_time / (2 * r.sizes.micro_batches), 1e-9);
    }
    const std::set<std::string> others = {"dp", "pipedream", "pipedream-2bw", "hetpipe"};
    for (const Method& m : hetu::methods())
      EXPECT_EQ(methods.count(m.name) + others.count(m.name), 1U) << m.name;
  }
}

// Stages that are not cut from blocks are not divided: which part of a heavy stage is heavy isn't
// known. Simulations refuse the same costs with the same words.
TEST(Rank, NeedsBlocksForOtherStages) {
  std::mt19937 random(12);
  Costs costs = drawn(random, 4);
  RankOptions o = options_for(4, {8});
  o.methods = {"1f1b", "zb-v"};
  const Ranking refused = rank(o, costs);
  ASSERT_EQ(refused.ranked.size(), 2U);
  EXPECT_TRUE(refused.ranked[0].blocks_per_stage.empty());
  ASSERT_EQ(refused.refused.size(), 2U);
  EXPECT_EQ(refused.refused[0].method, "zb-v");
  const std::string why = refused.refused[0].why;
  EXPECT_THAT(why, HasSubstr("costs of 4 stages do not fit a plan of 8 model stages; give 8 or one "
                             "for all, or add \"blocks\" to the costs"));
  EXPECT_THAT([&] { simulate(generate("zb-v", {.stages = 4, .micro_batches = 8}), costs); },
              ThrowsMessage<Error>(why));
  EXPECT_THAT(to_text(refused, 9),
              HasSubstr("  " + why + ":\n    zb-v M=8, zb-v M=8 +recompute\n"));
  for (int b = 0; b < 9; ++b) costs.blocks.push_back({costs.stages[b % 4], 1});
  const Ranking cut = rank(o, costs);
  ASSERT_EQ(cut.ranked.size(), 4U);
  EXPECT_THAT(to_text(cut, 9),
              HasSubstr("blocks per stage of 8 stages (--partition): 2,1,1,1,1,1,1,1\n"));
  for (const Ranked& r : cut.ranked)
    EXPECT_EQ(r.blocks_per_stage.size(), r.method == "zb-v" ? 8U : 0U) << r.method;
  EXPECT_THAT(to_json(cut), HasSubstr("\"blocks_per_stage\": ["));
  costs.blocks.clear();
  costs.stages.resize(1);
  EXPECT_THAT(rank(o, costs).notes, testing::Contains(HasSubstr("each of V stages on a worker "
                                                                "takes 1/V")));
}

TEST(Rank, SaysThatCopiesAreFree) {
  std::mt19937 random(13);
  Costs costs = drawn(random, 4);
  RankOptions o = options_for(4, {8});
  o.methods = {"1f1b", "chimera"};
  const auto notes = [&] { return to_text(rank(o, costs), 9); };
  EXPECT_THAT(notes(), HasSubstr("copies of the weights are free in these costs, which favours "
                                 "methods with many (at most: chimera 4): the sums of their "
                                 "gradients take no time"));
  costs.allreduce = 1;
  EXPECT_THAT(notes(), testing::Not(HasSubstr("are free")));
  o.limit_micros = 8;
  EXPECT_THAT(notes(), HasSubstr("a limit in micro-batches doesn't count weights"));
  o.limit_micros = 0;
  for (StageCost& c : costs.stages) c.weight_bytes = 0;
  EXPECT_THAT(notes(), HasSubstr("weights take no memory"));
  o.methods = {"1f1b"};
  EXPECT_THAT(notes(), testing::Not(HasSubstr("are free")));
}

TEST(Rank, WritesATable) {
  std::mt19937 random(14);
  Costs costs = drawn(random, 4);
  for (int b = 0; b < 9; ++b) costs.blocks.push_back({costs.stages[b % 4], 1});
  RankOptions o = options_for(4, {8});
  o.methods = {"gpipe", "zb-v", "dualpipe"};
  o.limit_micros = 4;
  const std::string table = to_csv(rank(o, costs));
  EXPECT_THAT(table, testing::StartsWith("rank,method,micro_batches,chunks,pairs,"));
  EXPECT_THAT(table, HasSubstr("\n1,zb-v,8,2,1,direct,false,1,false,ms,"));
  EXPECT_THAT(table, HasSubstr(",\"2,1,1,1,1,1,1,1\",\n"));
  EXPECT_THAT(table, HasSubstr("\n,gpipe,8,1,1,direct,false,,,,,,,,,,,plan needs more activations "
                               "than the limit of 4 micro-batches\n"));
  const auto lines = std::count(table.begin(), table.end(), '\n');
  EXPECT_EQ(lines, 7);
}

TEST(Rank, KeepsToMemory) {
  std::mt19937 random(10);
  Costs costs = drawn(random, 4);
  for (const StageCost& c : drawn(random, 20).stages) costs.blocks.push_back({c, 1});
  const Ranking all = rank(options_for(4, {4, 8}), costs);
  double least = 1e9, most = 0;
  for (const Ranked& r : all.ranked) {
    least = std::min(least, r.peak_bytes);
    most = std::max(most, r.peak_bytes);
  }
  for (const double limit : {least, (least + most) / 2}) {
    RankOptions o = options_for(4, {4, 8});
    o.limit_bytes = limit;
    // Methods that choose by the limit make other plans under it.
    const std::set<std::string> choosers = {"auto", "zb-1p", "zb-2p"};
    std::size_t within = 0, kept = 0;
    for (const Ranked& r : all.ranked)
      within += choosers.count(r.method) == 0 && r.peak_bytes <= limit ? 1 : 0;
    for (const Ranked& r : rank(o, costs).ranked) {
      EXPECT_LE(r.peak_bytes, limit) << name_of(r.method, r.sizes);
      kept += choosers.count(r.method) == 0 ? 1 : 0;
    }
    EXPECT_EQ(kept, within);
    EXPECT_GE(within, 1U);
  }
  RankOptions micros = options_for(4, {8});
  micros.limit_micros = 3;
  for (const Ranked& r : rank(micros, costs).ranked) EXPECT_LE(r.peak_activations, 3);
}

TEST(Rank, RecomputesWhereNothingElseFits) {
  Costs costs;
  costs.per_worker = false;
  costs.stages.assign(4, {.forward = 1, .bytes_out = 10, .activation_bytes = 1000});
  RankOptions o = options_for(4, {8});
  o.methods = {"1f1b"};
  const Ranking free = rank(o, costs);
  ASSERT_EQ(free.ranked.size(), 2U);
  EXPECT_FALSE(free.ranked[0].sizes.with_recompute);
  EXPECT_EQ(free.ranked[0].peak_bytes, 4000);
  EXPECT_TRUE(free.recompute_guessed);
  EXPECT_EQ(free.ranked[1].peak_bytes, 1020) << "worker 1: one recomputed whole, and 2 inputs";
  o.limit_bytes = 2000;
  const Ranking tight = rank(o, costs);
  ASSERT_EQ(tight.ranked.size(), 1U);
  EXPECT_TRUE(tight.ranked[0].sizes.with_recompute);
  ASSERT_EQ(tight.refused.size(), 1U);
  EXPECT_THAT(tight.refused[0].why, HasSubstr("worker 0 peaks at"));
  EXPECT_THAT(to_text(tight, 5), HasSubstr("1f1b M=8 +recompute"));
}

TEST(Rank, SeesUnequalWorkers) {
  Costs costs;
  costs.per_worker = false;
  costs.stages.assign(2, {.activation_bytes = 10});
  costs.memory_limit = {0, 15};  // the last worker has memory for a single micro-batch
  RankOptions o = options_for(2, {4});
  o.methods = {"gpipe", "1f1b"};
  const Ranking r = rank(o, costs);
  ASSERT_EQ(r.ranked.size(), 2U) << "1f1b without and with recompute";
  for (const Ranked& one : r.ranked) EXPECT_EQ(one.method, "1f1b");
  costs.speed = {1, 0.5};
  EXPECT_GT(rank(o, costs).ranked[0].step_time, r.ranked[0].step_time * 1.5);
}

TEST(Rank, AsynchronousMethodsOnlyOnRequest) {
  RankOptions o = options_for(4, {4});
  const auto count = [&] {
    int n = 0;
    for (const Ranked& r : rank(o, {}).ranked) n += r.asynchronous ? 1 : 0;
    return n;
  };
  EXPECT_EQ(count(), 0);
  o.asynchronous = true;
  EXPECT_EQ(count(), 3);
}

TEST(Rank, SaysWhatItDoesNotKnow) {
  RankOptions o = options_for(4, {});
  EXPECT_THAT([&] { rank(o, {}); }, ThrowsMessage<Error>(HasSubstr("micro-batches")));
  o.micro_batches = {4};
  o.methods = {"nonsense"};
  EXPECT_THAT([&] { rank(o, {}); }, ThrowsMessage<Error>(HasSubstr("unknown method 'nonsense'")));
  o.methods = {"dualpipe"};
  const Ranking r = rank(o, {});
  EXPECT_TRUE(r.ranked.empty());
  EXPECT_THAT(to_text(r, 5), HasSubstr("no plan qualifies"));
  const auto json = nlohmann::json::parse(to_json(r));
  EXPECT_THAT(json["refused"][0]["why"].get<std::string>(), HasSubstr("an even M >= 2P"));
}

}  // namespace
}  // namespace hetu
