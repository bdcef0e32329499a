// Which elements of a matrix a lane of a warp holds, and which rows it shows, when matrix units
// multiply 16 x 16 by 16 x 8: pure functions. Read by warp_tile.h, by its twins' instructions and
// by their test.
// Source: NVIDIA, PTX ISA 9.0, "Matrix Fragments for mma.m16n8k16", "ldmatrix".
#pragma once
#include "ops/scalar_fns.h"

namespace hetu::cuda {

struct Spot {
  int row, column;
};

/// Of number r, below 4, that a lane holds of sums [16, 8].
HETU_HD constexpr Spot sum_spot(int lane, int r) {
  return {lane / 4 + r / 2 * 8, lane % 4 * 2 + r % 2};
}

/// Four squares of 8 x 8 are loaded at once; lane l shows row l % 8 of square l / 8. Where the row
/// that it shows begins in a left factor [16, 16], and in a right one [16, 16] that the load turns:
/// squares go down first.
HETU_HD constexpr Spot row_down(int lane) { return {lane % 16, lane / 16 * 8}; }

/// The same in a right factor that lies as [columns, depth]: squares go across first.
HETU_HD constexpr Spot row_across(int lane) { return {lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8}; }

}  // namespace hetu::cuda
