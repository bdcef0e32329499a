// The tiles of a product: each is computed by one thread.
#pragma once
#include <cstdint>

namespace hetu::cpu {

// A tile of C stays in the second-level cache.
constexpr std::int64_t kTileRows = 96, kTileColumns = 384;
// Minimum number of pieces of a product, if there is enough work.
constexpr std::int64_t kPieces = 16;

/// A part of C, in rows and columns.
struct Tile {
  std::int64_t rows, columns;
};

/// Returns the tile size for a C of `rows` x `columns`. Tiles are equal and consist of whole
/// panels. They are small enough for kPieces pieces, but not smaller than 24 x 64.
Tile tile_of(std::int64_t rows, std::int64_t columns);

}  // namespace hetu::cpu
