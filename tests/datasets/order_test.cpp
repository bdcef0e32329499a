#include "datasets/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "base/error.h"

namespace hetu {
namespace {

TEST(DrawnOrder, IsAPermutationAndAPureFunction) {
  for (const std::int64_t n : {0, 1, 2, 3, 10, 1000}) {
    for (const std::uint64_t seed : {0, 1, 99}) {
      std::vector<std::int64_t> order = drawn_order(n, seed, 3, 4);
      EXPECT_EQ(order, drawn_order(n, seed, 3, 4));
      std::sort(order.begin(), order.end());
      std::vector<std::int64_t> all(static_cast<std::size_t>(n));
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(order, all) << "n " << n << " seed " << seed;
    }
  }
}

TEST(DrawnOrder, EachKeyGivesAnother) {
  std::set<std::vector<std::int64_t>> seen;
  for (std::uint64_t k = 0; k < 20; ++k) {
    seen.insert(drawn_order(100, k, 0, 0));
    seen.insert(drawn_order(100, 0, k, 0));
    seen.insert(drawn_order(100, 0, 0, k));
  }
  EXPECT_EQ(seen.size(), 58U);  // (0, 0, 0) occurs three times
}

// A saved run must find the same order again, so these values may never change.
TEST(DrawnOrder, IsTheSameOnEveryMachine) {
  EXPECT_EQ(drawn_bits(1, 2), 0xF893A2EEFB32555EULL);
  EXPECT_EQ(drawn_order(8, 1, 2, 3), (std::vector<std::int64_t>{7, 6, 2, 1, 4, 5, 3, 0}));
}

// Each position is equally likely: the mean of the first element of 0..9 over 4000 orders is 4.5 +-
// 5 sigma.
TEST(DrawnOrder, IsEven) {
  double sum = 0;
  for (std::uint64_t a = 0; a < 4000; ++a) {
    sum += static_cast<double>(drawn_order(10, 5, a, 0).front());
  }
  EXPECT_NEAR(sum / 4000, 4.5, 5 * 2.872 / 63.2);
}

using Case = std::tuple<std::vector<std::int64_t>, std::int64_t, std::uint64_t>;
class EveryOrder : public ::testing::TestWithParam<Case> {};

TEST_P(EveryOrder, TakesEachRowOncePerEpochAndReadsFilesFrontToBack) {
  const auto& [files, window, seed] = GetParam();
  const WindowedOrder order(files, seed, window);
  const std::int64_t total = std::accumulate(files.begin(), files.end(), std::int64_t{0});
  ASSERT_EQ(order.rows(), total);
  std::set<std::vector<std::pair<int, std::int64_t>>> epochs;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::pair<int, std::int64_t>> rows;
    std::vector<std::int64_t> next(files.size(), 0);
    for (std::int64_t w = 0; w * window < total; ++w) {
      std::vector<std::pair<int, std::int64_t>> read;
      for (const FileRange& piece : order.pieces(epoch, w)) {
        EXPECT_EQ(piece.first, next[static_cast<std::size_t>(piece.file)]);
        next[static_cast<std::size_t>(piece.file)] += piece.count;
        for (std::int64_t r = 0; r < piece.count; ++r)
          read.push_back({piece.file, piece.first + r});
      }
      ASSERT_EQ(read.size(), static_cast<std::size_t>(std::min(window, total - w * window)));
      for (const std::int64_t place : order.order(epoch, w)) {
        rows.push_back(read[static_cast<std::size_t>(place)]);
      }
    }
    EXPECT_EQ(rows.size(), static_cast<std::size_t>(total));
    EXPECT_EQ((std::set<std::pair<int, std::int64_t>>(rows.begin(), rows.end()).size()),
              rows.size());
    EXPECT_EQ(next, files);
    epochs.insert(rows);
  }
  if (total > 30 && (window > 1 || files.size() > 1)) {
    EXPECT_EQ(epochs.size(), 3U) << "epochs repeat";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Grid, EveryOrder,
    ::testing::Combine(::testing::Values(std::vector<std::int64_t>{40},
                                         std::vector<std::int64_t>{17, 0, 40, 23, 1},
                                         std::vector<std::int64_t>{1, 1, 1, 1},
                                         std::vector<std::int64_t>{100, 3, 100, 50, 7, 9}),
                       ::testing::Values(1, 2, 7, 16, 64, 5000), ::testing::Values(0, 1, 12345)));

TEST(WindowedOrder, RefusesAnEmptyWindow) { EXPECT_THROW(WindowedOrder({3}, 0, 0), Error); }

}  // namespace
}  // namespace hetu
