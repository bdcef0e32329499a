// Winograd's transforms of one tile.
//
// F(4x4, 3x3) computes a tile of 4 x 4 results of a 3 x 3 convolution from 6 x 6 values of the
// image. Direct convolution takes 4 * 4 * 9 = 144 multiplications per pair of channels, and
// Winograd takes 6 * 6 = 36. Along one axis, the algorithm is the transpose of a multiplication of
// polynomials with 4 and 3 coefficients. Their product has 6 coefficients, so its values at 6
// points determine it. The line transforms below take the image and the window to 6 points, where
// they are multiplied, and take the products back to results. In two dimensions, transform()
// applies a line transform to the columns and then to the rows. At each of the 36 points, the sum
// over channels is a matrix product.
//
// The points are 0, a, -a, b, -b and infinity (Cook and Toom). With a = 2/3 and b = 4/3, the error
// of results is that of an ordinary float32 sum: about half the error with the usual points 1 and
// 2. Source: Lavin and Gray 2016. Part of winograd.cpp.
#pragma once
#include <cstdint>
#include <type_traits>

#include "ops/cpu/product_panels.h"
#include "ops/cpu/set_rounded.h"

namespace hetu::cpu::winograd {

using panels::kLanes;
using panels::UnalignedVec;
using panels::Vec;

/// Sides of a tile's results, of a window, and of a tile's values; the number of points.
constexpr int kOutputs = 4, kWindow = 3, kSide = kOutputs + kWindow - 1, kPoints = kSide * kSide;

/// The points a and b, and products of their powers: kA2 = a^2, kA2B2 = a^2 b^2, kSum2 = a^2 + b^2.
constexpr float kA = 2.0f / 3, kB = 4.0f / 3;
constexpr double kAA = 4.0 / 9, kBB = 16.0 / 9;
constexpr float kA2 = float(kAA), kB2 = float(kBB), kA2B2 = float(kAA * kBB),
                kSum2 = float(kAA + kBB), kA3 = float(kAA * 2 / 3), kB3 = float(kBB * 4 / 3);
/// The inverse of the product of a point's distances to the other finite points.
constexpr float kAt0 = float(1 / (kAA * kBB)), kAtA = float(1 / (2 * kAA * (kAA - kBB))),
                kAtB = float(1 / (2 * kBB * (kBB - kAA)));

/// Views aligned memory as a vector.
inline const Vec& vector_at(const float* p) { return *reinterpret_cast<const Vec*>(p); }
inline Vec& vector_at(float* p) { return *reinterpret_cast<Vec*>(p); }

/// Loads from, or stores to, any address at the width of a tensor.
template <class T>
Vec load(const T* from) {
  if constexpr (std::is_same_v<T, float>) return *reinterpret_cast<const UnalignedVec*>(from);
  alignas(64) float wide[kLanes];
#pragma omp simd
  for (int i = 0; i < kLanes; ++i) wide[i] = float(from[i]);
  return vector_at(wide);
}

template <class T>
void store(T* to, Vec value) {
  if constexpr (std::is_same_v<T, float>) {
    *reinterpret_cast<UnalignedVec*>(to) = value;
    return;
  }
  alignas(64) float wide[kLanes];
  vector_at(wide) = value;
#pragma omp simd
  for (int i = 0; i < kLanes; ++i) set_rounded(to[i], wide[i]);
}

/// The destination of the values of a line: six, four or three vectors, `step` vectors apart.
struct Line {
  Vec* at;
  int step;
  Vec& operator[](int i) const { return at[i * step]; }
};

/// Transforms six values of the image to the points.
inline void image_line(const Vec (&d)[kSide], Line out) {
  const Vec even_a = d[4] - kB2 * d[2], odd_a = d[3] - kB2 * d[1];
  const Vec even_b = d[4] - kA2 * d[2], odd_b = d[3] - kA2 * d[1];
  out[0] = kA2B2 * d[0] - kSum2 * d[2] + d[4];
  out[1] = even_a + kA * odd_a;
  out[2] = even_a - kA * odd_a;
  out[3] = even_b + kB * odd_b;
  out[4] = even_b - kB * odd_b;
  out[5] = kA2B2 * d[1] - kSum2 * d[3] + d[5];
}

/// Transforms three weights to the points.
inline void window_line(const Vec (&g)[kWindow], Line out) {
  const Vec even_a = g[0] + kA2 * g[2], even_b = g[0] + kB2 * g[2];
  out[0] = kAt0 * g[0];
  out[1] = kAtA * (even_a + kA * g[1]);
  out[2] = kAtA * (even_a - kA * g[1]);
  out[3] = kAtB * (even_b + kB * g[1]);
  out[4] = kAtB * (even_b - kB * g[1]);
  out[5] = g[2];
}

/// Transforms four gradients of results to the points.
inline void gradient_line(const Vec (&g)[kOutputs], Line out) {
  const Vec even_a = g[0] + kA2 * g[2], odd_a = kA * g[1] + kA3 * g[3];
  const Vec even_b = g[0] + kB2 * g[2], odd_b = kB * g[1] + kB3 * g[3];
  out[0] = kAt0 * g[0];
  out[1] = kAtA * (even_a + odd_a);
  out[2] = kAtA * (even_a - odd_a);
  out[3] = kAtB * (even_b + odd_b);
  out[4] = kAtB * (even_b - odd_b);
  out[5] = g[3];
}

/// Transforms products at the points to four results.
inline void result_line(const Vec (&m)[kSide], Line out) {
  const Vec even_a = m[1] + m[2], odd_a = m[1] - m[2], even_b = m[3] + m[4], odd_b = m[3] - m[4];
  out[0] = m[0] + even_a + even_b;
  out[1] = kA * odd_a + kB * odd_b;
  out[2] = kA2 * even_a + kB2 * even_b;
  out[3] = kA3 * odd_a + kB3 * odd_b + m[5];
}

/// Transforms products at the points to gradients of three weights.
inline void weight_line(const Vec (&m)[kSide], Line out) {
  const Vec even_a = m[1] + m[2], odd_a = m[1] - m[2], even_b = m[3] + m[4], odd_b = m[3] - m[4];
  out[0] = m[0] + even_a + even_b;
  out[1] = kA * odd_a + kB * odd_b;
  out[2] = kA2 * even_a + kB2 * even_b + m[5];
}

/// Applies a line transform to the columns of an In x In tile, then to the rows of the result.
/// get(row, column) returns an element of the tile. put(row, column, value) receives the Out x Out
/// results.
template <int In, int Out, class Transform, class Get, class Put>
inline void transform(const Transform& line, const Get& get, const Put& put) {
  alignas(64) Vec half[Out * In];
#pragma GCC unroll 6
  for (int j = 0; j < In; ++j) {
    Vec column[In];
#pragma GCC unroll 6
    for (int i = 0; i < In; ++i) column[i] = get(i, j);
    line(column, Line{half + j, In});
  }
#pragma GCC unroll 6
  for (int i = 0; i < Out; ++i) {
    Vec row[In], out[Out];
#pragma GCC unroll 6
    for (int j = 0; j < In; ++j) row[j] = half[i * In + j];
    line(row, Line{out, 1});
#pragma GCC unroll 6
    for (int j = 0; j < Out; ++j) put(i, j, out[j]);
  }
}

}  // namespace hetu::cpu::winograd
