// Layer normalization, with and without a residual sum before it, and softmax. Threads take rows,
// and vectors run along them. A row's result depends only on that row. T is float or BFloat16, the
// type in memory.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/dropout_factors.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/set_rounded.h"
#include "ops/cpu/tables.h"
#include "ops/cpu/vector_math.h"

namespace hetu::cpu {
namespace {

// Two passes over a row that stays in the first-level cache: first the mean, then the squared
// distances from it.
template <class T>
struct LayerNorm {
  Rows x;
  float eps;
  explicit LayerNorm(const KernelDesc& d)
      : x(rows_of(d.inputs[0])), eps(static_cast<float>(d.attrs->real("eps"))) {}
  void operator()(const KernelCall& c) const {
    const T* in = c.in<T>(0);
    const float *gamma = c.in<float>(1), *beta = c.in<float>(2);
    T* y = c.out<T>(0);
    float *mean = c.out<float>(1), *rstd = c.out<float>(2);
#pragma omp parallel for schedule(static) if (x.elements() > kParallelElements)
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const std::int64_t at = i * x.columns;
      row(in + at, gamma, beta, y + at, mean + i, rstd + i);
    }
  }
  void row(const T* in, const float* gamma, const float* beta, T* y, float* mean,
           float* rstd) const {
    const std::int64_t n = x.columns;
    float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < n; ++j) sum += float(in[j]);
    const float m = sum / float(n);
#pragma omp simd reduction(+ : squares)
    for (std::int64_t j = 0; j < n; ++j) squares += (float(in[j]) - m) * (float(in[j]) - m);
    const float r = 1.0f / std::sqrt(squares / float(n) + eps);
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j)
      set_rounded(y[j], (float(in[j]) - m) * r * gamma[j] + beta[j]);
    *mean = m;
    *rstd = r;
  }
};

template <class T>
struct LayerNormInputGrad {
  Rows x;
  explicit LayerNormInputGrad(const KernelDesc& d) : x(rows_of(d.inputs[0])) {}
  void operator()(const KernelCall& c) const {
    const T *in = c.in<T>(0), *dy = c.in<T>(4);
    const float *gamma = c.in<float>(1), *mean = c.in<float>(2), *rstd = c.in<float>(3);
    T* dx = c.out<T>(0);
#pragma omp parallel for schedule(static) if (x.elements() > kParallelElements)
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const std::int64_t at = i * x.columns;
      row(in + at, dy + at, gamma, mean[i], rstd[i], dx + at);
    }
  }
  void row(const T* in, const T* g, const float* gamma, float m, float r, T* out) const {
    const std::int64_t n = x.columns;
    float sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
    for (std::int64_t j = 0; j < n; ++j) {
      const float t = float(g[j]) * gamma[j];
      sum += t;
      dot += t * (float(in[j]) - m);
    }
    sum /= float(n);
    dot *= r * r / float(n);
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j)
      set_rounded(out[j], r * (float(g[j]) * gamma[j] - sum - (float(in[j]) - m) * dot));
  }
};

/// Dropout of one row of a tensor whose rows are parts of whole samples.
struct RowDropout {
  std::int64_t rows, columns;  // rows of a sample; columns of a row
  std::uint64_t name_hash;
  DropoutRate rate;
  explicit RowDropout(const KernelDesc& d)
      : rows(rows_of(d.inputs[0]).rows / d.batch),
        columns(rows_of(d.inputs[0]).columns),
        name_hash(d.name_hash),
        rate(DropoutRate::of(d.attrs->real("p"))) {
    HETU_ASSERT(rows * d.batch == rows_of(d.inputs[0]).rows);
  }
  template <class T>
  void row(const RunContext& run, std::int64_t i, const T* x, T* y) const {
    if (!run.training || rate.threshold == 0) {
      std::copy_n(x, columns, y);
      return;
    }
    const auto stream =
        PhiloxStream::of(run.seed, name_hash, run.step, run.sample_offset + i / rows);
    dropout_apply(stream, rate, i % rows * columns, columns, x, y);
  }
};

