// The tiles of a product that threads take.
#pragma once
#include <cstdint>

namespace hetu::cpu {

constexpr std::int64_t kTileRows = 96, kTileColumns = 384;  // a tile of C stays in the second cache
constexpr std::int64_t kPieces = 16;  // a product is cut into at least, if there is work for them

struct Tile {
  std::int64_t rows, columns;
};

/// Of so many rows and columns of C: equal ones in whole panels, and so small that there are pieces
/// enough, but not below 24 x 64.
Tile tile_of(std::int64_t rows, std::int64_t columns);

}  // namespace hetu::cpu
