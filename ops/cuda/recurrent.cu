// LSTM and GRU, one time step after another. Each step multiplies the last outputs of all samples
// by the weights. Then one thread per column of a sample computes the rest.
#include <launch.h>

#include "ops/cpu/recurrent_cells.h"
#include "ops/cuda/product.h"
#include "ops/cuda/rows.h"

namespace hetu::cuda {
namespace {

using cpu::Before;
using cpu::RecurrentShape;
using Cell = cpu::Cells<float, fn::StdMath>;

/// A body that copies rows of `columns` elements from a strided matrix to another.
struct CopyRowsOf {
  const float* from;
  float* to;
  std::int64_t columns, from_stride, to_stride;
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t row = i / columns, j = i % columns;
    to[row * to_stride + j] = from[row * from_stride + j];
  }
};

/// Scratch memory for a product, whose operands must be dense: two matrices with a row per sample.
struct Rows2 {
  std::int64_t samples, first, second;  // first, second: columns
  std::int64_t scratch_bytes() const { return room(first) + room(second); }
  std::int64_t room(std::int64_t columns) const {
    return (samples * columns * std::int64_t{sizeof(float)} + 63) / 64 * 64;
  }
  float* at_first(void* scratch) const { return static_cast<float*>(scratch); }
  float* at_second(void* scratch) const {
    return reinterpret_cast<float*>(static_cast<char*>(scratch) + room(first));
  }
};

/// The product of the last outputs with w [gates, width]. Its results go to the first `gates` of
/// the `stored` values of time step t.
class LastProducts {
 public:
  LastProducts(const RecurrentShape& s, std::int64_t gates, std::int64_t stored)
      : s_(s),
        rows_{s.samples, s.width, gates},
        stored_(stored),
        product_({1, s.samples, gates, s.width, false, true}, DType::Float32) {}
  std::int64_t scratch_bytes() const { return rows_.scratch_bytes(); }
  void operator()(const Before<float>& before, const float* w, std::int64_t t, float* gates,
                  void* scratch) const {
    float *const last = rows_.at_first(scratch), *const made = rows_.at_second(scratch);
    for_each(s_.samples * s_.width,
             CopyRowsOf{before.row(0, t), last, s_.width, before.stride(t), s_.width});
    product_(last, w, nullptr, made);
    for_each(s_.samples * rows_.second, CopyRowsOf{made, gates + s_.at(0, t, stored_), rows_.second,
                                                   rows_.second, s_.places * stored_});
  }

 private:
  RecurrentShape s_;
  Rows2 rows_;
  std::int64_t stored_;
  Product product_;
};

/// The product carry [samples, width] = slopes of a time step [samples, gates] w, optionally added
/// to carry.
class CarryProducts {
 public:
  CarryProducts(const RecurrentShape& s, std::int64_t gates, bool adds)
      : s_(s), rows_{s.samples, gates, 0}, product_(shape(s, gates, adds), DType::Float32) {}
  std::int64_t scratch_bytes() const { return rows_.scratch_bytes(); }
  void operator()(const float* slopes, const float* w, std::int64_t t, float* carry,
                  void* scratch) const {
    float* const dense = rows_.at_first(scratch);
    const std::int64_t gates = rows_.first;
    for_each(s_.samples * gates,
             CopyRowsOf{slopes + s_.at(0, t, gates), dense, gates, s_.places * gates, gates});
    product_(dense, w, nullptr, carry);
  }

 private:
  static cpu::ProductShape shape(const RecurrentShape& s, std::int64_t gates, bool adds) {
    cpu::ProductShape p{1, s.samples, s.width, gates};
    p.adds = adds;
    return p;
  }
  RecurrentShape s_;
  Rows2 rows_;
  Product product_;
};

struct LstmOf {
  RecurrentShape s;
  std::int64_t t;
  const float* x;
  Before<float> c_before;
  float *gates, *c, *y;
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t b = i / s.width, j = i % s.width;
    Cell::lstm_column(s.width, j, x + s.at(b, t, 4 * s.width), c_before.row(b, t),
                      gates + s.at(b, t, 4 * s.width), c + s.at(b, t, s.width),
                      y + s.at(b, t, s.width));
  }
};

// x [B, T, 4H], w [4H, H], h0, c0 [B, H] -> y, c [B, T, H], gates [B, T, 4H].
struct Lstm {
  RecurrentShape s;
  LastProducts products;
  explicit Lstm(const KernelDesc& d) : s(d.outputs[0]), products(s, 4 * s.width, 4 * s.width) {}
  std::int64_t scratch_bytes() const { return products.scratch_bytes(); }
  void operator()(const KernelCall& call) const {
    float *y = call.out<float>(0), *c = call.out<float>(1), *gates = call.out<float>(2);
    const Before<float> h_before(s, call.in<float>(2), y), c_before(s, call.in<float>(3), c);
    for (std::int64_t t = 0; t < s.places; ++t) {
      products(h_before, call.in<float>(1), t, gates, call.scratch);
      for_each(s.samples * s.width, LstmOf{s, t, call.in<float>(0), c_before, gates, c, y});
    }
  }
};

