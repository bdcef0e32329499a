// LSTM and GRU over a static number of steps. Threads take blocks of samples, and process each
// block from the first step to the last. The products of a block are small matrix products, which
// add in ascending order for every element. So a sample's result doesn't depend on its block.
#include <algorithm>

#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/recurrent_cells.h"
#include "ops/cpu/small_gemm.h"
#include "ops/cpu/tables.h"
#include "ops/cpu/vector_math.h"

namespace hetu::cpu {
namespace {

/// Products as plain loops that add in float64, one sample at a time.
template <class T>
struct PlainProducts {
  using Cell = Cells<T, fn::StdMath>;
  static constexpr std::int64_t kSamples = 1;
  static std::int64_t scratch_bytes(std::int64_t, std::int64_t) { return 0; }
  static const T* pack(const T* w, std::int64_t, std::int64_t, void*) { return w; }

  /// to [rows, gates] = h [rows, width] w^T.
  static void forward(const SmallGemm& s, const T* h, const T* w, T* to) {
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t g = 0; g < s.n; ++g) {
        double sum = 0;
        for (std::int64_t j = 0; j < s.k; ++j)
          sum += double(h[i * s.a_row + j]) * double(w[g * s.k + j]);
        to[i * s.c_stride + g] = static_cast<T>(sum);
      }
  }
  /// to [rows, width] (+)= slopes [rows, gates] w.
  static void backward(const SmallGemm& s, const T* slopes, const T* w, T* to, bool add) {
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j) {
        double sum = add ? double(to[i * s.c_stride + j]) : 0;
        for (std::int64_t g = 0; g < s.k; ++g)
          sum += double(slopes[i * s.a_row + g]) * double(w[g * s.b_stride + j]);
        to[i * s.c_stride + j] = static_cast<T>(sum);
      }
  }
};

struct TiledProducts {
  using Cell = Cells<float, VectorMath>;
  static constexpr std::int64_t kSamples = 6;  // a multiple of small_gemm's tile height
  /// Bytes of the transposed weights.
  static std::int64_t scratch_bytes(std::int64_t gates, std::int64_t width) {
    return gates * width * std::int64_t(sizeof(float));
  }
  static const float* pack(const float* w, std::int64_t gates, std::int64_t width, void* scratch) {
    auto* to = static_cast<float*>(scratch);
    pack_transposed(w, gates, width, width, to);
    return to;
  }
  static void forward(const SmallGemm& s, const float* h, const float* w, float* to) {
    small_gemm(s, h, w, to, false);
  }
  static void backward(const SmallGemm& s, const float* slopes, const float* w, float* to,
                       bool add) {
    small_gemm(s, slopes, w, to, add);
  }
};

/// Calls body(first sample, samples) for blocks of samples, which threads share.
template <class Products, class Body>
void for_samples(const RecurrentShape& s, const Body& body) {
#pragma omp parallel for schedule(static)
  for (std::int64_t b = 0; b < s.samples; b += Products::kSamples)
    body(b, std::min(Products::kSamples, s.samples - b));
}

/// Multiplies a block's previous outputs by the weights, and writes the products to its first
/// gates. Each step has `stored` gates in memory.
template <class Products, class T>
void products(const RecurrentShape& s, const Before<T>& before, const T* w, std::int64_t gates,
              std::int64_t stored, std::int64_t b, std::int64_t n, std::int64_t t, T* to) {
  const SmallGemm shape{n, gates, s.width, before.stride(t), 1, gates, s.places * stored};
  Products::forward(shape, before.row(b, t), w, to + s.at(b, t, stored));
}

// x [B, T, 4H], w [4H, H], h0, c0 [B, H] -> y, c [B, T, H], gates [B, T, 4H].
template <class T, class Products>
struct Lstm : RecurrentShape {
  explicit Lstm(const KernelDesc& d) : RecurrentShape(d.outputs[0]) {}
  void operator()(const KernelCall& call) const {
    const std::int64_t H = width;
    T *y = call.out<T>(0), *c = call.out<T>(1), *gates = call.out<T>(2);
    const Before<T> h_before(*this, call.in<T>(2), y), c_before(*this, call.in<T>(3), c);
    const T* w = Products::pack(call.in<T>(1), 4 * H, H, call.scratch);
    for_samples<Products>(*this, [&](std::int64_t first, std::int64_t n) {
      for (std::int64_t t = 0; t < places; ++t) {
        products<Products>(*this, h_before, w, 4 * H, 4 * H, first, n, t, gates);
        for (std::int64_t b = first; b < first + n; ++b)
          Products::Cell::lstm(H, call.in<T>(0) + at(b, t, 4 * H), c_before.row(b, t),
                               gates + at(b, t, 4 * H), c + at(b, t, H), y + at(b, t, H));
      }
    });
  }
};

