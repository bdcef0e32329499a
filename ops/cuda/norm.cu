// Layer normalisation of rows that held_norm.cu doesn't support, softmax and dropout. One block
// processes a row. Its sums are float64.
#include <launch.h>

#include <cmath>

#include "ops/cuda/columns.h"
#include "ops/cuda/held_norm.h"
#include "ops/cuda/numbers.h"

namespace hetu::cuda {
namespace {

using cpu::Rows;
using cpu::rows_of;

struct LayerNormOf : RowWork {
  static constexpr int kRounds = 2;  // mean, variance
  Reader x, gamma, beta;
  Writer y, mean, rstd;
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
    const double normal = (x[at] - sums[0] / double(columns)) * rstd_of(sums);
    y.set(at, static_cast<float>(normal * gamma[j] + beta[j]));
  }
  HETU_HD void finish(std::int64_t i, const double* sums) const {
    mean.set(i, static_cast<float>(sums[0] / double(columns)));
    rstd.set(i, static_cast<float>(rstd_of(sums)));
  }
};

struct LayerNorm {
  Rows x;
  Numbers numbers;
  HeldRows held;
  double eps;
  explicit LayerNorm(const KernelDesc& d)
      : x(rows_of(d.inputs[0])), numbers(d), held(d, {0}, {0}), eps(d.attrs->real("eps")) {}
  void operator()(const KernelCall& c) const {
    const NormTensors tensors = {c.inputs[0],  nullptr, c.in<float>(1),  c.in<float>(2),
                                 c.outputs[0], nullptr, c.out<float>(1), c.out<float>(2)};
    if (held_norm(held, Keeps(), eps, tensors)) return;
    LayerNormOf body;
    body.x = numbers.in(c, 0);
    body.gamma = numbers.in(c, 1);
    body.beta = numbers.in(c, 2);
    body.y = numbers.out(c, 0);
    body.mean = numbers.out(c, 1);
    body.rstd = numbers.out(c, 2);
    body.columns = x.columns;
    body.eps = eps;
    for_rows(x.rows, x.columns, body);
  }
};

struct LayerNormInputGradOf : RowWork {
  static constexpr int kRounds = 2;  // mean of g, mean of g * normalised x
  Reader x, gamma, mean, rstd, dy;
  Writer dx;
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
    dx.set(i * columns + j,
           static_cast<float>(rstd[i] * (scaled(i, j) - sums[0] / double(columns) -
                                         normal(i, j) * (sums[1] / double(columns)))));
  }
};

struct LayerNormInputGrad {
  Rows x;
  Numbers numbers;
  HeldRows held;
  explicit LayerNormInputGrad(const KernelDesc& d)
      : x(rows_of(d.inputs[0])), numbers(d), held(d, {0, 4}, {0}) {}
  void operator()(const KernelCall& c) const {
    const NormGradTensors tensors = {c.inputs[0],    c.inputs[4],  c.in<float>(1), c.in<float>(2),
                                     c.in<float>(3), c.outputs[0], nullptr};
    if (held_norm_grad(held, Keeps(), tensors)) return;
    LayerNormInputGradOf body;
    body.x = numbers.in(c, 0);
    body.gamma = numbers.in(c, 1);
    body.mean = numbers.in(c, 2);
    body.rstd = numbers.in(c, 3);
    body.dy = numbers.in(c, 4);
    body.dx = numbers.out(c, 0);
    body.columns = x.columns;
    for_rows(x.rows, x.columns, body);
  }
};

/// The term of gamma's gradient for x and dy of different dtypes, one element at a time.
struct GammaTerm {
  using R = double;
  static constexpr int kSums = 1;
  template <int V>
  struct Known {};
  template <int V>
  struct Lanes {
    float x[V], dy[V], mean, rstd;
  };
  Reader x, mean, rstd, dy;
  template <int V>
  HETU_HD Known<V> known(std::int64_t) const {
    return {};
  }
  template <int V>
  HETU_HD void load(std::int64_t row, std::int64_t at, Lanes<V>& lanes) const {
    for (int v = 0; v < V; ++v) {
      lanes.x[v] = x[at + v];
      lanes.dy[v] = dy[at + v];
    }
    lanes.mean = mean[row];
    lanes.rstd = rstd[row];
  }
  template <int V>
  HETU_HD void add(const Known<V>&, const Lanes<V>& lanes, double (&sums)[1][V]) const {
    for (int v = 0; v < V; ++v)
      sums[0][v] += double(lanes.dy[v]) * (double(lanes.x[v]) - lanes.mean) * lanes.rstd;
  }
};

/// As above, for x and dy of the same dtype, in packs.
template <class T>
struct GammaPackTerm {
  using R = Real<T>;
  static constexpr int kSums = 1, kAtOnce = 2, kBlocks = 3;
  template <int V>
  struct Known {};
  template <int V>
  struct Lanes {
    Raw<T, V> x, dy;
    float mean, rstd;
  };
  Reader mean, rstd;
  const T *x, *dy;
  bool lies_in_packs() const { return lie_in_packs({x, dy}); }
  template <int V>
  HETU_HD Known<V> known(std::int64_t) const {
    return {};
  }
  template <int V>
  HETU_HD void load(std::int64_t row, std::int64_t at, Lanes<V>& lanes) const {
    load_raw(x + at, lanes.x);
    load_raw(dy + at, lanes.dy);
    lanes.mean = mean[row];
    lanes.rstd = rstd[row];
  }
  template <int V>
  HETU_HD void add(const Known<V>&, const Lanes<V>& lanes, R (&sums)[1][V]) const {
    float of_x[V], of_dy[V];
    widen(lanes.x, of_x);
    widen(lanes.dy, of_dy);
    for (int v = 0; v < V; ++v)
      sums[0][v] += R(of_dy[v]) * (R(of_x[v]) - R(lanes.mean)) * R(lanes.rstd);
  }
};

