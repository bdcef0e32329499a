// One step of an LSTM and of a GRU, forward and backward, on H columns of one sample. There is a
// function of one column for all back ends, and a loop over columns for the CPU. Gates are in
// PyTorch's order. Sources: Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al.
// 2000; Cho et al. 2014, with the reset gate applied after the product, as in PyTorch.
#pragma once
#include <cstdint>

#include "ops/kernel.h"
#include "ops/scalar_fns.h"

namespace hetu::cpu {

/// The sizes of y, or of its gradient: [samples, steps, width]. The steps are `places`.
struct RecurrentShape {
  std::int64_t samples, places, width;
  explicit RecurrentShape(const TensorType& y)
      : samples(y.shape[0]), places(y.shape[1]), width(y.shape[2]) {}

  /// Returns the offset of sample b, step t in a tensor with `columns` numbers per step.
  HETU_HD std::int64_t at(std::int64_t b, std::int64_t t, std::int64_t columns) const {
    return (b * places + t) * columns;
  }
};

/// The state before each step: the initial state before the first, else the previous output.
template <class T>
struct Before {
  const T *first, *outputs;
  std::int64_t places, width;
  Before(const RecurrentShape& s, const T* given, const T* made)
      : first(given), outputs(made), places(s.places), width(s.width) {}
  HETU_HD const T* row(std::int64_t b, std::int64_t t) const {
    return t == 0 ? first + b * width : outputs + (b * places + t - 1) * width;
  }
  /// Returns the distance between samples at step t.
  std::int64_t stride(std::int64_t t) const { return t == 0 ? width : places * width; }
};

/// The gradients of the output and of the cell that an LSTM step receives from the next step. The
/// step replaces them by those for the previous step.
template <class T>
struct Carry {
  T *output, *cell;
};

/// The steps. H is the width; gate k of column j is at k * H + j.
template <class T, class Math>
struct Cells {
  HETU_HD static T sigmoid(T x) { return fn::Sigmoid<Math>()(x); }

  /// `gates` holds the products with the previous output on entry. On return, it holds the input,
  /// forget, cell and output gates.
  HETU_HD static void lstm_column(std::int64_t H, std::int64_t j, const T* x, const T* c_before,
                                  T* gates, T* c, T* y) {
    const T i = sigmoid(x[j] + gates[j]), f = sigmoid(x[H + j] + gates[H + j]);
    const T g = Math::tanh(x[2 * H + j] + gates[2 * H + j]);
    const T o = sigmoid(x[3 * H + j] + gates[3 * H + j]);
    gates[j] = i;
    gates[H + j] = f;
    gates[2 * H + j] = g;
    gates[3 * H + j] = o;
    c[j] = f * c_before[j] + i * g;
    y[j] = o * Math::tanh(c[j]);
  }
  static void lstm(std::int64_t H, const T* x, const T* c_before, T* gates, T* c, T* y) {
#pragma omp simd
    for (std::int64_t j = 0; j < H; ++j) lstm_column(H, j, x, c_before, gates, c, y);
  }

  /// dx is the gradient of the sums that enter the gates. Reads carry.output; replaces carry.cell.
  HETU_HD static void lstm_grad_column(std::int64_t H, std::int64_t j, const T* gates,
                                       const T* cells[2], const T* slopes[2], Carry<T> carry,
                                       T* dx) {
    const T *c_before = cells[0], *c = cells[1], *dy = slopes[0], *dc = slopes[1];
    const T i = gates[j], f = gates[H + j], g = gates[2 * H + j], o = gates[3 * H + j];
    const T dh = dy[j] + carry.output[j], th = Math::tanh(c[j]);
    const T cell = dc[j] + carry.cell[j] + dh * o * (T(1) - th * th);
    dx[j] = cell * g * i * (T(1) - i);
    dx[H + j] = cell * c_before[j] * f * (T(1) - f);
    dx[2 * H + j] = cell * i * (T(1) - g * g);
    dx[3 * H + j] = dh * th * o * (T(1) - o);
    carry.cell[j] = cell * f;
  }
  static void lstm_grad(std::int64_t H, const T* gates, const T* cells[2], const T* slopes[2],
                        Carry<T> carry, T* dx) {
#pragma omp simd
    for (std::int64_t j = 0; j < H; ++j) lstm_grad_column(H, j, gates, cells, slopes, carry, dx);
  }

  /// `gates` holds three products with the previous output on entry. On return, it holds the reset
  /// gate, the update gate, the new state, and the term that the reset gate multiplies.
  HETU_HD static void gru_column(std::int64_t H, std::int64_t j, const T* x, const T* bias,
                                 const T* before, T* gates, T* y) {
    const T r = sigmoid(x[j] + gates[j] + bias[j]);
    const T z = sigmoid(x[H + j] + gates[H + j] + bias[H + j]);
    const T hidden = gates[2 * H + j] + bias[2 * H + j];
    const T n = Math::tanh(x[2 * H + j] + r * hidden);
    gates[j] = r;
    gates[H + j] = z;
    gates[2 * H + j] = n;
    gates[3 * H + j] = hidden;
    y[j] = (T(1) - z) * n + z * before[j];
  }
  static void gru(std::int64_t H, const T* x, const T* bias, const T* before, T* gates, T* y) {
#pragma omp simd
    for (std::int64_t j = 0; j < H; ++j) gru_column(H, j, x, bias, before, gates, y);
  }

  /// slopes[0] is dx, the gradient of the input's contribution to the gates. slopes[1] is dh, that
  /// of the previous output's contribution. `carry` holds the gradient of the output from the next
  /// step on entry. On return, it holds the part that goes directly to the previous step.
  HETU_HD static void gru_grad_column(std::int64_t H, std::int64_t j, const T* gates,
                                      const T* before, const T* dy, T* carry, T* slopes[2]) {
    T *dx = slopes[0], *dh = slopes[1];
    const T r = gates[j], z = gates[H + j], n = gates[2 * H + j], hidden = gates[3 * H + j];
    const T d = dy[j] + carry[j];
    const T dn = d * (T(1) - z) * (T(1) - n * n);
    const T dr = dn * hidden * r * (T(1) - r), dz = d * (before[j] - n) * z * (T(1) - z);
    dx[j] = dh[j] = dr;
    dx[H + j] = dh[H + j] = dz;
    dx[2 * H + j] = dn;
    dh[2 * H + j] = dn * r;
    carry[j] = d * z;
  }
  static void gru_grad(std::int64_t H, const T* gates, const T* before, const T* dy, T* carry,
                       T* slopes[2]) {
#pragma omp simd
    for (std::int64_t j = 0; j < H; ++j) gru_grad_column(H, j, gates, before, dy, carry, slopes);
  }
};

}  // namespace hetu::cpu
