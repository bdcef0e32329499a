// Copies of host memory with several threads must copy every byte, and none outside the range.
#include "executor/device/threads.h"

#include <gtest/gtest.h>

#include <vector>

namespace hetu {
namespace {

TEST(CopyByThreads, CopiesEveryByteAndNoneBeside) {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  for (const int count : {1, 2, 3, 12})
    for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, kMiB - 1, 2 * kMiB,
                                     2 * kMiB + 1, 3 * kMiB + 77, 11 * kMiB - 5}) {
      const ScopedThreadCount some(count);
      std::vector<std::byte> from(static_cast<std::size_t>(bytes));
      for (std::size_t i = 0; i < from.size(); ++i)
        from[i] = static_cast<std::byte>(i * 7 + i / 251);
      std::vector<std::byte> want = from, to(from.size(), std::byte{0xee});
      want.resize(from.size() + 64, std::byte{0xee});
      to.resize(from.size() + 64, std::byte{0xee});
      copy_in_parallel(to.data(), from.data(), bytes);
      EXPECT_TRUE(to == want) << bytes << " bytes on " << count << " threads";
    }
}

}  // namespace
}  // namespace hetu
