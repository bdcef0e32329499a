// The tiles in which a Kronecker factor is inverted: their number and position, and the shared
// memory and scratch they need. Pure functions of the factor's side. Used by kronecker.cu and its
// tests.
#pragma once
#include <cmath>
#include <cstdint>

#include "ops/cuda/tiles.h"

namespace hetu::cuda {

/// Side of a tile, and the depth of a product of two tiles that is in shared memory at a time.
inline constexpr int kFactorTile = 64, kFactorDepth = 32;

/// Returns the tiles along a side. Beyond the factor's last row and column, tiles contain the
/// identity.
HETU_HD constexpr std::int64_t factor_tiles(std::int64_t side) {
  return (side + kFactorTile - 1) / kFactorTile;
}

/// Returns the tiles of the lower triangle (including the diagonal) in the rows above `row`.
HETU_HD constexpr std::int64_t tiles_above(std::int64_t row) { return row * (row + 1) / 2; }

/// The row and column of a tile.
struct TilePosition {
  std::int64_t row = 0, column = 0;
};

/// Returns the position of tile t of the lower triangle. Tiles are numbered row by row.
HETU_HD inline TilePosition position_in_triangle(std::int64_t t) {
  auto row = static_cast<std::int64_t>((std::sqrt(8.0 * static_cast<double>(t) + 1) - 1) / 2);
  while (tiles_above(row) > t) --row;  // corrects the rounding of the square root
  while (tiles_above(row + 1) <= t) ++row;
  return {row, t - tiles_above(row)};
}

/// Shared memory of a block that multiplies two tiles: parts of both, and their product.
struct FactorRoom {
  int left, right, product, bytes;
};
HETU_HD constexpr FactorRoom factor_room() {
  SharedRoom room;
  const int piece = kFactorTile * tile_step<double>(kFactorDepth);
  const int across = kFactorDepth * tile_step<double>(kFactorTile);
  const int most = piece > across ? piece : across;
  const int left = room.take(most, int{sizeof(double)});
  const int right = room.take(most, int{sizeof(double)});
  const int product = room.tile<double>(kFactorTile, kFactorTile);
  return {left, right, product, room.bytes()};
}

/// Shared memory of a block that inverts a tile of the diagonal: the tile and one of its columns.
struct DiagonalRoom {
  int tile, column, bytes;
};
HETU_HD constexpr DiagonalRoom diagonal_room() {
  SharedRoom room;
  const int tile = room.tile<double>(kFactorTile, kFactorTile);
  const int column = room.take(kFactorTile, int{sizeof(double)});
  return {tile, column, room.bytes()};
}

/// Bytes of the padded matrix that is inverted, and of that matrix followed by one column of tiles.
constexpr std::int64_t matrix_bytes(std::int64_t side) {
  const std::int64_t padded = factor_tiles(side) * kFactorTile;
  return padded * padded * std::int64_t{sizeof(double)};
}
constexpr std::int64_t inversion_bytes(std::int64_t side) {
  return matrix_bytes(side) +
         factor_tiles(side) * kFactorTile * kFactorTile * std::int64_t{sizeof(double)};
}

}  // namespace hetu::cuda
