// Layer normalisation and softmax: threads over rows, vectors along them. A row's result depends on
// that row alone. T is float or BFloat16, as values lie in memory.
#include <cmath>
#include <limits>

#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"
#include "ops/cpu/vector_math.h"

namespace hetu::cpu {
namespace {

// Two passes over a row that stays in the first-level cache: the mean, then squares about it.
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
    for (std::int64_t j = 0; j < n; ++j) y[j] = T((float(in[j]) - m) * r * gamma[j] + beta[j]);
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
    const std::int64_t n = x.columns;
#pragma omp parallel for schedule(static) if (x.elements() > kParallelElements)
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const T *row = in + i * n, *g = dy + i * n;
      const float m = mean[i], r = rstd[i];
      T* out = dx + i * n;
      float sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
      for (std::int64_t j = 0; j < n; ++j) {
        const float t = float(g[j]) * gamma[j];
        sum += t;
        dot += t * (float(row[j]) - m);
      }
      sum /= float(n);
      dot *= r * r / float(n);
#pragma omp simd
      for (std::int64_t j = 0; j < n; ++j)
        out[j] = T(r * (float(g[j]) * gamma[j] - sum - (float(row[j]) - m) * dot));
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
      {"softmax", "vector", is_float32, vector_kernel<Softmax>},
      {"softmax_grad", "vector", is_float32, vector_kernel<SoftmaxGrad>},
  };
  return kRows;
}

}  // namespace hetu::cpu