// w, c0, c, gates, dy, dc -> dx [B, T, 4H], dh0, dc0 [B, H]. The last two carry gradients from step
// to step.
template <class T, class Products>
struct LstmGrad : RecurrentShape {
  explicit LstmGrad(const KernelDesc& d) : RecurrentShape(d.inputs[4]) {}
  void operator()(const KernelCall& call) const {
    const std::int64_t H = width;
    const T *c = call.in<T>(2), *gates = call.in<T>(3);
    const Before<T> c_before(*this, call.in<T>(1), c);
    T *dx = call.out<T>(0), *dh0 = call.out<T>(1), *dc0 = call.out<T>(2);
    for (T* carry : {dh0, dc0}) std::fill_n(carry, samples * H, T(0));
    for_samples<Products>(*this, [&](std::int64_t first, std::int64_t n) {
      for (std::int64_t t = places - 1; t >= 0; --t) {
        for (std::int64_t b = first; b < first + n; ++b) {
          const T* cells[] = {c_before.row(b, t), c + at(b, t, H)};
          const T* slopes[] = {call.in<T>(4) + at(b, t, H), call.in<T>(5) + at(b, t, H)};
          Products::Cell::lstm_grad(H, gates + at(b, t, 4 * H), cells, slopes,
                                    {dh0 + b * H, dc0 + b * H}, dx + at(b, t, 4 * H));
        }
        const SmallGemm shape{n, H, 4 * H, places * 4 * H, 1, H, H};
        Products::backward(shape, dx + at(first, t, 4 * H), call.in<T>(0), dh0 + first * H, false);
      }
    });
  }
};

// x [B, T, 3H], w [3H, H], b [3H], h0 [B, H] -> y [B, T, H], gates [B, T, 4H].
template <class T, class Products>
struct Gru : RecurrentShape {
  explicit Gru(const KernelDesc& d) : RecurrentShape(d.outputs[0]) {}
  void operator()(const KernelCall& call) const {
    const std::int64_t H = width;
    T *y = call.out<T>(0), *gates = call.out<T>(1);
    const Before<T> before(*this, call.in<T>(3), y);
    const T* w = Products::pack(call.in<T>(1), 3 * H, H, call.scratch);
    for_samples<Products>(*this, [&](std::int64_t first, std::int64_t n) {
      for (std::int64_t t = 0; t < places; ++t) {
        products<Products>(*this, before, w, 3 * H, 4 * H, first, n, t, gates);
        for (std::int64_t b = first; b < first + n; ++b)
          Products::Cell::gru(H, call.in<T>(0) + at(b, t, 3 * H), call.in<T>(2), before.row(b, t),
                              gates + at(b, t, 4 * H), y + at(b, t, H));
      }
    });
  }
};

// w, h0, y, gates, dy -> dx, dh [B, T, 3H], dh0 [B, H]. The last one carries the gradient from step
// to step.
template <class T, class Products>
struct GruGrad : RecurrentShape {
  explicit GruGrad(const KernelDesc& d) : RecurrentShape(d.inputs[4]) {}
  void operator()(const KernelCall& call) const {
    const std::int64_t H = width;
    const Before<T> before(*this, call.in<T>(1), call.in<T>(2));
    T *dx = call.out<T>(0), *dh = call.out<T>(1), *dh0 = call.out<T>(2);
    std::fill_n(dh0, samples * H, T(0));
    for_samples<Products>(*this, [&](std::int64_t first, std::int64_t n) {
      for (std::int64_t t = places - 1; t >= 0; --t) {
        for (std::int64_t b = first; b < first + n; ++b) {
          T* slopes[] = {dx + at(b, t, 3 * H), dh + at(b, t, 3 * H)};
          Products::Cell::gru_grad(H, call.in<T>(3) + at(b, t, 4 * H), before.row(b, t),
                                   call.in<T>(4) + at(b, t, H), dh0 + b * H, slopes);
        }
        const SmallGemm shape{n, H, 3 * H, places * 3 * H, 1, H, H};
        Products::backward(shape, dh + at(first, t, 3 * H), call.in<T>(0), dh0 + first * H, true);
      }
    });
  }
};

/// Returns true for float32 if there are elements and the width, the last axis of y or dy, is a
/// multiple of a vector.
bool fits(const KernelDesc& d) {
  const bool forward = d.op == "lstm" || d.op == "gru";
  const TensorType& y = forward ? d.outputs[0] : d.inputs[4];
  return is_float32(d) && count_of(y) > 0 && y.shape[2] % kVector == 0;
}

template <template <class, class> class Body>
PreparedKernel fast(const KernelDesc& d) {
  const Body<float, TiledProducts> body(d);
  const std::int64_t gates = d.op == "lstm" ? 4 : d.op == "gru" ? 3 : 0;
  return {body, TiledProducts::scratch_bytes(gates * body.width, body.width), "vector"};
}

template <class T>
using PlainLstm = Lstm<T, PlainProducts<T>>;
template <class T>
using PlainLstmGrad = LstmGrad<T, PlainProducts<T>>;
template <class T>
using PlainGru = Gru<T, PlainProducts<T>>;
template <class T>
using PlainGruGrad = GruGrad<T, PlainProducts<T>>;

}  // namespace

const KernelTable& vector_recurrent_rows() {
  static const KernelTable kRows = {
      {"lstm", "vector", fits, fast<Lstm>},
      {"lstm_grad", "vector", fits, fast<LstmGrad>},
      {"gru", "vector", fits, fast<Gru>},
      {"gru_grad", "vector", fits, fast<GruGrad>},
  };
  return kRows;
}

const KernelTable& reference_recurrent_rows() {
  static const KernelTable kRows = {
      {"lstm", "reference", nullptr, reference<PlainLstm>},
      {"lstm_grad", "reference", nullptr, reference<PlainLstmGrad>},
      {"gru", "reference", nullptr, reference<PlainGru>},
      {"gru_grad", "reference", nullptr, reference<PlainGruGrad>},
  };
  return kRows;
}

}  // namespace hetu::cpu
