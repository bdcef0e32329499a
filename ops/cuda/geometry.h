// How work is cut into blocks of threads: pure functions of its size, so that the same numbers are
// added in the same order on every card. Read by the launchers and their tests.
#pragma once
#include <algorithm>
#include <cstdint>

namespace hetu::cuda {

struct Grid {
  int blocks = 0;
  int threads = 0;  ///< per block, whole warps
};

inline constexpr int kWarp = 32;
inline constexpr int kMostThreads = 256;
/// Loops over more than so many blocks are gone through by the blocks that there are.
inline constexpr std::int64_t kMostBlocks = 1 << 16;

inline int blocks_of(std::int64_t count) {
  return static_cast<int>(std::clamp<std::int64_t>(count, 1, kMostBlocks));
}

/// A thread per element.
inline Grid grid_of_elements(std::int64_t elements) {
  return {blocks_of((elements + kMostThreads - 1) / kMostThreads), kMostThreads};
}

/// A block per row: as many whole warps as the row fills, eight at most.
inline Grid grid_of_rows(std::int64_t rows, std::int64_t columns) {
  const std::int64_t warps =
      std::clamp<std::int64_t>((columns + kWarp - 1) / kWarp, 1, kMostThreads / kWarp);
  return {blocks_of(rows), static_cast<int>(warps) * kWarp};
}

/// In how many pieces a sum of so many terms is added, whose sums are then added in order.
inline std::int64_t pieces_of_sum(std::int64_t terms) {
  constexpr std::int64_t kLeast = 4096, kMost = 512;  // terms of a piece, pieces
  return std::clamp<std::int64_t>(terms / kLeast, 1, kMost);
}

/// Where piece i of `pieces` of `terms` begins; piece `pieces` begins at the end.
inline constexpr std::int64_t piece_begin(std::int64_t terms, std::int64_t pieces, std::int64_t i) {
  return terms / pieces * i + std::min(terms % pieces, i);
}

/// In how many pieces the rows of a matrix are summed column by column: enough threads in all,
/// were each to have eight columns, and no piece of few rows.
inline std::int64_t pieces_of_rows(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kElements = 1 << 19, kLeast = 16;
  const std::int64_t wanted = kElements / std::max<std::int64_t>(columns, 1);
  return std::clamp<std::int64_t>(std::min(wanted, rows / kLeast), 1, 1024);
}

/// How many of n images are gathered into rows at a time, of so many bytes each: what stays in a
/// card's cache, one at least.
inline std::int64_t images_of_piece(std::int64_t n, std::int64_t bytes_of_image) {
  constexpr std::int64_t kMost = std::int64_t{32} << 20;
  const std::int64_t fit = kMost / std::max<std::int64_t>(bytes_of_image, 1);
  return std::clamp<std::int64_t>(fit, 1, std::max<std::int64_t>(n, 1));
}

}  // namespace hetu::cuda
