// Tiles of matrices in the shared memory of a block of threads, and their maximum size. Used by
// kernels that work in tiles, by the code that runs them (<block.h>), and by their tests.
#pragma once
#include <cstdint>
#include <type_traits>

#include "ops/scalar_fns.h"

namespace hetu::cuda {

/// The sides of tiles are multiples of this, the side that matrix units multiply at once.
inline constexpr int kTileSide = 16;
/// Maximum shared memory of one block, in bytes. GPUs of compute capability 8.6 and 8.9 have the
/// least of all supported GPUs: 99 KiB (CUDA C++ Programming Guide, "Technical Specifications per
/// Compute Capability").
inline constexpr int kMostShared = 99 << 10;
inline constexpr int kSharedAlignment = 128;  ///< bytes, for each part of shared memory
inline constexpr int kBlockThreads = 256;

HETU_HD constexpr int tile_round(int n) { return (n + kTileSide - 1) / kTileSide * kTileSide; }

/// Returns the elements from one row of a tile to the next. The padding puts elements of the same
/// column into different banks and keeps rows aligned to 16 bytes.
template <class T>
HETU_HD constexpr int tile_step(int columns) {
  return columns + 16 / int{sizeof(T)};
}

/// A factor of a product: a [rows, columns] matrix, which is stored transposed if `transposed`.
template <class T>
struct Tile {
  const T* at;
  int step;
  bool transposed;
};

/// The type in which products of tiles of T are summed.
template <class T>
using SumOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// An allocator of consecutive parts of shared memory.
class SharedRoom {
 public:
  /// Returns the offset of `count` elements of `size` bytes.
  HETU_HD constexpr int take(int count, int size) {
    const int at = bytes_;
    bytes_ += (count * size + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
    return at;
  }
  /// As above, for a tile of T.
  template <class T>
  HETU_HD constexpr int tile(int rows, int columns) {
    return take(rows * tile_step<T>(columns), int{sizeof(T)});
  }
  HETU_HD constexpr int bytes() const { return bytes_; }

 private:
  int bytes_ = 0;
};

/// The queries and keys that a block of flash attention processes at a time.
struct FlashTile {
  int queries = 0, keys = 0;  ///< 0: a head has too many columns for shared memory
};

/// Returns the largest tile for which room(tile) bytes fit into shared memory, or an empty tile.
template <class Room>
FlashTile flash_tile(const Room& room) {
  constexpr FlashTile kTried[] = {{64, 64}, {64, 32}, {32, 32}, {32, 16}, {16, 16}};
  for (const FlashTile& t : kTried)
    if (room(t) <= kMostShared) return t;
  return {};
}

}  // namespace hetu::cuda
