// Winograd's transforms of one tile: 6 x 6 points of a 3 x 3 window's 4 x 4 results. Source: Lavin
// and Gray 2016 (F(4x4, 3x3)); the matrices are those of Cook and Toom for the points 0, a, -a, b,
// -b and infinity. With a = 2/3 and b = 4/3 results are as far from exact ones as a sum's of
// float32: about half as far as with the usual 1 and 2. Part of winograd.cpp.
#pragma once
#include <cstdint>
#include <type_traits>

#include "ops/cpu/product_panels.h"
#include "ops/cpu/set_rounded.h"

namespace hetu::cpu::winograd {

using panels::kLanes;
using panels::UnalignedVec;
using panels::Vec;

constexpr int kOutputs = 4, kWindow = 3, kSide = kOutputs + kWindow - 1, kPoints = kSide * kSide;

constexpr float kA = 2.0f / 3, kB = 4.0f / 3;
constexpr double kAA = 4.0 / 9, kBB = 16.0 / 9;
constexpr float kA2 = float(kAA), kB2 = float(kBB), kA2B2 = float(kAA * kBB),
                kSum2 = float(kAA + kBB), kA3 = float(kAA * 2 / 3), kB3 = float(kBB * 4 / 3);
/// One over the product of a point's distances to the others.
constexpr float kAt0 = float(1 / (kAA * kBB)), kAtA = float(1 / (2 * kAA * (kAA - kBB))),
                kAtB = float(1 / (2 * kBB * (kBB - kAA)));

inline const Vec& vector_at(const float* p) { return *reinterpret_cast<const Vec*>(p); }
inline Vec& vector_at(float* p) { return *reinterpret_cast<Vec*>(p); }

/// From and to any address, at the width of a tensor.
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

/// Where six (four, three) values of a line lie: `step` vectors apart.
struct Line {
  Vec* at;
  int step;
  Vec& operator[](int i) const { return at[i * step]; }
};

/// Values of the image, at the points.
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

/// Three weights, at the points.
inline void window_line(const Vec (&g)[kWindow], Line out) {
  const Vec even_a = g[0] + kA2 * g[2], even_b = g[0] + kB2 * g[2];
  out[0] = kAt0 * g[0];
  out[1] = kAtA * (even_a + kA * g[1]);
  out[2] = kAtA * (even_a - kA * g[1]);
  out[3] = kAtB * (even_b + kB * g[1]);
  out[4] = kAtB * (even_b - kB * g[1]);
  out[5] = g[2];
}

/// Four gradients of results, at the points.
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

/// Products at the points become four results.
inline void result_line(const Vec (&m)[kSide], Line out) {
  const Vec even_a = m[1] + m[2], odd_a = m[1] - m[2], even_b = m[3] + m[4], odd_b = m[3] - m[4];
  out[0] = m[0] + even_a + even_b;
  out[1] = kA * odd_a + kB * odd_b;
  out[2] = kA2 * even_a + kB2 * even_b;
  out[3] = kA3 * odd_a + kB3 * odd_b + m[5];
}

/// Products at the points become gradients of three weights.
inline void weight_line(const Vec (&m)[kSide], Line out) {
  const Vec even_a = m[1] + m[2], odd_a = m[1] - m[2], even_b = m[3] + m[4], odd_b = m[3] - m[4];
  out[0] = m[0] + even_a + even_b;
  out[1] = kA * odd_a + kB * odd_b;
  out[2] = kA2 * even_a + kB2 * even_b + m[5];
}

/// A line's transform on the columns of an In x In tile, then on the rows of what comes out:
/// get(row, column) gives, put(row, column, value) takes Out x Out.
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
