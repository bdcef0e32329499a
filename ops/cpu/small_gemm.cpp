#include "ops/cpu/small_gemm.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hetu::cpu {
namespace {

// A compiler vector type: sixteen floats with any instruction set. It stays in registers, unlike an
// array that a loop traverses.
using Vec = float __attribute__((vector_size(64)));

inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline void store(float* p, const Vec& v) { std::memcpy(p, &v, sizeof v); }

// 6 x 4 accumulators, 4 vectors of B and one broadcast of A fill the 32 registers of AVX-512.
constexpr int kMaxRows = 6;
constexpr int kMaxVectors = 4;

// Indices are template arguments (I over Rows x Vectors, J over Vectors). The compiler keeps an
// array in registers only if every index is known as a constant early.
template <int Vectors, int... I, int... J>  // NOLINTNEXTLINE(readability-function-size)
inline void accumulate_tile(std::integer_sequence<int, I...>, std::integer_sequence<int, J...>,
                            const SmallGemm& s, const float* a, const float* b, float* c,
                            bool accumulate) {
  Vec sum[] = {
      (accumulate ? load(c + I / Vectors * s.c_stride + I % Vectors * kVector) : Vec{})...};
  for (std::int64_t l = 0; l < s.k; ++l, a += s.a_column, b += s.b_stride) {
    const Vec row[] = {load(b + J * kVector)...};
    ((sum[I] += a[I / Vectors * s.a_row] * row[I % Vectors]), ...);
  }
  (store(c + I / Vectors * s.c_stride + I % Vectors * kVector, sum[I]), ...);
}

template <int Rows, int Vectors>
void tile(const SmallGemm& s, const float* a, const float* b, float* c, bool accumulate) {
  accumulate_tile<Vectors>(std::make_integer_sequence<int, Rows * Vectors>(),
                           std::make_integer_sequence<int, Vectors>(), s, a, b, c, accumulate);
}

using Tile = void (*)(const SmallGemm&, const float*, const float*, float*, bool);

template <int Rows>
constexpr Tile kRowTiles[kMaxVectors] = {tile<Rows, 1>, tile<Rows, 2>, tile<Rows, 3>,
                                         tile<Rows, 4>};

constexpr const Tile* kTiles[kMaxRows] = {kRowTiles<1>, kRowTiles<2>, kRowTiles<3>,
                                          kRowTiles<4>, kRowTiles<5>, kRowTiles<6>};

}  // namespace

void small_gemm(const SmallGemm& s, const float* a, const float* b, float* c, bool accumulate) {
  for (std::int64_t j = 0; j < s.n; j += kMaxVectors * kVector) {
    const std::int64_t vectors = std::min<std::int64_t>(kMaxVectors, (s.n - j) / kVector);
    for (std::int64_t i = 0; i < s.m; i += kMaxRows) {
      const std::int64_t rows = std::min<std::int64_t>(kMaxRows, s.m - i);
      kTiles[rows - 1][vectors - 1](s, a + i * s.a_row, b + j, c + i * s.c_stride + j, accumulate);
    }
  }
}

void pack_transposed(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                     float* out) {
  const std::int64_t width = padded(rows);
  for (std::int64_t first = 0; first < width; first += kVector) {
    const std::int64_t count = std::clamp<std::int64_t>(rows - first, 0, kVector);
    for (std::int64_t j = 0; j < columns; ++j) {
      float* to = out + j * width + first;
      for (std::int64_t i = 0; i < count; ++i) to[i] = x[(first + i) * stride + j];
      std::fill(to + count, to + kVector, 0.0f);
    }
  }
}

}  // namespace hetu::cpu