struct LayerNormGammaGrad {
  Rows x;
  Numbers numbers;
  DType of_x, of_dy;
  explicit LayerNormGammaGrad(const KernelDesc& d)
      : x(rows_of(d.inputs[0])), numbers(d), of_x(d.inputs[0].dtype), of_dy(d.inputs[3].dtype) {}
  std::int64_t scratch_bytes() const { return column_scratch(x.rows, x.columns); }
  template <class T>
  void sum(const KernelCall& c, const GammaTerm& of) const {
    sum_columns(x.rows, x.columns, GammaPackTerm<T>{of.mean, of.rstd, c.in<T>(0), c.in<T>(3)},
                static_cast<double*>(c.scratch), c.out<float>(0));
  }
  void operator()(const KernelCall& c) const {
    const GammaTerm of{numbers.in(c, 0), numbers.in(c, 1), numbers.in(c, 2), numbers.in(c, 3)};
    if (of_x != of_dy)
      return sum_columns(x.rows, x.columns, of, static_cast<double*>(c.scratch), c.out<float>(0));
    if (of_x == DType::BFloat16) return sum<BFloat16>(c, of);
    if (of_x == DType::Float16) return sum<Float16>(c, of);
    sum<float>(c, of);
  }
};

struct SoftmaxOf : RowWork {
  static constexpr int kRounds = 2;  // maximum, sum of exponentials
  Reader x;
  Writer y;
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
    y.set(i * columns + j, static_cast<float>(term(1, i, j, agreed) / agreed[1]));
  }
};

struct Softmax {
  Rows x;
  Numbers numbers;
  explicit Softmax(const KernelDesc& d) : x(rows_of(d.inputs[0])), numbers(d) {}
  void operator()(const KernelCall& c) const {
    SoftmaxOf body;
    body.x = numbers.in(c, 0);
    body.y = numbers.out(c, 0);
    body.columns = x.columns;
    for_rows(x.rows, x.columns, body);
  }
};

struct SoftmaxGradOf : RowWork {
  static constexpr int kRounds = 1;
  Reader y, dy;
  Writer dx;
  std::int64_t columns;
  HETU_HD double term(int, std::int64_t i, std::int64_t j, const double*) const {
    return double(y[i * columns + j]) * dy[i * columns + j];
  }
  HETU_HD void write(std::int64_t i, std::int64_t j, const double* dot) const {
    const std::int64_t at = i * columns + j;
    dx.set(at, static_cast<float>(y[at] * (dy[at] - dot[0])));
  }
};

struct SoftmaxGrad {
  Rows x;
  Numbers numbers;
  explicit SoftmaxGrad(const KernelDesc& d) : x(rows_of(d.inputs[0])), numbers(d) {}
  void operator()(const KernelCall& c) const {
    SoftmaxGradOf body;
    body.y = numbers.in(c, 0);
    body.dy = numbers.in(c, 1);
    body.dx = numbers.out(c, 0);
    body.columns = x.columns;
    for_rows(x.rows, x.columns, body);
  }
};

struct DropoutOf {
  Keeps keeps;
  Reader x;
  Writer y;
  HETU_HD void operator()(std::int64_t i) const { y.set(i, keeps(i, x[i])); }
};

/// Forward pass and gradient of dropout are the same function. Decisions equal those of the CPU.
struct Dropout {
  std::int64_t elements;
  Numbers numbers;
  Keeps keeps;
  explicit Dropout(const KernelDesc& d)
      : elements(cpu::count_of(d.outputs[0])), numbers(d), keeps(d) {}
  void operator()(const KernelCall& c) const {
    for_each(elements, DropoutOf{keeps.in(c.run), numbers.in(c, 0), numbers.out(c, 0)});
  }
};

/// Prepares the gradient of gamma. Sums of whole columns need a float32 output; otherwise the
/// kernel runs in float32 with a conversion.
PreparedKernel gamma_grad(const KernelDesc& d) {
  return d.outputs[0].dtype == DType::Float32 ? kernel<LayerNormGammaGrad>(d)
                                              : floats<LayerNormGammaGrad>(d);
}

}  // namespace

const KernelTable& norm_rows() {
  static const KernelTable kRows = {
      row("layer_norm", kernel<LayerNorm>),
      row("layer_norm_input_grad", kernel<LayerNormInputGrad>),
      row("layer_norm_gamma_grad", gamma_grad),
      row("softmax", kernel<Softmax>),
      row("softmax_grad", kernel<SoftmaxGrad>),
      row("dropout", kernel<Dropout>),
      row("dropout_grad", kernel<Dropout>),
  };
  return kRows;
}

}  // namespace hetu::cuda
