// Reductions over all elements, rows, columns, or any axes. One block computes an output or a piece
// of it.
#include <launch.h>

#include <cmath>

#include "ops/cpu/reduce_shape.h"
#include "ops/cuda/column_sums.h"
#include "ops/cuda/columns.h"
#include "ops/cuda/rows.h"
#include "ops/cuda/sums.h"

namespace hetu::cuda {
namespace {

using cpu::count_of;
using cpu::Rows;
using cpu::rows_of;

struct ElementTerm {
  const float* x;
  HETU_HD double operator()(std::int64_t i) const { return x[i]; }
};

struct Sum {
  std::int64_t n;
  explicit Sum(const KernelDesc& d) : n(count_of(d.inputs[0])) {}
  std::int64_t scratch_bytes() const { return sum_scratch(n); }
  void operator()(const KernelCall& c) const {
    sum_of(n, ElementTerm{c.in<float>(0)}, static_cast<double*>(c.scratch), c.out<float>(0));
  }
};

template <class T>
struct MatrixTerm {
  using R = Real<T>;
  static constexpr int kSums = 1, kAtOnce = sizeof(T) == 2 ? 8 : 4, kBlocks = 3;
  template <int V>
  struct Known {};
  template <int V>
  using Lanes = Raw<T, V>;
  const T* x;
  bool lies_in_packs() const { return lie_in_packs({x}); }
  template <int V>
  HETU_HD Known<V> known(std::int64_t) const {
    return {};
  }
  template <int V>
  HETU_HD void load(std::int64_t, std::int64_t at, Raw<T, V>& lanes) const {
    load_raw(x + at, lanes);
  }
  template <int V>
  HETU_HD void add(const Known<V>&, const Raw<T, V>& lanes, R (&sums)[1][V]) const {
    float of[V];
    widen(lanes, of);
    for (int v = 0; v < V; ++v) sums[0][v] += R(of[v]);
  }
};

template <class T>
void sum_columns_of(const ColumnSums& s, const void* x, void* scratch, float* to) {
  sum_columns(s.rows, s.columns, MatrixTerm<T>{static_cast<const T*>(x)},
              static_cast<double*>(scratch), to);
}

struct SumRows {
  ColumnSums sums;
  explicit SumRows(const KernelDesc& d) {
    const Rows x = rows_of(d.inputs[0]);
    sums = {d.inputs[0].dtype, x.rows, x.columns};
  }
  std::int64_t scratch_bytes() const { return sums.scratch_bytes(); }
  void operator()(const KernelCall& c) const { sums(c.inputs[0], c.scratch, c.out<float>(0)); }
};

/// Prepares sum_rows. Two-byte inputs are read without conversion if the output is float32, which
/// sums of whole columns need.
PreparedKernel sum_rows(const KernelDesc& d) {
  const bool narrow = is_narrow(d.inputs[0].dtype);
  return narrow && d.outputs[0].dtype == DType::Float32 ? kernel<SumRows>(d) : floats<SumRows>(d);
}

/// The reduction to one output. The structs of ops/cpu/reduce_shape.h do the same for one element
/// after another, SumOf as AddedOf and the others under the same names.
struct AddedOf {
  static constexpr int kRounds = 1;
  HETU_HD static double none(int) { return 0; }
  HETU_HD static double combine(int, double a, double b) { return a + b; }
  HETU_HD static double term(int, double x, double, const double*) { return x; }
  HETU_HD static double result(double, double, const double* a) { return a[0]; }
};

struct MeanOf : AddedOf {
  HETU_HD static double result(double count, double, const double* a) { return a[0] / count; }
};

struct MaxOf : AddedOf {
  HETU_HD static double none(int) { return -HUGE_VAL; }
  HETU_HD static double combine(int, double a, double b) { return fn::Maximum()(a, b); }
};

struct MinOf : AddedOf {
  HETU_HD static double none(int) { return HUGE_VAL; }
  HETU_HD static double combine(int, double a, double b) { return fn::Minimum()(a, b); }
};

struct VarianceOf : AddedOf {
  static constexpr int kRounds = 2;
  HETU_HD static double term(int round, double x, double count, const double* a) {
    const double apart = round == 0 ? x : x - a[0] / count;
    return round == 0 ? x : apart * apart;
  }
  HETU_HD static double result(double count, double correction, const double* a) {
    const double left = count - correction;
    return a[1] / (left > 0 ? left : 0.0);
  }
};

struct LogSumExpOf {
  static constexpr int kRounds = 2;
  HETU_HD static double none(int round) { return round == 0 ? -HUGE_VAL : 0.0; }
  HETU_HD static double combine(int round, double a, double b) {
    return round == 0 ? fn::Maximum()(a, b) : a + b;
  }
  HETU_HD static double shift(const double* a) { return std::fabs(a[0]) == HUGE_VAL ? 0 : a[0]; }
  HETU_HD static double term(int round, double x, double, const double* a) {
    return round == 0 ? x : std::exp(x - shift(a));
  }
  HETU_HD static double result(double, double, const double* a) {
    return std::log(a[1]) + shift(a);
  }
};

template <class F>
struct ReduceOf : RowWork {
  static constexpr int kRounds = F::kRounds;
  const float* x;
  float* y;
  Axes<1> outputs, reduced;
  double count, correction;
  HETU_HD double none(int round) const { return F::none(round); }
  HETU_HD double combine(int round, double a, double b) const { return F::combine(round, a, b); }
  HETU_HD double term(int round, std::int64_t row, std::int64_t j, const double* agreed) const {
    std::int64_t at = 0;
    outputs.add_places(row, &at);
    reduced.add_places(j, &at);
    return F::term(round, x[at], count, agreed);
  }
  HETU_HD void write(std::int64_t, std::int64_t, const double*) const {}
  HETU_HD void finish(std::int64_t row, const double* agreed) const {
    y[row] = static_cast<float>(F::result(count, correction, agreed));
  }
};

template <class F>
struct Reduce {
  Axes<1> outputs, reduced;
  std::int64_t rows, count;
  double correction;
  explicit Reduce(const KernelDesc& d) : correction(cpu::correction_of(d)) {
    const cpu::ReduceShape s(d);
    rows = s.outputs();
    count = s.count();
    add(outputs, s.strip_axes());
    add(reduced, s.step_axes());
    const std::int64_t one = 1;
    (s.run_reduced() ? reduced : outputs).add(kImplementation, s.run(), &one);
  }
  static void add(Axes<1>& to, const std::vector<cpu::ReduceShape::Axis>& innermost_first) {
    for (auto axis = innermost_first.rbegin(); axis != innermost_first.rend(); ++axis)
      to.add(kImplementation, axis->size, &axis->step);
  }
  void operator()(const KernelCall& c) const {
    ReduceOf<F> body;
    body.x = c.in<float>(0);
    body.y = c.out<float>(0);
    body.outputs = outputs;
    body.reduced = reduced;
    body.count = static_cast<double>(count);
    body.correction = correction;
    for_rows(rows, count, body);
  }
};

struct SumLastOf : RowWork {
  static constexpr int kRounds = 1;
  const float* x;
  float* y;
  std::int64_t columns;
  HETU_HD double term(int, std::int64_t i, std::int64_t j, const double*) const {
    return x[i * columns + j];
  }
  HETU_HD void write(std::int64_t, std::int64_t, const double*) const {}
  HETU_HD void finish(std::int64_t i, const double* sum) const {
    y[i] = static_cast<float>(sum[0]);
  }
};

struct SumLast {
  Rows x;
  explicit SumLast(const KernelDesc& d) : x(rows_of(d.inputs[0])) {}
  void operator()(const KernelCall& c) const {
    SumLastOf body;
    body.x = c.in<float>(0);
    body.y = c.out<float>(0);
    body.columns = x.columns;
    for_rows(x.rows, x.columns, body);
  }
};

}  // namespace

std::int64_t ColumnSums::scratch_bytes() const { return column_scratch(rows, columns); }

void ColumnSums::operator()(const void* x, void* scratch, float* to) const {
  if (dtype == DType::BFloat16) return sum_columns_of<BFloat16>(*this, x, scratch, to);
  if (dtype == DType::Float16) return sum_columns_of<Float16>(*this, x, scratch, to);
  sum_columns_of<float>(*this, x, scratch, to);
}

const KernelTable& reduce_rows() {
  static const KernelTable kRows = {
      row("sum", floats<Sum>),
      row("sum_rows", sum_rows),
      row("sum_last", floats<SumLast>),
      row("reduce_sum", floats<Reduce<AddedOf>>),
      row("reduce_mean", floats<Reduce<MeanOf>>),
      row("reduce_max", floats<Reduce<MaxOf>>),
      row("reduce_min", floats<Reduce<MinOf>>),
      row("reduce_variance", floats<Reduce<VarianceOf>>),
      row("reduce_logsumexp", floats<Reduce<LogSumExpOf>>),
  };
  return kRows;
}

}  // namespace hetu::cuda
