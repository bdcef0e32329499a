// Layer normalisation, softmax and dropout. A block has a row; its sums are float64.
#include <launch.h>

#include <cmath>

#include "ops/cuda/rows.h"
#include "ops/cuda/sums.h"
#include "ops/philox.h"

namespace hetu::cuda {
namespace {

using cpu::Rows;
using cpu::rows_of;

struct LayerNormOf : RowWork {
  static constexpr int kRounds = 2;  // mean, variance
  const float *x, *gamma, *beta;
  float *y, *mean, *rstd;
  std::int64_t columns;
  double eps;
  HETU_HD double term(int round, std::int64_t i, std::int64_t j, const double* sums) const {
    const double value = x[i * columns + j];
    if (round == 0) return value;
    const double apart = value - sums[0] / double(columns);
    return apart * apart;
  }
  HETU_HD double rstd_of(const double* sums) const {
    return 1.0 / std::sqrt(sums[1] / double(columns) + eps);
  }
  HETU_HD void write(std::int64_t i, std::int64_t j, const double* sums) const {
    const std::int64_t at = i * columns + j;
    y[at] = static_cast<float>((x[at] - sums[0] / double(columns)) * rstd_of(sums) * gamma[j] +
                               beta[j]);
  }
  HETU_HD void finish(std::int64_t i, const double* sums) const {
    mean[i] = static_cast<float>(sums[0] / double(columns));
    rstd[i] = static_cast<float>(rstd_of(sums));
  }
};

struct LayerNorm {
  Rows x;
  double eps;
  explicit LayerNorm(const KernelDesc& d) : x(rows_of(d.inputs[0])), eps(d.attrs->real("eps")) {}
  void operator()(const KernelCall& c) const {
    LayerNormOf body;
    body.x = c.in<float>(0);
    body.gamma = c.in<float>(1);
    body.beta = c.in<float>(2);
    body.y = c.out<float>(0);
    body.mean = c.out<float>(1);
    body.rstd = c.out<float>(2);
    body.columns = x.columns;
    body.eps = eps;
    for_rows(x.rows, x.columns, body);
  }
};

struct LayerNormInputGradOf : RowWork {
  static constexpr int kRounds = 2;  // mean of g, mean of g * x normalised
  const float *x, *gamma, *mean, *rstd, *dy;
  float* dx;
  std::int64_t columns;
  HETU_HD double normal(std::int64_t i, std::int64_t j) const {
    return (x[i * columns + j] - double(mean[i])) * rstd[i];
  }
  HETU_HD double scaled(std::int64_t i, std::int64_t j) const {
    return double(dy[i * columns + j]) * gamma[j];
  }
  HETU_HD double term(int round, std::int64_t i, std::int64_t j, const double*) const {
    return round == 0 ? scaled(i, j) : scaled(i, j) * normal(i, j);
  }
  HETU_HD void write(std::int64_t i, std::int64_t j, const double* sums) const {
    dx[i * columns + j] =
        static_cast<float>(rstd[i] * (scaled(i, j) - sums[0] / double(columns) -
                                      normal(i, j) * (sums[1] / double(columns))));
  }
};

struct LayerNormInputGrad {
  Rows x;
  explicit LayerNormInputGrad(const KernelDesc& d) : x(rows_of(d.inputs[0])) {}
  void operator()(const KernelCall& c) const {
    LayerNormInputGradOf body;
    body.x = c.in<float>(0);
    body.gamma = c.in<float>(1);
    body.mean = c.in<float>(2);
    body.rstd = c.in<float>(3);
    body.dy = c.in<float>(4);
    body.dx = c.out<float>(0);
    body.columns = x.columns;
    for_rows(x.rows, x.columns, body);
  }
};

struct GammaTerm {
  const float *x, *mean, *rstd, *dy;
  std::int64_t columns;
  HETU_HD double operator()(std::int64_t i, std::int64_t j) const {
    const std::int64_t at = i * columns + j;
    return double(dy[at]) * (double(x[at]) - mean[i]) * rstd[i];
  }
};

struct LayerNormGammaGrad {
  Rows x;
  explicit LayerNormGammaGrad(const KernelDesc& d) : x(rows_of(d.inputs[0])) {}
  std::int64_t scratch_bytes() const { return column_scratch(x.rows, x.columns); }
  void operator()(const KernelCall& c) const {
    const GammaTerm of{c.in<float>(0), c.in<float>(1), c.in<float>(2), c.in<float>(3), x.columns};
    sum_columns(x.rows, x.columns, of, static_cast<double*>(c.scratch), c.out<float>(0));
  }
};

struct SoftmaxOf : RowWork {
  static constexpr int kRounds = 2;  // maximum, sum of powers
  const float* x;
  float* y;
  std::int64_t columns;
  HETU_HD double none(int round) const { return round == 0 ? -HUGE_VAL : 0.0; }
  HETU_HD double combine(int round, double a, double b) const {
    return round == 0 ? fn::Maximum()(a, b) : a + b;
  }
  HETU_HD double term(int round, std::int64_t i, std::int64_t j, const double* agreed) const {
    const float value = x[i * columns + j];
    return round == 0 ? value : std::exp(value - static_cast<float>(agreed[0]));
  }
  HETU_HD void write(std::int64_t i, std::int64_t j, const double* agreed) const {
    y[i * columns + j] = static_cast<float>(term(1, i, j, agreed) / agreed[1]);
  }
};

struct Softmax {
  Rows x;
  explicit Softmax(const KernelDesc& d) : x(rows_of(d.inputs[0])) {}
  void operator()(const KernelCall& c) const {
    SoftmaxOf body;
    body.x = c.in<float>(0);
    body.y = c.out<float>(0);
    body.columns = x.columns;
    for_rows(x.rows, x.columns, body);
  }
};

struct SoftmaxGradOf : RowWork {
  static constexpr int kRounds = 1;
  const float *y, *dy;
  float* dx;
  std::int64_t columns;
  HETU_HD double term(int, std::int64_t i, std::int64_t j, const double*) const {
    return double(y[i * columns + j]) * dy[i * columns + j];
  }
  HETU_HD void write(std::int64_t i, std::int64_t j, const double* dot) const {
    const std::int64_t at = i * columns + j;
    dx[at] = static_cast<float>(y[at] * (dy[at] - dot[0]));
  }
};

struct SoftmaxGrad {
  Rows x;
  explicit SoftmaxGrad(const KernelDesc& d) : x(rows_of(d.inputs[0])) {}
  void operator()(const KernelCall& c) const {
    SoftmaxGradOf body;
    body.y = c.in<float>(0);
    body.dy = c.in<float>(1);
    body.dx = c.out<float>(0);
    body.columns = x.columns;
    for_rows(x.rows, x.columns, body);
  }
};

struct DropoutOf {
  const float* x;
  float* y;
  std::int64_t elements;  // of a sample
  std::uint64_t seed, name_hash;
  std::int64_t step, first_sample;
  DropoutRate rate;
  HETU_HD void operator()(std::int64_t i) const {
    const auto stream = DropoutStream::of(seed, name_hash, step, first_sample + i / elements);
    y[i] = rate.keeps(stream.bits(i % elements)) ? x[i] * static_cast<float>(rate.scale) : 0.0F;
  }
};

/// Forward and gradient alike, with the CPU's decisions.
struct Dropout {
  std::int64_t samples, elements;
  std::uint64_t name_hash;
  DropoutRate rate;
  explicit Dropout(const KernelDesc& d)
      : samples(d.batch),
        elements(cpu::elements_per_sample(d, d.outputs[0])),
        name_hash(d.name_hash),
        rate(DropoutRate::of(d.attrs->real("p"))) {}
  void operator()(const KernelCall& c) const {
    if (!c.run.training)
      copy(c.outputs[0], c.inputs[0], samples * elements * std::int64_t{sizeof(float)});
    else
      for_each(samples * elements, DropoutOf{c.in<float>(0), c.out<float>(0), elements, c.run.seed,
                                             name_hash, c.run.step, c.run.sample_offset, rate});
  }
};

}  // namespace

const KernelTable& norm_rows() {
  static const KernelTable kRows = {
      row("layer_norm", floats<LayerNorm>),
      row("layer_norm_input_grad", floats<LayerNormInputGrad>),
      row("layer_norm_gamma_grad", floats<LayerNormGammaGrad>),
      row("softmax", floats<Softmax>),
      row("softmax_grad", floats<SoftmaxGrad>),
      row("dropout", floats<Dropout>),
      row("dropout_grad", floats<Dropout>),
  };
  return kRows;
}

}  // namespace hetu::cuda
