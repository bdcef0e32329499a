// Rotary position embedding: positions as rotations of pairs of columns. Shape letters: B samples,
// D columns of a head, N the first of them, which are rotated.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/rotary_frequency.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

struct Turns {
  std::int64_t B, tokens, heads, D, N;
  RotaryFrequency frequency;
  bool interleaved, given, each;  // given: positions are an input; each: one row per sample
  int sign;

  explicit Turns(const KernelDesc& d)
      : B(d.inputs[0].shape[0]),
        tokens(d.inputs[0].shape[1]),
        heads(d.attrs->integer("heads")),
        D(d.inputs[0].shape[2] / heads),
        N(d.attrs->integer("rotated") > 0 ? d.attrs->integer("rotated") : D),
        frequency(RotaryFrequency::of(*d.attrs, N)),
        interleaved(d.attrs->integer("interleaved") != 0),
        given(d.inputs.size() > 1),
        each(given && d.inputs[1].shape.size() == 2),
        sign(d.attrs->integer("inverse") != 0 ? -1 : 1) {}

  /// Returns the angle of pair i at a position.
  double angle(std::int64_t position, std::int64_t i) const {
    return sign * double(position) * frequency(i);
  }
  /// Returns the first (second) column of pair i.
  std::int64_t first(std::int64_t i) const { return interleaved ? 2 * i : i; }
  std::int64_t second(std::int64_t i) const { return interleaved ? 2 * i + 1 : i + N / 2; }
};

template <class T>
struct Rotary : Turns {
  explicit Rotary(const KernelDesc& d) : Turns(d) {}

  void operator()(const KernelCall& c) const {
    std::copy_n(c.in<T>(0), B * tokens * heads * D, c.out<T>(0));
    for (std::int64_t row = 0; row < B * tokens; ++row) {
      const std::int64_t token = row % tokens;
      const std::int64_t at = given ? c.in<std::int32_t>(1)[each ? row : token] : token;
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < N / 2; ++i)
          turn(c.in<T>(0) + (row * heads + h) * D, i, angle(at, i),
               c.out<T>(0) + (row * heads + h) * D);
    }
  }

  void turn(const T* x, std::int64_t i, double by, T* y) const {
    const double a = double(x[first(i)]), b = double(x[second(i)]);
    y[first(i)] = static_cast<T>(a * std::cos(by) - b * std::sin(by));
    y[second(i)] = static_cast<T>(b * std::cos(by) + a * std::sin(by));
  }
};

/// Keeps the cosines and sines of each row in a table. Without a positions input, the table is
/// computed once, at preparation. Otherwise it is computed in scratch memory.
struct VectorRotary : Turns {
  std::vector<float> places;
  explicit VectorRotary(const KernelDesc& d) : Turns(d) {
    if (given) return;
    places.resize(static_cast<std::size_t>(tokens * N));
    for (std::int64_t t = 0; t < tokens; ++t) fill_row(t, places.data() + t * N);
  }

  std::int64_t rows() const { return each ? B * tokens : tokens; }
  std::int64_t scratch_bytes() const {
    return given ? rows() * N * std::int64_t(sizeof(float)) : 0;
  }

  void fill_row(std::int64_t position, float* to) const {
    for (std::int64_t i = 0; i < N / 2; ++i) {
      to[i] = static_cast<float>(std::cos(angle(position, i)));
      to[N / 2 + i] = static_cast<float>(std::sin(angle(position, i)));
    }
  }

  void operator()(const KernelCall& c) const {
    const float* table = places.data();
    if (given) {
      auto* made = static_cast<float*>(c.scratch);
#pragma omp parallel for if (rows() * N > kParallelElements / 8)
      for (std::int64_t r = 0; r < rows(); ++r) fill_row(c.in<std::int32_t>(1)[r], made + r * N);
      table = made;
    }
#pragma omp parallel for if (B * tokens * heads * D > kParallelElements)
    for (std::int64_t row = 0; row < B * tokens; ++row) {
      const float* turns = table + (each ? row : row % tokens) * N;
      for (std::int64_t h = 0; h < heads; ++h)
        turn(c.in<float>(0) + (row * heads + h) * D, turns,
             c.out<float>(0) + (row * heads + h) * D);
    }
  }

  void turn(const float* x, const float* turns, float* y) const {
    const std::int64_t half = N / 2, step = interleaved ? 2 : 1, apart = interleaved ? 1 : half;
#pragma omp simd
    for (std::int64_t i = 0; i < half; ++i) {
      const float a = x[i * step], b = x[i * step + apart];
      y[i * step] = a * turns[i] - b * turns[half + i];
      y[i * step + apart] = b * turns[i] + a * turns[half + i];
    }
    std::copy(x + N, x + D, y + N);
  }
};

PreparedKernel vector_rotary(const KernelDesc& d) {
  const VectorRotary body(d);
  return {body, body.scratch_bytes(), "vector"};
}

}  // namespace

const KernelTable& vector_rotary_rows() {
  static const KernelTable kRows = {{"rotary", "vector", is_float32, vector_rotary}};
  return kRows;
}

const KernelTable& reference_rotary_rows() {
  static const KernelTable kRows = {{"rotary", "reference", nullptr, reference<Rotary>}};
  return kRows;
}

}  // namespace hetu::cpu
