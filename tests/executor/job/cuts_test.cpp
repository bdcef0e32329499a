// Tests the choice of cuts. It uses the costs of blocks and the speeds of workers, and keeps every
// worker within its memory limit.
#include <gmock/gmock.h>

#include <set>

#include "base/error.h"
#include "base/words.h"
#include "executor/job/job.h"
#include "executor/job/make_plan.h"
#include "executor/stage/block_times.h"
#include "pipeline/cost/partition.h"
#include "tests/executor/small_model.h"
#include "tests/executor/test_options.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int kBlocks = 6, kStages = 3;

Graph model() {
  testing_model::Sizes sizes;
  sizes.blocks = kBlocks;
  sizes.tied = false;
  return testing_model::language_model(sizes);
}

JobOptions options_of(const char* method = "hetpipe") {
  JobOptions options = test_options();
  options.method = method;
  options.pipelines = 2;
  options.stages = kStages;
  options.micro_batches = 3;
  options.batch_size = 6;
  options.threads = 1;
  if (wants_servers(options)) options.servers.emplace();
  return options;
}

JobPlan plan_of(const JobOptions& options, int worker = 0) {
  return make_plan(model(), {}, options, {worker, 2 * kStages});
}

std::vector<Cut> cuts_of(const JobOptions& options) { return plan_of(options).options.cuts; }

TEST(PartitionOfAJob, IsAsTold) {
  JobOptions options = options_of();
  options.partition = parse_partition("1,2,3/3,2,1");
  EXPECT_EQ(cuts_of(options), (std::vector<Cut>{{0, 1, 3}, {0, 3, 5}}));
  EXPECT_EQ(plan_of(options, kStages).options.first_block, (Cut{0, 3, 5}));
  options.partition = parse_partition("1,2,3");
  EXPECT_EQ(plan_of(options).options.first_block, (Cut{0, 1, 3}));
  EXPECT_THAT(cuts_of(options), testing::IsEmpty()) << "they are alike";
}

TEST(PartitionOfAJob, GoesByTimesAndSpeeds) {
  JobOptions options = options_of();
  options.partition = parse_partition("times");
  options.block_times = {4, 2, 2, 2, 1, 1};
  EXPECT_EQ(plan_of(options).options.first_block, (Cut{0, 1, 3}));
  options.speed = {1, 1, 1, 1, 1, 0.25};
  EXPECT_EQ(cuts_of(options), (std::vector<Cut>{{0, 1, 3}, {0, 2, 5}}));
  options = options_of("1f1b");
  options.speed = {1, 1, 1, 0.25, 1, 1};  // one cut for all pipelines, with a slow first stage
  EXPECT_EQ(plan_of(options).options.first_block[1], 1);
}

TEST(PartitionOfAJob, RefusesWhatItCannotCutBy) {
  const auto refused = [](const JobOptions& options, const char* why) {
    EXPECT_THAT([&] { plan_of(options); }, ThrowsMessage<Error>(HasSubstr(why)));
  };
  JobOptions options = options_of();
  options.partition = parse_partition("times");
  refused(options, "--partition times: the times of blocks are missing; give --costs FILE");
  options.block_times = {1, 1};
  refused(options, "--costs has times of 2 blocks, but the model has 6 blocks");
  options.partition = parse_partition("2,2,2");
  options.first_block = {0, 1, 2};
  refused(options, "the first blocks of stages are given, too");
  options = options_of("interleaved-1f1b");
  options.speed = {1, 1, 0.5};
  refused(options, "'interleaved-1f1b' has 6 stages on 3 workers");
}

// All cuts of a pipeline, each planned on its own. An entry holds the peak memory of a cut's
// workers, and the operations of its slowest stage divided by the worker's speed.
struct Counted {
  explicit Counted(std::vector<double> speed) {
    const std::vector<double> costs = block_flops(model());
    for (int a = 1; a < kBlocks - 1; ++a) {
      for (int b = a + 1; b < kBlocks; ++b) {
        const Cut cut = {0, a, b};
        JobOptions options = options_of();
        options.first_block = cut;
        std::int64_t most = 0;
        for (int w = 0; w < kStages; ++w) most = std::max(most, plan_of(options, w).memory.peak());
        all.push_back({cut, most, slowest(cut, costs, speed)});
      }
    }
  }

  static double slowest(const Cut& cut, const std::vector<double>& costs,
                        const std::vector<double>& speed) {
    double worst = 0;
    for (int s = 0; s < kStages; ++s) {
      double sum = 0;
      for (int b = cut[s]; b < (s + 1 < kStages ? cut[s + 1] : kBlocks); ++b) sum += costs[b];
      worst = std::max(worst, sum / speed[s]);
    }
    return worst;
  }

  struct One {
    Cut cut;
    std::int64_t bytes;
    double slowest;
  };
  std::vector<One> all;
};

TEST(PartitionOfAJob, IsTheQuickestThatKeepsToTheLimitOfMemory) {
  JobOptions options = options_of();
  const std::vector<std::vector<double>> speeds = {{1, 1, 1}, {1, 0.4, 1}};
  for (const auto& speed : speeds)
    options.speed.insert(options.speed.end(), speed.begin(), speed.end());
  const Counted counted[] = {Counted(speeds[0]), Counted(speeds[1])};
  const std::vector<double> costs = block_flops(model());
  std::set<std::int64_t> limits;
  for (const Counted::One& one : counted[0].all) limits.insert(one.bytes);
  ASSERT_GE(limits.size(), 3U);
  std::set<Cut> found;
  for (const std::int64_t limit : limits) {
    SCOPED_TRACE(limit);
    options.limit_bytes = limit;
    for (int d = 0; d < 2; ++d) {
      double best = std::numeric_limits<double>::infinity();
      for (const Counted::One& one : counted[d].all)
        if (one.bytes <= limit) best = std::min(best, one.slowest);
      const Cut cut = plan_of(options, d * kStages).options.first_block;
      EXPECT_DOUBLE_EQ(Counted::slowest(cut, costs, speeds[d]), best);
      found.insert(cut);
    }
  }
  EXPECT_GE(found.size(), 3U) << "the limit makes no difference";
  options.limit_bytes = *limits.begin() - 1;
  EXPECT_THAT([&] { plan_of(options); },
              ThrowsMessage<Error>(testing::AllOf(
                  HasSubstr(fmt::format("keeps every worker of pipeline 0 within {};",
                                        memory_text(options.limit_bytes))),
                  HasSubstr(fmt::format("needs {};", memory_text(*limits.begin()))))));
}

}  // namespace
}  // namespace hetu
