// The tiles in which a Kronecker factor is inverted: which there are, and what shared memory and
// scratch they need. Pure functions of its side; read by kronecker.cu and its tests.
#pragma once
#include <cmath>
#include <cstdint>

#include "ops/cuda/tiles.h"

namespace hetu::cuda {

/// Sides of a tile, and how much of the depth of a product of two is in shared memory at a time.
inline constexpr int kFactorTile = 64, kFactorDepth = 32;

/// Tiles along a side; elements behind the last of the factor are those of the identity.
HETU_HD constexpr std::int64_t factor_tiles(std::int64_t side) {
  return (side + kFactorTile - 1) / kFactorTile;
}

/// Tiles of the lower triangle, the diagonal's with them, that lie in rows above this one.
HETU_HD constexpr std::int64_t tiles_above(std::int64_t row) { return row * (row + 1) / 2; }

struct TilePlace {
  std::int64_t row = 0, column = 0;
};

/// Where tile t of the lower triangle lies, which is numbered row after row.
HETU_HD inline TilePlace place_in_triangle(std::int64_t t) {
  auto row = static_cast<std::int64_t>((std::sqrt(8.0 * static_cast<double>(t) + 1) - 1) / 2);
  while (tiles_above(row) > t) --row;  // the root is rounded
  while (tiles_above(row + 1) <= t) ++row;
  return {row, t - tiles_above(row)};
}

/// Of a block that multiplies two tiles: pieces of both, and their product.
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

/// Of a block that inverts a tile of the diagonal: the tile, and one of its columns.
struct DiagonalRoom {
  int tile, column, bytes;
};
HETU_HD constexpr DiagonalRoom diagonal_room() {
  SharedRoom room;
  const int tile = room.tile<double>(kFactorTile, kFactorTile);
  const int column = room.take(kFactorTile, int{sizeof(double)});
  return {tile, column, room.bytes()};
}

/// Bytes of the matrix that is inverted, and of a column of its tiles behind it.
constexpr std::int64_t matrix_bytes(std::int64_t side) {
  const std::int64_t padded = factor_tiles(side) * kFactorTile;
  return padded * padded * std::int64_t{sizeof(double)};
}
constexpr std::int64_t inversion_bytes(std::int64_t side) {
  return matrix_bytes(side) +
         factor_tiles(side) * kFactorTile * kFactorTile * std::int64_t{sizeof(double)};
}

}  // namespace hetu::cuda
