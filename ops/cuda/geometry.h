// The division of work into blocks of threads. Pure functions of its size, so that the same numbers
// are added in the same order on every GPU. Used by the launchers and their tests.
#pragma once
#include <algorithm>
#include <cstdint>

namespace hetu::cuda {

/// The size of a launch.
struct Grid {
  int blocks = 0;
  int threads = 0;  ///< per block, a multiple of the warp size
};

inline constexpr int kWarp = 32;
inline constexpr int kMostThreads = 256;
/// Maximum blocks per launch. For larger loops, each block makes several passes.
inline constexpr std::int64_t kMostBlocks = 1 << 16;

/// Returns the blocks for `count` units of work.
inline int blocks_of(std::int64_t count) {
  return static_cast<int>(std::clamp<std::int64_t>(count, 1, kMostBlocks));
}

/// Returns a grid with one thread per element.
inline Grid grid_of_elements(std::int64_t elements) {
  return {blocks_of((elements + kMostThreads - 1) / kMostThreads), kMostThreads};
}

/// Returns a grid with one block per row. A block has as many warps as the row fills, at most
/// eight.
inline Grid grid_of_rows(std::int64_t rows, std::int64_t columns) {
  const std::int64_t warps =
      std::clamp<std::int64_t>((columns + kWarp - 1) / kWarp, 1, kMostThreads / kWarp);
  return {blocks_of(rows), static_cast<int>(warps) * kWarp};
}

/// Neighbours that a thread moves at once (packs.h), and the maximum packs of a row that a thread
/// holds.
inline constexpr int kPack = 8;
inline constexpr int kHeldPacks = 4;

/// Returns the threads that hold a row of `columns` elements in registers, a multiple of the warp
/// size, or 0 if the row is too long.
inline int threads_of_held_row(std::int64_t columns) {
  for (int threads = kWarp; threads <= kMostThreads; threads *= 2)
    if (columns <= std::int64_t{threads} * kHeldPacks * kPack) return threads;
  return 0;
}
/// Returns the packs per thread of such a row. Only the last round of packs may be incomplete.
inline int packs_of_held_row(std::int64_t columns, int threads) {
  return static_cast<int>((columns + threads * kPack - 1) / (threads * kPack));
}

/// Returns a grid for such rows. A block has four warps, or as many as a row needs.
inline Grid grid_of_held_rows(std::int64_t rows, int threads_of_row) {
  const int threads = std::max(threads_of_row, 4 * kWarp), of_block = threads / threads_of_row;
  return {blocks_of((rows + of_block - 1) / of_block), threads};
}

/// Returns where a lane finds the dropout decisions about its own eight neighbours: in the word of
/// slot_of_pack(), from bit shift_of_pack() on. The 32 lanes hold 256 numbers, eight neighbours
/// each. A block of random numbers decides about eight numbers that are 16 apart. So lane l decides
/// about decider(l) + 16 * slot for slots 0 to 7. A ballot per slot gives all lanes a word with a
/// bit per lane.
inline constexpr int slot_of_pack(int lane) { return lane % 16 / 2; }
inline constexpr int shift_of_pack(int lane) { return lane / 16 * 16 + lane % 2 * kPack; }
/// Returns the first number, of the warp's 256, that a lane decides about.
inline constexpr int decider(int lane) { return lane / 16 * 128 + lane % 16; }

/// Returns the number of pieces in which a sum is computed. Their sums are then added in order.
inline std::int64_t pieces_of_sum(std::int64_t terms) {
  constexpr std::int64_t kLeast = 4096, kMost = 512;  // terms per piece, pieces
  return std::clamp<std::int64_t>(terms / kLeast, 1, kMost);
}

/// Returns where piece i of `pieces` begins. Piece `pieces` begins at the end.
inline constexpr std::int64_t piece_begin(std::int64_t terms, std::int64_t pieces, std::int64_t i) {
  return terms / pieces * i + std::min(terms % pieces, i);
}

/// Returns the number of pieces for column sums with one thread per column: enough threads in all,
/// and at least 16 rows per piece.
inline std::int64_t pieces_of_rows(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kElements = 1 << 19, kLeast = 16;
  const std::int64_t wanted = kElements / std::max<std::int64_t>(columns, 1);
  return std::clamp<std::int64_t>(std::min(wanted, rows / kLeast), 1, 1024);
}

/// The division of a matrix for column sums in packs. A block of kMostThreads covers `wide` packs
/// of columns side by side and one piece of the rows. At each step its threads take `tall` rows.
struct Strips {
  int wide = 1;
  std::int64_t count = 1, pieces = 1;
  std::int64_t tall() const { return kMostThreads / wide; }
};
inline Strips strips_of(std::int64_t rows, std::int64_t packs) {
  constexpr int kWidest = 16, kBlocks = 768, kLeast = 4;  // kLeast: rows per thread
  Strips s;
  while (s.wide < kWidest && s.wide < packs) s.wide *= 2;
  s.count = std::max<std::int64_t>((packs + s.wide - 1) / s.wide, 1);
  const std::int64_t enough = std::min(kBlocks / s.count, rows / (s.tall() * kLeast));
  s.pieces = std::max<std::int64_t>(enough, 1);
  return s;
}

/// Returns the threads of a sweep over channels-last images. It is a multiple of `packs`, the packs
/// per pixel, so that each thread stays with the same channels.
inline std::int64_t sweep_threads(std::int64_t pixels, std::int64_t packs) {
  constexpr std::int64_t kThreads = 1 << 17;
  return std::clamp<std::int64_t>(kThreads / std::max<std::int64_t>(packs, 1), 1,
                                  std::max<std::int64_t>(pixels, 1)) *
         packs;
}

/// Returns how many of n images are gathered into rows at a time, at least one. The rows should
/// stay in the GPU's cache.
inline std::int64_t images_of_piece(std::int64_t n, std::int64_t bytes_of_image) {
  constexpr std::int64_t kMost = std::int64_t{32} << 20;
  const std::int64_t fit = kMost / std::max<std::int64_t>(bytes_of_image, 1);
  return std::clamp<std::int64_t>(fit, 1, std::max<std::int64_t>(n, 1));
}

}  // namespace hetu::cuda
