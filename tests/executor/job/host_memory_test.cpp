// Tests the check of a plan's memory against the memory of its machines: the sums per host, and the
// error text.
#include "executor/job/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/machine_memory.h"

namespace hetu {
namespace {

constexpr std::int64_t kGiB = 1 << 30;

TEST(HostMemory, IsKnownOnThisMachine) {
  EXPECT_GT(machine_bytes(), std::int64_t{1} << 26);
  EXPECT_LT(machine_bytes(), std::int64_t{1} << 50);
}

TEST(HostMemory, SumsTheWorkersOfAHost) {
  EXPECT_EQ(overfull_host({}), "");
  EXPECT_EQ(overfull_host({{"w0", 4 * kGiB, 8 * kGiB}, {"w0", 4 * kGiB, 8 * kGiB}}), "");
  EXPECT_EQ(overfull_host({{"w0", 8 * kGiB, 8 * kGiB}, {"w1", 8 * kGiB, 8 * kGiB}}), "");
  EXPECT_EQ(overfull_host({{"w0", 8 * kGiB, 0}}), "") << "unknown is no reason to refuse";
  EXPECT_EQ(overfull_host({{"w0", kGiB, 4 * kGiB},
                           {"w1", 3 * kGiB, 4 * kGiB},
                           {"w0", kGiB, 4 * kGiB},
                           {"w1", 3 * kGiB / 2, 4 * kGiB}}),
            "host w1 has 4.0 GiB of memory, but the plan needs 4.5 GiB there (2 workers; worker 1 "
            "needs most, 3.0 GiB); use more hosts or stages, smaller micro-batches or a method "
            "that keeps fewer activations");
}

TEST(HostMemory, GoesFromPipelineToPipelineAsText) {
  const std::vector<WorkerNeed> two = {{"w0", 4 * kGiB, 8 * kGiB}, {"10.0.0.7", 5, 0}};
  EXPECT_EQ(to_text(needs_from(to_text(two))), to_text(two));
  EXPECT_EQ(to_text(two), "4294967296 8589934592 w0\n5 0 10.0.0.7\n");
  for (const char* bad : {"\n", "5 0\n", "five 0 w0\n"})
    EXPECT_THROW(needs_from(bad), Error) << bad;
}

}  // namespace
}  // namespace hetu
