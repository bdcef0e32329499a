// Dropout, a residual sum and layer norm in one pass, and its gradient, for rows that held_norm.cu
// doesn't support. One block processes a row. Its sums are float64. Stored values are rounded step
// by step, as by the separate operators.
#include <launch.h>

#include <cmath>

#include "ops/cuda/held_norm.h"
#include "ops/cuda/numbers.h"

namespace hetu::cuda {
namespace {

using cpu::Rows;
using cpu::rows_of;

struct ResidualOf : RowWork {
  static constexpr int kRounds = 2;  // mean, variance
  Keeps keeps;
  Reader x, skip, gamma, beta;
  Writer y, mean, rstd, sum;
  Reader made;  // reads `sum`
  std::int64_t columns = 0;
  double eps = 0;
  explicit ResidualOf(const Keeps& of_run) : keeps(of_run) {}

  HETU_HD double term(int round, std::int64_t i, std::int64_t j, const double* sums) const {
    const std::int64_t at = i * columns + j;
    if (round == 0) return sum.set(at, sum.rounded(keeps(at, x[at])) + skip[at]);
    const double apart = made[at] - sums[0] / double(columns);
    return apart * apart;
  }
  HETU_HD double rstd_of(const double* sums) const {
    return 1.0 / std::sqrt(sums[1] / double(columns) + eps);
  }
  HETU_HD void write(std::int64_t i, std::int64_t j, const double* sums) const {
    const std::int64_t at = i * columns + j;
    const double normal = (made[at] - sums[0] / double(columns)) * rstd_of(sums);
    y.set(at, static_cast<float>(normal * gamma[j] + beta[j]));
  }
  HETU_HD void finish(std::int64_t i, const double* sums) const {
    mean.set(i, static_cast<float>(sums[0] / double(columns)));
    rstd.set(i, static_cast<float>(rstd_of(sums)));
  }
};

struct DropoutAddLayerNorm {
  Rows rows;
  Numbers numbers;
  Keeps keeps;
  HeldRows held;
  double eps;
  explicit DropoutAddLayerNorm(const KernelDesc& d)
      : rows(rows_of(d.inputs[0])),
        numbers(d),
        keeps(d),
        held(d, {0, 1}, {0, 3}),
        eps(d.attrs->real("eps")) {}
  void operator()(const KernelCall& c) const {
    const NormTensors tensors = {c.inputs[0],  c.inputs[1],  c.in<float>(2),  c.in<float>(3),
                                 c.outputs[0], c.outputs[3], c.out<float>(1), c.out<float>(2)};
    if (held_norm(held, keeps.in(c.run), eps, tensors)) return;
    ResidualOf body(keeps.in(c.run));
    body.x = numbers.in(c, 0);
    body.skip = numbers.in(c, 1);
    body.gamma = numbers.in(c, 2);
    body.beta = numbers.in(c, 3);
    body.y = numbers.out(c, 0);
    body.mean = numbers.out(c, 1);
    body.rstd = numbers.out(c, 2);
    body.sum = numbers.out(c, 3);
    body.made = numbers.read_out(c, 3);
    body.columns = rows.columns;
    body.eps = eps;
    for_rows(rows.rows, rows.columns, body);
  }
};

struct ResidualGradOf : RowWork {
  static constexpr int kRounds = 2;  // mean of g, mean of g * normalised sum
  Keeps keeps;
  Reader sum, gamma, mean, rstd, dy;
  Writer dsum, dx;
  std::int64_t columns = 0;
  explicit ResidualGradOf(const Keeps& of_run) : keeps(of_run) {}

  HETU_HD double normal(std::int64_t i, std::int64_t j) const {
    return (sum[i * columns + j] - double(mean[i])) * rstd[i];
  }
  HETU_HD double scaled(std::int64_t i, std::int64_t j) const {
    return double(dy[i * columns + j]) * gamma[j];
  }
  HETU_HD double term(int round, std::int64_t i, std::int64_t j, const double*) const {
    return round == 0 ? scaled(i, j) : scaled(i, j) * normal(i, j);
  }
  HETU_HD void write(std::int64_t i, std::int64_t j, const double* sums) const {
    const std::int64_t at = i * columns + j;
    const double of_sum = rstd[i] * (scaled(i, j) - sums[0] / double(columns) -
                                     normal(i, j) * (sums[1] / double(columns)));
    dx.set(at, keeps(at, dsum.set(at, static_cast<float>(of_sum))));
  }
};

struct DropoutAddLayerNormGrad {
  Rows rows;
  Numbers numbers;
  Keeps keeps;
  HeldRows held;
  explicit DropoutAddLayerNormGrad(const KernelDesc& d)
      : rows(rows_of(d.inputs[0])), numbers(d), keeps(d), held(d, {0, 4}, {0, 1}) {}
  void operator()(const KernelCall& c) const {
    const NormGradTensors tensors = {c.inputs[0],    c.inputs[4],  c.in<float>(1), c.in<float>(2),
                                     c.in<float>(3), c.outputs[0], c.outputs[1]};
    if (held_norm_grad(held, keeps.in(c.run), tensors)) return;
    ResidualGradOf body(keeps.in(c.run));
    body.sum = numbers.in(c, 0);
    body.gamma = numbers.in(c, 1);
    body.mean = numbers.in(c, 2);
    body.rstd = numbers.in(c, 3);
    body.dy = numbers.in(c, 4);
    body.dsum = numbers.out(c, 0);
    body.dx = numbers.out(c, 1);
    body.columns = rows.columns;
    for_rows(rows.rows, rows.columns, body);
  }
};

}  // namespace

const KernelTable& residual_rows() {
  static const KernelTable kRows = {
      row("dropout_add_layer_norm", kernel<DropoutAddLayerNorm>),
      row("dropout_add_layer_norm_grad", kernel<DropoutAddLayerNormGrad>),
  };
  return kRows;
}

}  // namespace hetu::cuda