struct LstmGradOf {
  RecurrentShape s;
  std::int64_t t;
  const float *gates, *c, *dy, *dc;
  Before<float> c_before;
  float *dh0, *dc0, *dx;
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t b = i / s.width, j = i % s.width;
    const float* cells[] = {c_before.row(b, t), c + s.at(b, t, s.width)};
    const float* slopes[] = {dy + s.at(b, t, s.width), dc + s.at(b, t, s.width)};
    Cell::lstm_grad_column(s.width, j, gates + s.at(b, t, 4 * s.width), cells, slopes,
                           {dh0 + b * s.width, dc0 + b * s.width}, dx + s.at(b, t, 4 * s.width));
  }
};

// w, c0, c, gates, dy, dc -> dx [B, T, 4H], dh0, dc0 [B, H]. During the loop dh0 and dc0 hold the
// gradients carried to the previous step.
struct LstmGrad {
  RecurrentShape s;
  CarryProducts products;
  explicit LstmGrad(const KernelDesc& d) : s(d.inputs[4]), products(s, 4 * s.width, false) {}
  std::int64_t scratch_bytes() const { return products.scratch_bytes(); }
  void operator()(const KernelCall& call) const {
    const Before<float> c_before(s, call.in<float>(1), call.in<float>(2));
    float *dx = call.out<float>(0), *dh0 = call.out<float>(1), *dc0 = call.out<float>(2);
    for (float* carry : {dh0, dc0}) clear(carry, s.samples * s.width * std::int64_t{sizeof(float)});
    for (std::int64_t t = s.places; t-- > 0;) {
      for_each(s.samples * s.width,
               LstmGradOf{s, t, call.in<float>(3), call.in<float>(2), call.in<float>(4),
                          call.in<float>(5), c_before, dh0, dc0, dx});
      products(dx, call.in<float>(0), t, dh0, call.scratch);
    }
  }
};

struct GruOf {
  RecurrentShape s;
  std::int64_t t;
  const float *x, *bias;
  Before<float> before;
  float *gates, *y;
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t b = i / s.width, j = i % s.width;
    Cell::gru_column(s.width, j, x + s.at(b, t, 3 * s.width), bias, before.row(b, t),
                     gates + s.at(b, t, 4 * s.width), y + s.at(b, t, s.width));
  }
};

// x [B, T, 3H], w [3H, H], b [3H], h0 [B, H] -> y [B, T, H], gates [B, T, 4H].
struct Gru {
  RecurrentShape s;
  LastProducts products;
  explicit Gru(const KernelDesc& d) : s(d.outputs[0]), products(s, 3 * s.width, 4 * s.width) {}
  std::int64_t scratch_bytes() const { return products.scratch_bytes(); }
  void operator()(const KernelCall& call) const {
    float *y = call.out<float>(0), *gates = call.out<float>(1);
    const Before<float> before(s, call.in<float>(3), y);
    for (std::int64_t t = 0; t < s.places; ++t) {
      products(before, call.in<float>(1), t, gates, call.scratch);
      for_each(s.samples * s.width,
               GruOf{s, t, call.in<float>(0), call.in<float>(2), before, gates, y});
    }
  }
};

struct GruGradOf {
  RecurrentShape s;
  std::int64_t t;
  const float *gates, *dy;
  Before<float> before;
  float *dx, *dh, *dh0;
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t b = i / s.width, j = i % s.width;
    float* slopes[] = {dx + s.at(b, t, 3 * s.width), dh + s.at(b, t, 3 * s.width)};
    Cell::gru_grad_column(s.width, j, gates + s.at(b, t, 4 * s.width), before.row(b, t),
                          dy + s.at(b, t, s.width), dh0 + b * s.width, slopes);
  }
};

// w, h0, y, gates, dy -> dx, dh [B, T, 3H], dh0 [B, H]. During the loop dh0 holds the gradient
// carried to the previous step.
struct GruGrad {
  RecurrentShape s;
  CarryProducts products;
  explicit GruGrad(const KernelDesc& d) : s(d.inputs[4]), products(s, 3 * s.width, true) {}
  std::int64_t scratch_bytes() const { return products.scratch_bytes(); }
  void operator()(const KernelCall& call) const {
    const Before<float> before(s, call.in<float>(1), call.in<float>(2));
    float *dx = call.out<float>(0), *dh = call.out<float>(1), *dh0 = call.out<float>(2);
    clear(dh0, s.samples * s.width * std::int64_t{sizeof(float)});
    for (std::int64_t t = s.places; t-- > 0;) {
      for_each(s.samples * s.width,
               GruGradOf{s, t, call.in<float>(3), call.in<float>(4), before, dx, dh, dh0});
      products(dh, call.in<float>(0), t, dh0, call.scratch);
    }
  }
};

}  // namespace

const KernelTable& recurrent_rows() {
  static const KernelTable kRows = {
      row("lstm", floats<Lstm>),
      row("lstm_grad", floats<LstmGrad>),
      row("gru", floats<Gru>),
      row("gru_grad", floats<GruGrad>),
  };
  return kRows;
}

}  // namespace hetu::cuda
