// The elements of a matrix that each lane of a warp holds when matrix units multiply 16 x 16 by 16
// x 8 (float32: 16 x 8 by 8 x 8), the rows whose addresses a lane passes to loads, and the split of
// float32 into TF32 parts. Pure functions. Used by warp_tile.h, by the host versions of its
// instructions, and by their test.
// Source: NVIDIA, PTX ISA 9.0, "Matrix Fragments for mma.m16n8k16", "... m16n8k8", "ldmatrix".
#pragma once
#include <bit>
#include <cstdint>

#include "ops/scalar_fns.h"

namespace hetu::cuda {

struct Spot {
  int row, column;
};

/// Elements per row of a square (8 rows of 16 bytes), and the depth that one instruction
/// multiplies: two squares.
template <class T>
inline constexpr int kAcross = 16 / int{sizeof(T)};
template <class T>
inline constexpr int kDeep = 2 * kAcross<T>;

/// Returns the position of number r (0 to 3) that a lane holds of sums [16, 8].
HETU_HD constexpr Spot sum_spot(int lane, int r) {
  return {lane / 4 + r / 2 * 8, lane % 4 * 2 + r % 2};
}

/// Returns where a row of a square begins, namely the row whose address a lane passes to ldmatrix.
/// The factor is a left one [16, kDeep], or a right one [16, 16] that the load transposes. An
/// ldmatrix instruction loads four squares. Lane l passes the address of row l % 8 of square l / 8.
/// The squares are ordered down first.
template <class T>
HETU_HD constexpr Spot row_down(int lane) {
  return {lane % 16, lane / 16 * kAcross<T>};
}

/// As above, for a right factor stored as [columns, depth]. The squares are ordered across first.
template <class T>
HETU_HD constexpr Spot row_across(int lane) {
  return {lane % 8 + lane / 16 * 8, lane / 8 % 2 * kAcross<T>};
}

/// Returns the position of number r (0 to 3) that a lane holds of a right factor [8, 16] of
/// float32, which loads don't transpose. If the left factor is made of sums (`of_sums`), a lane
/// holds two neighbours of the depth in the places of two elements that are four apart. The rows of
/// the right factor are then permuted in the same way.
HETU_HD constexpr Spot right_spot(int lane, int r, bool of_sums) {
  return {of_sums ? lane % 4 * 2 + r % 2 : lane % 4 + r % 2 * 4, lane / 4 + r / 2 * 8};
}

/// Splits a float32 into the bits that matrix units take. The upper part is rounded to nearest,
/// ties away from zero, as cvt.rna.tf32 does for finite numbers. The lower part is the remainder,
/// truncated. Together they hold 22 bits of the significand. For an infinite number or NaN the
/// lower part is NaN.
inline constexpr std::uint32_t kTf32Bits = 0xffffe000u;
HETU_HD constexpr std::uint32_t tf32_upper(float x) {
  return (std::bit_cast<std::uint32_t>(x) + 0x1000u) & kTf32Bits;
}
HETU_HD constexpr std::uint32_t tf32_lower(float x) {
  return std::bit_cast<std::uint32_t>(x - std::bit_cast<float>(tf32_upper(x))) & kTf32Bits;
}

}  // namespace hetu::cuda
