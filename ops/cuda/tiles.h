// Tiles of matrices that a block of threads has in its shared memory, and how large they may be.
// Read by kernels that work in tiles, by what runs them (<block.h>), and by their tests.
#pragma once
#include <cstdint>
#include <type_traits>

#include "ops/scalar_fns.h"

namespace hetu::cuda {

/// Sides of tiles are multiples of it: what matrix units multiply at once.
inline constexpr int kTileSide = 16;
/// Of one block. Cards of compute capability 8.6 and 8.9 have least: 99 KiB (CUDA C++ Programming
/// Guide, "Technical Specifications per Compute Capability").
inline constexpr int kMostShared = 99 << 10;
inline constexpr int kSharedAlignment = 128;  ///< bytes, of every part of shared memory
inline constexpr int kBlockThreads = 256;

HETU_HD constexpr int tile_round(int n) { return (n + kTileSide - 1) / kTileSide * kTileSide; }

/// Elements from one row of a tile to the next: what lies below each other is in other banks, and
/// rows begin where 16 bytes do.
template <class T>
HETU_HD constexpr int tile_step(int columns) {
  return columns + 16 / int{sizeof(T)};
}

/// A factor of a product: [rows, columns] as `transposed` has it in memory.
template <class T>
struct Tile {
  const T* at;
  int step;
  bool transposed;
};

/// What products of tiles of T are added up in.
template <class T>
using SumOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Parts of shared memory, one behind the other.
class SharedRoom {
 public:
  /// Where `count` elements of so many bytes begin.
  HETU_HD constexpr int take(int count, int size) {
    const int at = bytes_;
    bytes_ += (count * size + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
    return at;
  }
  /// The same of a tile of T.
  template <class T>
  HETU_HD constexpr int tile(int rows, int columns) {
    return take(rows * tile_step<T>(columns), int{sizeof(T)});
  }
  HETU_HD constexpr int bytes() const { return bytes_; }

 private:
  int bytes_ = 0;
};

/// Queries and keys that a block of flash attention works on at a time.
struct FlashTile {
  int queries = 0, keys = 0;  ///< 0: a head has too many columns for shared memory
};

/// The largest for which room(queries, keys) bytes are there.
template <class Room>
FlashTile flash_tile(const Room& room) {
  constexpr FlashTile kTried[] = {{64, 64}, {64, 32}, {32, 32}, {32, 16}, {16, 16}};
  for (const FlashTile& t : kTried)
    if (room(t) <= kMostShared) return t;
  return {};
}

}  // namespace hetu::cuda
