// Rules that hold whatever the order of events, over random worlds; a failure prints its world,
// seed and all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>

#include "tests/pipeline/groups/log_oracle.h"
#include "tests/pipeline/groups/world.h"

namespace hetu::groups {
namespace {

int between(std::mt19937_64& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

World random_world(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  World w;
  w.seed = seed;
  w.options.stages = between(random, 1, 8);
  w.options.pipelines = between(random, 2, 8);
  w.options.sync_period = between(random, 1, 20);
  w.options.seed = seed;
  if (between(random, 0, 2) == 0 && w.options.sync_period > 1) w.options.max_group = 2;
  w.slowness.assign(w.options.pipelines, 1);
  const int slow = between(random, 0, w.options.pipelines);
  const double most = std::pow(50, std::uniform_real_distribution<double>(0, 1)(random));
  for (int i = 0; i < slow; ++i)
    w.slowness[i] = std::uniform_real_distribution<double>(1, most)(random);
  if (slow > 0) w.slowness[0] = most;
  w.exponential = between(random, 0, 3) == 0;
  w.jitter = between(random, 0, 1) * 0.1;
  w.pauses = between(random, 0, 3) == 0 ? 0.5 : 0;
  w.overlapped = between(random, 0, 3) != 0;
  w.averaging_us = between(random, 0, 1) * 5000;
  w.updates = between(random, 1, 4 * w.options.sync_period);
  w.done = between(random, 0, 1) * 1000;
  return w;
}

TEST(Properties, RandomOrders) {
  const int count = 2000;
  std::map<int, double> worst;
  std::map<int, std::string> where;
  std::map<std::string, int> reasons;
  std::int64_t requests = 0;
  int over = 0;
  for (int i = 0; i < count; ++i) {
    const World w = random_world(i);
    const WorldRun r = run(w);
    ASSERT_EQ(r.stuck, "") << w.describe();
    ASSERT_EQ(disorder(r.log, w.options, w.done), "") << w.describe();
    std::int64_t sum = 0;
    for (int p = 0; p < w.options.pipelines; ++p) {
      sum += r.updates[p][0];
      for (int s = 0; s < w.options.stages; ++s) ASSERT_EQ(r.updates[p][s], r.micros[p]);
    }
    const std::int64_t least = w.options.pipelines * w.updates;
    ASSERT_GE(sum, least) << w.describe();
    ASSERT_LT(sum, least + w.options.pipelines) << w.describe();
    ASSERT_LT(worst_error_of_means(r.log, w.options, i), 1e-6);
    const double bound = w.options.pipelines * (w.options.sync_period + 1);
    for (const Decision& d : r.log) ++reasons[reason_name(d.reason)];
    requests += sum * w.options.stages;
    for (int s = 0; s < w.options.stages; ++s) {
      const auto window = worst_window(of_stage(r.log, s), w.options.pipelines);
      ASSERT_GE(window, 0);
      const double ratio = static_cast<double>(window) / bound;
      if (w.options.sync_period >= 10) {
        ASSERT_LE(ratio, 1) << w.describe();
      }
      if (ratio > 1) ++over;
      if (ratio > worst[w.options.sync_period]) {
        worst[w.options.sync_period] = ratio;
        where[w.options.sync_period] = w.describe();
      }
    }
  }
  for (const auto& [p, x] : worst)
    std::printf("P %2d worst %.3f %s\n", p, x, x > 1 ? where[p].c_str() : "");
  for (const auto& [r, c] : reasons) std::printf("%s %d\n", r.c_str(), c);
  std::printf("%d over, %ld requests\n", over, static_cast<long>(requests));
}

}  // namespace
}  // namespace hetu::groups
