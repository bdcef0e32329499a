// Which elements of a matrix a lane of a warp holds, and which rows it shows, when matrix units
// multiply 16 x 16 by 16 x 8, or of float32 16 x 8 by 8 x 8, and what they take of float32: pure
// functions. Read by warp_tile.h, by its twins' instructions and by their test.
// Source: NVIDIA, PTX ISA 9.0, "Matrix Fragments for mma.m16n8k16", "... m16n8k8", "ldmatrix".
#pragma once
#include <bit>
#include <cstdint>

#include "ops/scalar_fns.h"

namespace hetu::cuda {

struct Spot {
  int row, column;
};

/// Elements of a row of a square, which is 8 rows of 16 bytes, and of the depth that is multiplied
/// at once: two squares.
template <class T>
inline constexpr int kAcross = 16 / int{sizeof(T)};
template <class T>
inline constexpr int kDeep = 2 * kAcross<T>;

/// Of number r, below 4, that a lane holds of sums [16, 8].
HETU_HD constexpr Spot sum_spot(int lane, int r) {
  return {lane / 4 + r / 2 * 8, lane % 4 * 2 + r % 2};
}

/// Four squares are loaded at once; lane l shows row l % 8 of square l / 8. Where the row that it
/// shows begins in a left factor [16, kDeep], and in a right one [16, 16] that the load turns:
/// squares go down first.
template <class T>
HETU_HD constexpr Spot row_down(int lane) {
  return {lane % 16, lane / 16 * kAcross<T>};
}

/// The same in a right factor that lies as [columns, depth]: squares go across first.
template <class T>
HETU_HD constexpr Spot row_across(int lane) {
  return {lane % 8 + lane / 16 * 8, lane / 8 % 2 * kAcross<T>};
}

/// Of number r, below 4, that a lane holds of a right factor [8, 16] of float32, which no load
/// turns. Where sums are the left factor, a lane has two neighbours of the depth, which take the
/// places of two that are four apart: so must the rows of the right one.
HETU_HD constexpr Spot right_spot(int lane, int r, bool of_sums) {
  return {of_sums ? lane % 4 * 2 + r % 2 : lane % 4 + r % 2 * 4, lane / 4 + r / 2 * 8};
}

/// Of float32 the bits that the matrix units take, rounded to nearest, ties away from zero, as
/// cvt.rna.tf32 rounds what is finite; and of what is left as many, cut off, of which 22 bits are
/// there together. Of what is not finite the second is NaN.
inline constexpr std::uint32_t kTf32Bits = 0xffffe000u;
HETU_HD constexpr std::uint32_t tf32_upper(float x) {
  return (std::bit_cast<std::uint32_t>(x) + 0x1000u) & kTf32Bits;
}
HETU_HD constexpr std::uint32_t tf32_lower(float x) {
  return std::bit_cast<std::uint32_t>(x - std::bit_cast<float>(tf32_upper(x))) & kTf32Bits;
}

}  // namespace hetu::cuda
