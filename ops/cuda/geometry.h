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

/// Neighbours that a thread moves at once (packs.h), and how many times as many of a row it holds.
inline constexpr int kPack = 8;
inline constexpr int kHeldPacks = 4;

/// Threads that hold a row of so many columns in registers, whole warps; 0: it is too long.
inline int threads_of_held_row(std::int64_t columns) {
  for (int threads = kWarp; threads <= kMostThreads; threads *= 2)
    if (columns <= std::int64_t{threads} * kHeldPacks * kPack) return threads;
  return 0;
}
/// Packs of each of them; all but the last are whole rows of packs.
inline int packs_of_held_row(std::int64_t columns, int threads) {
  return static_cast<int>((columns + threads * kPack - 1) / (threads * kPack));
}

/// Of such rows: blocks of four warps, or of those that a row has.
inline Grid grid_of_held_rows(std::int64_t rows, int threads_of_row) {
  const int threads = std::max(threads_of_row, 4 * kWarp), of_block = threads / threads_of_row;
  return {blocks_of((rows + of_block - 1) / of_block), threads};
}

/// Lanes of a warp decide about a number each and the seven that follow it 16 apart, of 128 from
/// 16 lanes; a lane's eight neighbours lie in the word of this slot's decisions, a bit of every
/// lane, from this bit on.
inline constexpr int slot_of_pack(int lane) { return lane % 16 / 2; }
inline constexpr int shift_of_pack(int lane) { return lane / 16 * 16 + lane % 2 * kPack; }
/// The first number that a lane decides about, of 256 of the warp.
inline constexpr int decider(int lane) { return lane / 16 * 128 + lane % 16; }

/// In how many pieces a sum of so many terms is added, whose sums are then added in order.
inline std::int64_t pieces_of_sum(std::int64_t terms) {
  constexpr std::int64_t kLeast = 4096, kMost = 512;  // terms of a piece, pieces
  return std::clamp<std::int64_t>(terms / kLeast, 1, kMost);
}

/// Where piece i of `pieces` of `terms` begins; piece `pieces` begins at the end.
inline constexpr std::int64_t piece_begin(std::int64_t terms, std::int64_t pieces, std::int64_t i) {
  return terms / pieces * i + std::min(terms % pieces, i);
}

/// In how many pieces the rows of a matrix are summed one column at a time: enough threads in all,
/// and no piece of few rows.
inline std::int64_t pieces_of_rows(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kElements = 1 << 19, kLeast = 16;
  const std::int64_t wanted = kElements / std::max<std::int64_t>(columns, 1);
  return std::clamp<std::int64_t>(std::min(wanted, rows / kLeast), 1, 1024);
}

/// How a matrix is cut where its columns are summed: a block of kMostThreads has `wide` packs of
/// columns side by side, and a piece of the rows, of which its threads have `tall` at a step.
struct Strips {
  int wide = 1;
  std::int64_t count = 1, pieces = 1;
  std::int64_t tall() const { return kMostThreads / wide; }
};
inline Strips strips_of(std::int64_t rows, std::int64_t packs) {
  constexpr int kWidest = 16, kBlocks = 768, kLeast = 4;  // rows of a thread
  Strips s;
  while (s.wide < kWidest && s.wide < packs) s.wide *= 2;
  s.count = std::max<std::int64_t>((packs + s.wide - 1) / s.wide, 1);
  const std::int64_t enough = std::min(kBlocks / s.count, rows / (s.tall() * kLeast));
  s.pieces = std::max<std::int64_t>(enough, 1);
  return s;
}

/// Threads that go through channels-last images: whole pixels at a step, of so many packs.
inline std::int64_t sweep_threads(std::int64_t pixels, std::int64_t packs) {
  constexpr std::int64_t kThreads = 1 << 17;
  return std::clamp<std::int64_t>(kThreads / std::max<std::int64_t>(packs, 1), 1,
                                  std::max<std::int64_t>(pixels, 1)) *
         packs;
}

/// How many of n images are gathered into rows at a time, of so many bytes each: what stays in a
/// card's cache, one at least.
inline std::int64_t images_of_piece(std::int64_t n, std::int64_t bytes_of_image) {
  constexpr std::int64_t kMost = std::int64_t{32} << 20;
  const std::int64_t fit = kMost / std::max<std::int64_t>(bytes_of_image, 1);
  return std::clamp<std::int64_t>(fit, 1, std::max<std::int64_t>(n, 1));
}

}  // namespace hetu::cuda
