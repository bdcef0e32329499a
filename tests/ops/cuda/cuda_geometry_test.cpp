// Tests how work is divided into blocks. Every element is covered once, within the launch limits of
// a GPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/cuda/compute_capability.h"
#include "ops/cuda/geometry.h"
#include "ops/cuda/work.h"

namespace hetu::cuda {
namespace {

constexpr std::int64_t kCounts[] = {1,       2,        31,        32,       33,   255,
                                    256,     257,      4095,      4096,     4097, 65535,
                                    1 << 24, 16777217, 1LL << 31, 5LL << 32};
// Limits of every GPU since compute capability 3.0. Source: CUDA C++ Programming Guide, "Technical
// Specifications per Compute Capability".
constexpr std::int64_t kCardBlocks = (1LL << 31) - 1;
constexpr int kCardThreads = 1024;

void expect_launchable(const Grid& grid) {
  EXPECT_GE(grid.blocks, 1);
  EXPECT_LE(grid.blocks, kCardBlocks);
  EXPECT_GE(grid.threads, kWarp);
  EXPECT_LE(grid.threads, kCardThreads);
  EXPECT_EQ(grid.threads % kWarp, 0) << "warps agree by halves, so each is whole";
}

TEST(Cards, RunMachineCodeOfTheirGenerationAndAllPtxBefore) {
  struct Case {
    int capability;
    const char* compiled;
    bool runs;
  };
  constexpr Case kCases[] = {
      {90, "90", true},
      {80, "90", false},
      {100, "90", true},
      {89, "80", true},
      {75, "80", false},
      {120, "80,86,89,90,100", true},
      {80, "86,80", true},
      {80, "86,89", false},
      {89, "86-real", true},
      {90, "86-real", false},
      {80, "86-real", false},
      {90, "80-virtual", true},
      {80, "90-virtual", false},
      {103, "100-real", true},
      {120, "100-real,90-real", false},
      {80, "native", true},
      {90, "80-real,native", true},
      {90, "", false},
      {100, "90a", false},
      {90, "90a-real", true},
      {103, "100f", true},
      {120, "100f", false},
  };
  for (const Case& c : kCases)
    EXPECT_EQ(has_code_for(c.capability, c.compiled), c.runs)
        << c.capability << " of " << c.compiled;
}

TEST(Geometry, ElementsHaveThreadsOrBlocksGoAround) {
  for (const std::int64_t n : kCounts) {
    const Grid grid = grid_of_elements(n);
    expect_launchable(grid);
    const std::int64_t threads = std::int64_t{grid.blocks} * grid.threads;
    EXPECT_TRUE(threads >= n || grid.blocks == kMostBlocks) << n;
    EXPECT_LT(threads - grid.threads, n) << n << ": a block has nothing to do";
  }
}

TEST(SmallDivisor, DividesWhatItHolds) {
  for (const std::int64_t by : {1, 2, 3, 7, 87, 112, 696, 1625, 46341, 65535, 65536}) {
    const SmallDivisor divisor(static_cast<int>(by));
    const std::int64_t end = std::min<std::int64_t>((std::int64_t{1} << 32) / by, INT32_MAX);
    ASSERT_TRUE(SmallDivisor::holds(end, by));
    for (std::int64_t i = 0; i < end; i += std::max<std::int64_t>(end / 9973, 1))
      for (const std::int64_t of : {i, i / by * by, std::min(i / by * by + by - 1, end - 1)})
        ASSERT_EQ(divisor.of(static_cast<int>(of)), of / by) << of << " / " << by;
    ASSERT_EQ(divisor.of(static_cast<int>(end - 1)), (end - 1) / by) << by;
  }
  EXPECT_FALSE(SmallDivisor::holds(65537, 65536));
}

TEST(Geometry, RowsHaveBlocksOfWholeWarpsThatTheyFill) {
  for (const std::int64_t rows : kCounts)
    for (const std::int64_t columns : kCounts) {
      const Grid grid = grid_of_rows(rows, columns);
      expect_launchable(grid);
      EXPECT_TRUE(grid.blocks == rows || grid.blocks == kMostBlocks);
      EXPECT_LE(grid.threads, kMostThreads);
      EXPECT_TRUE(grid.threads >= columns || grid.threads == kMostThreads);
      EXPECT_LT(grid.threads - kWarp, columns) << "a warp has nothing to do";
    }
  expect_launchable(grid_of_rows(3, 0));
}

TEST(Geometry, PiecesFollowEachOtherWithoutAGap) {
  for (const std::int64_t terms : kCounts)
    for (const std::int64_t pieces : {std::int64_t{1}, pieces_of_sum(terms), std::int64_t{7}}) {
      EXPECT_EQ(piece_begin(terms, pieces, 0), 0);
      EXPECT_EQ(piece_begin(terms, pieces, pieces), terms);
      const std::int64_t most = (terms + pieces - 1) / pieces;
      for (std::int64_t i = 0; i < pieces; ++i) {
        const std::int64_t size = piece_begin(terms, pieces, i + 1) - piece_begin(terms, pieces, i);
        ASSERT_TRUE(size == most || size == most - 1 || size == terms / pieces)
            << terms << " " << i;
      }
    }
}

TEST(Geometry, SumsOfRowsKeepTheirScratchSmall) {
  for (const std::int64_t rows : kCounts)
    for (const std::int64_t columns : {1LL, 64LL, 768LL, 30522LL}) {
      const std::int64_t pieces = pieces_of_rows(rows, columns);
      EXPECT_GE(pieces, 1);
      EXPECT_LE(pieces, std::max<std::int64_t>(rows, 1));
      EXPECT_LE(pieces, 1024);
    }
}

TEST(Geometry, HeldRowsHaveThreadsForAllColumnsAndNoMorePacksThanThose) {
  for (const std::int64_t columns : {8, 256, 264, 1024, 1032, 2048, 4104, 8192}) {
    const int threads = threads_of_held_row(columns), packs = packs_of_held_row(columns, threads);
    ASSERT_GT(threads, 0);
    EXPECT_LE(packs, kHeldPacks);
    EXPECT_GE(std::int64_t{threads} * packs * kPack, columns);
    EXPECT_LT(std::int64_t{threads} * (packs - 1) * kPack, columns);
    for (const std::int64_t rows : kCounts) {
      const Grid grid = grid_of_held_rows(rows, threads);
      expect_launchable(grid);
      EXPECT_LE(grid.threads, kMostThreads);
      EXPECT_EQ(grid.threads % threads, 0);
      const std::int64_t there = std::int64_t{grid.blocks} * (grid.threads / threads);
      EXPECT_TRUE(there >= rows || grid.blocks == kMostBlocks);
      EXPECT_LT(there - grid.threads / threads, rows) << "a block has nothing to do";
    }
  }
  EXPECT_EQ(threads_of_held_row(8200), 0);
}

TEST(Geometry, StripsHaveAllPacksAndPiecesOfPixelsThatThreadsFill) {
  for (const std::int64_t pixels : kCounts)
    for (const std::int64_t packs : {1, 3, 8, 16, 17, 256, 100000}) {
      const Strips s = strips_of(pixels, packs);
      EXPECT_EQ(kMostThreads % s.wide, 0);
      EXPECT_GE(s.count * s.wide, packs);
      EXPECT_LT((s.count - 1) * s.wide, packs) << "a strip has nothing to do";
      EXPECT_GE(s.pieces, 1);
      EXPECT_TRUE(s.pieces == 1 || s.pieces * s.tall() * 4 <= pixels);
      EXPECT_LE(s.count * s.pieces, std::max<std::int64_t>(s.count, 1024));
      const std::int64_t threads = sweep_threads(pixels, packs);
      EXPECT_EQ(threads % packs, 0) << "a thread's channels change";
      EXPECT_LE(threads, std::max(pixels * packs, packs));
    }
}

// Each dropout decision is made once by one lane and must reach the lane that holds the element.
TEST(Geometry, LanesGetTheDecisionsAboutTheirPacks) {
  for (int lane = 0; lane < kWarp; ++lane)
    for (int k = 0; k < kPack; ++k) {
      const int by = shift_of_pack(lane) + k;
      EXPECT_EQ(decider(by) + 16 * slot_of_pack(lane), lane * kPack + k);
    }
}

}  // namespace
}  // namespace hetu::cuda
