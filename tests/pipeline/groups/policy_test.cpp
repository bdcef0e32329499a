#include "pipeline/groups/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hetu::groups {
namespace {

using testing::ElementsAre;

Options sizes(int stages, int pipelines, int period) {
  Options o;
  o.stages = stages;
  o.pipelines = pipelines;
  o.sync_period = period;
  return o;
}

TEST(Policy, PeriodOneClosesWithAllAndStopsAfterM) {
  for (const int pipelines : {2, 4, 9}) {
    Policy policy(sizes(2, pipelines, 1));
    policy.begin_run(100, 7);
    for (int u = 101; u <= 107; ++u) {
      for (int p = 0; p < pipelines; ++p) {
        EXPECT_TRUE(policy.take().empty());
        EXPECT_EQ(policy.wakes_at_us(), std::nullopt);
        policy.arrive({1, p, u}, 10 * u + p);
      }
      const std::vector<Decision> got = policy.take();
      ASSERT_EQ(got.size(), 1u);
      EXPECT_EQ(got[0].stage, 1);
      EXPECT_EQ(static_cast<int>(got[0].members.size()), pipelines);
      EXPECT_EQ(got[0].updates, std::vector<std::int64_t>(pipelines, u));
      EXPECT_EQ(got[0].stop_after, std::vector<std::int64_t>(pipelines, 107));
      EXPECT_EQ(got[0].serial, u - 101);
    }
  }
}

}  // namespace
}  // namespace hetu::groups