// A row stays in the first-level cache from one part to the next. Each part rounds to T, as if it
// were a separate operator.
template <class T>
struct DropoutAddLayerNorm {
  RowDropout dropout;
  LayerNorm<T> norm;
  explicit DropoutAddLayerNorm(const KernelDesc& d) : dropout(d), norm(d) {}
  void operator()(const KernelCall& c) const {
    const Rows x = norm.x;
    const T *in = c.in<T>(0), *skip = c.in<T>(1);
    const float *gamma = c.in<float>(2), *beta = c.in<float>(3);
    T *y = c.out<T>(0), *sum = c.out<T>(3);
    float *mean = c.out<float>(1), *rstd = c.out<float>(2);
#pragma omp parallel for schedule(static) if (x.elements() > kParallelElements)
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const std::int64_t at = i * x.columns;
      dropout.row(c.run, i, in + at, sum + at);
      add(skip + at, sum + at, x.columns);
      norm.row(sum + at, gamma, beta, y + at, mean + i, rstd + i);
    }
  }
  static void add(const T* x, T* y, std::int64_t n) {
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) set_rounded(y[j], float(y[j]) + float(x[j]));
  }
};

template <class T>
struct DropoutAddLayerNormGrad {
  RowDropout dropout;
  LayerNormInputGrad<T> norm;
  explicit DropoutAddLayerNormGrad(const KernelDesc& d) : dropout(d), norm(d) {}
  void operator()(const KernelCall& c) const {
    const Rows x = norm.x;
    const T *sum = c.in<T>(0), *dy = c.in<T>(4);
    const float *gamma = c.in<float>(1), *mean = c.in<float>(2), *rstd = c.in<float>(3);
    T *dsum = c.out<T>(0), *dx = c.out<T>(1);
#pragma omp parallel for schedule(static) if (x.elements() > kParallelElements)
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const std::int64_t at = i * x.columns;
      norm.row(sum + at, dy + at, gamma, mean[i], rstd[i], dsum + at);
      dropout.row(c.run, i, dsum + at, dx + at);
    }
  }
};

float top_of(const float* x, std::int64_t n) {
  float top = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : top)
  for (std::int64_t j = 0; j < n; ++j) top = x[j] > top ? x[j] : top;
  return top;
}

struct Softmax {
  Rows x;
  explicit Softmax(const KernelDesc& d) : x(rows_of(d.inputs[0])) {}
  void operator()(const KernelCall& c) const {
    const float* in = c.in<float>(0);
    float* out = c.out<float>(0);
    const std::int64_t n = x.columns;
#pragma omp parallel for schedule(static) if (x.elements() > kParallelElements)
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const float* row = in + i * n;
      float* y = out + i * n;
      const float top = top_of(row, n);
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t j = 0; j < n; ++j) sum += y[j] = VectorMath::exp(row[j] - top);
      const float scale = 1.0f / sum;
#pragma omp simd
      for (std::int64_t j = 0; j < n; ++j) y[j] *= scale;
    }
  }
};

struct SoftmaxGrad {
  Rows x;
  explicit SoftmaxGrad(const KernelDesc& d) : x(rows_of(d.inputs[0])) {}
  void operator()(const KernelCall& c) const {
    const float *y = c.in<float>(0), *dy = c.in<float>(1);
    float* dx = c.out<float>(0);
    const std::int64_t n = x.columns;
#pragma omp parallel for schedule(static) if (x.elements() > kParallelElements)
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const float *p = y + i * n, *g = dy + i * n;
      float *out = dx + i * n, dot = 0;
#pragma omp simd reduction(+ : dot)
      for (std::int64_t j = 0; j < n; ++j) dot += p[j] * g[j];
#pragma omp simd
      for (std::int64_t j = 0; j < n; ++j) out[j] = p[j] * (g[j] - dot);
    }
  }
};

}  // namespace

const KernelTable& vector_norm_rows() {
  static const KernelTable kRows = {
      {"layer_norm", "vector", is_float32_or_bfloat16, vector_either<LayerNorm>},
      {"layer_norm_input_grad", "vector", is_float32_or_bfloat16,
       vector_either<LayerNormInputGrad>},
      {"dropout_add_layer_norm", "vector", is_float32_or_bfloat16,
       vector_either<DropoutAddLayerNorm>},
      {"dropout_add_layer_norm_grad", "vector", is_float32_or_bfloat16,
       vector_either<DropoutAddLayerNormGrad>},
      {"softmax", "vector", is_float32, vector_kernel<Softmax>},
      {"softmax_grad", "vector", is_float32, vector_kernel<SoftmaxGrad>},
  };
  return kRows;
}

}  // namespace hetu::cpu
