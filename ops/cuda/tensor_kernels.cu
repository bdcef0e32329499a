// Arithmetic on whole tensors, on the device: sweeps of optimizers, sums, norms, averages, and the
// same on touched rows.
#include <launch.h>

#include <array>
#include <iterator>

#include "graph/base/error.h"
#include "ops/cuda/kronecker.h"
#include "ops/cuda/registry.h"
#include "ops/cuda/scatter.h"
#include "ops/cuda/sums.h"
#include "ops/sweep_rules.h"

namespace hetu {
namespace cuda {
namespace {

constexpr std::int64_t kPerWord = TouchedRows::kPerWord;

/// The states of an element, in float32 while a rule changes them.
template <class State>
struct StatesOf;

template <>
struct StatesOf<float> {
  float* at[kMostStates];
  explicit StatesOf(const SweepCall& p) : at{p.state[0], p.state[1], p.state[2]} {}
  HETU_HD float read(int s, std::int64_t i) const { return at[s][i]; }
  HETU_HD void write(int s, std::int64_t i, float x) const { at[s][i] = x; }
};

template <>
struct StatesOf<BFloat16> {
  BFloat16* at[kMostStates];
  PhiloxStream rounding[kMostStates];
  std::int64_t first;
  explicit StatesOf(const SweepCall& p)
      : at{p.narrow[0], p.narrow[1], p.narrow[2]},
        rounding{p.rounding[0], p.rounding[1], p.rounding[2]},
        first(p.first) {}
  HETU_HD float read(int s, std::int64_t i) const { return at[s][i]; }
  HETU_HD void write(int s, std::int64_t i, float x) const {
    at[s][i] = BFloat16::by_chance(x, rounding[s].bits(first + i));
  }
};

template <class Rule, class State>
struct SweepOf {
  Rule rule;
  float* w;
  const float* g;
  StatesOf<State> states;
  explicit SweepOf(const SweepCall& p) : rule(p), w(p.weight), g(p.gradient), states(p) {}
  HETU_HD void operator()(std::int64_t i) const {
    float x[kMostStates];
    for (int s = 0; s < Rule::kStates; ++s) x[s] = states.read(s, i);
    if constexpr (Rule::kStates == 0) rule(w[i], g[i]);
    if constexpr (Rule::kStates == 1) rule(w[i], g[i], x[0]);
    if constexpr (Rule::kStates == 2) rule(w[i], g[i], x[0], x[1]);
    if constexpr (Rule::kStates == 3) rule(w[i], g[i], x[0], x[1], x[2]);
    for (int s = 0; s < Rule::kStates; ++s) states.write(s, i, x[s]);
  }
};

template <class Rule>
void sweep(const SweepCall& p) {
  if (p.narrow[0] != nullptr) return for_each(p.elements, SweepOf<Rule, BFloat16>(p));
  for_each(p.elements, SweepOf<Rule, float>(p));
}

HETU_HD inline bool is_touched(const TouchedRows& rows, std::int64_t row) {
  return rows.bits == nullptr || (rows.bits[row / kPerWord] >> (row % kPerWord) & 1U) != 0;
}

/// A block per row: its gradient is looked at whole before any of it is used.
template <class Rule, class State>
struct RowSweepOf : RowWork {
  static constexpr int kRounds = 1;  // elements that are not 0
  SweepOf<Rule, State> of;
  TouchedRows rows;
  HETU_HD double term(int, std::int64_t row, std::int64_t j, const double*) const {
    return is_touched(rows, row) && of.g[row * rows.width + j] != 0.0F ? 1.0 : 0.0;
  }
  HETU_HD void write(std::int64_t row, std::int64_t j, const double* filled) const {
    if (filled[0] > 0) of(row * rows.width + j);
  }
};

template <class Rule, class State>
void sweep_touched_of(const SweepCall& p, const TouchedRows& touched) {
  const RowSweepOf<Rule, State> body{{}, SweepOf<Rule, State>(p), touched};
  for_rows(touched.rows, touched.width, body);
}

template <class Rule>
void sweep_touched(const SweepCall& p, const TouchedRows& touched) {
  if (p.narrow[0] != nullptr) return sweep_touched_of<Rule, BFloat16>(p, touched);
  sweep_touched_of<Rule, float>(p, touched);
}

template <class State>
struct LambMoments {
  sweeps::Lamb rule;
  const float* g;
  StatesOf<State> states;
  HETU_HD void operator()(std::int64_t i) const {
    float m = states.read(0, i), v = states.read(1, i);
    rule.moments(g[i], m, v);
    states.write(0, i, m);
    states.write(1, i, v);
  }
};

struct Square {
  const float* x;
  HETU_HD double operator()(std::int64_t i) const { return double(x[i]) * x[i]; }
};

template <class State>
struct LambDirection {
  sweeps::Lamb rule;
  const float* w;
  StatesOf<State> states;
  HETU_HD float of(std::int64_t i) const {
    return rule.direction(w[i], states.read(0, i), states.read(1, i));
  }
  HETU_HD double operator()(std::int64_t i) const {
    const double u = of(i);
    return u * u;
  }
};

template <class State>
struct LambStep {
  LambDirection<State> direction;
  float* w;
  const double* squares;
  HETU_HD void operator()(std::int64_t i) const {
    w[i] -= direction.rule.length(squares[0], squares[1]) * direction.of(i);
  }
};

template <class State>
void lamb_of(const SweepCall& p) {
  const sweeps::Lamb rule(p);
  const StatesOf<State> states(p);
  const LambDirection<State> direction{rule, p.weight, states};
  for_each(p.elements, LambMoments<State>{rule, p.gradient, states});
  auto* const squares = static_cast<double*>(bench().workspace);
  double* const parts = squares + 2;
  if (rule.decay > 0) {
    sum_of(p.elements, Square{p.weight}, parts, squares);
    sum_of(p.elements, direction, parts, squares + 1);
  } else {
    clear(squares, 2 * std::int64_t{sizeof(double)});
  }
  for_each(p.elements, LambStep<State>{direction, p.weight, squares});
}

void lamb(const SweepCall& p) {
  if (p.narrow[0] != nullptr) return lamb_of<BFloat16>(p);
  lamb_of<float>(p);
}

void sum_of_squares(const float* x, std::int64_t elements, double* result) {
  sum_of(elements, Square{x}, static_cast<double*>(bench().workspace), result);
}

struct TouchedSquare {
  const float* x;
  TouchedRows rows;
  HETU_HD double operator()(std::int64_t i) const {
    return is_touched(rows, i / rows.width) ? double(x[i]) * x[i] : 0.0;
  }
};

void sum_of_squares_rows(const float* x, const TouchedRows& touched, double* result) {
  sum_of(touched.rows * touched.width, TouchedSquare{x, touched},
         static_cast<double*>(bench().workspace), result);
}

struct FillOf {
  float* to;
  float value;
  HETU_HD void operator()(std::int64_t i) const { to[i] = value; }
};
void fill(float* to, float value, std::int64_t elements) { for_each(elements, FillOf{to, value}); }

struct SetCountersOf {
  RunCounters* to;
  RunCounters now;
  HETU_HD void operator()(std::int64_t) const { *to = now; }
};
void set_counters(RunCounters* to, RunCounters now) { for_each(1, SetCountersOf{to, now}); }

struct AddOf {
  float* to;
  const float* from;
  HETU_HD void operator()(std::int64_t i) const { to[i] += from[i]; }
};
void add(float* to, const float* from, std::int64_t elements) {
  for_each(elements, AddOf{to, from});
}

struct AddDifferenceOf {
  float* to;
  const float *a, *b;
  HETU_HD void operator()(std::int64_t i) const { to[i] += a[i] - b[i]; }
};
void add_difference(float* to, const float* a, const float* b, std::int64_t elements) {
  for_each(elements, AddDifferenceOf{to, a, b});
}

struct AddWideOf {
  double* to;
  const float* from;
  HETU_HD void operator()(std::int64_t i) const { to[i] += static_cast<double>(from[i]); }
};
void add_wide(double* to, const float* from, std::int64_t elements) {
  for_each(elements, AddWideOf{to, from});
}

struct MeanOf {
  float* to;
  const double* sum;
  double count;
  HETU_HD void operator()(std::int64_t i) const { to[i] = static_cast<float>(sum[i] / count); }
};
void mean(float* to, const double* sum, double count, std::int64_t elements) {
  for_each(elements, MeanOf{to, sum, count});
}

struct ScaleOf {
  float* to;
  float by;
  HETU_HD void operator()(std::int64_t i) const { to[i] *= by; }
};
void scale(float* to, float by, std::int64_t elements) { for_each(elements, ScaleOf{to, by}); }

struct MergeOf {
  float *to, *from;
  TouchedRows of_from;
  HETU_HD void operator()(std::int64_t i) const {
    if (!is_touched(of_from, i / of_from.width)) return;
    to[i] += from[i];
    from[i] = 0;
  }
};

struct MoveBitsOf {
  std::uint64_t *to, *from;
  HETU_HD void operator()(std::int64_t word) const {
    to[word] |= from[word];
    from[word] = 0;
  }
};

void merge_rows(float* to, const TouchedRows& of_to, float* from, const TouchedRows& of_from) {
  for_each(of_to.rows * of_to.width, MergeOf{to, from, of_from});
  for_each(of_to.words(), MoveBitsOf{of_to.bits, of_from.bits});
}

struct ClearOf {
  float* x;
  TouchedRows touched;
  HETU_HD void operator()(std::int64_t i) const {
    if (is_touched(touched, i / touched.width)) x[i] = 0;
  }
};

void clear_rows(float* x, const TouchedRows& touched) {
  for_each(touched.rows * touched.width, ClearOf{x, touched});
  clear(touched.bits, touched.words() * std::int64_t{sizeof(std::uint64_t)});
}

/// A block per word of bits looks at its rows one element after the other.
struct FilledOf {
  const float* x;
  TouchedRows touched;
  HETU_HD void operator()(std::int64_t word) const {
    for (std::int64_t bit = 0; bit < kPerWord; ++bit) {
      const std::int64_t row = word * kPerWord + bit;
      if (row >= touched.rows) return;
      for (std::int64_t j = 0; j < touched.width; ++j)
        if (x[row * touched.width + j] != 0.0F) {
          touched.bits[word] |= std::uint64_t{1} << bit;
          break;
        }
    }
  }
};

void touch_filled(const float* x, const TouchedRows& touched) {
  for_each(touched.words(), FilledOf{x, touched});
}

struct Row {
  SweepRow whole;
  void (*touched)(const SweepCall&, const TouchedRows&);  // null: its elements meet
};

template <class Rule>
constexpr Row row(std::string_view name) {
  return {{name, &sweep<Rule>}, &sweep_touched<Rule>};
}

constexpr Row kRows[] = {row<sweeps::Sgd>("sgd"),
                         row<sweeps::Momentum<false>>("momentum"),
                         row<sweeps::Momentum<true>>("nesterov"),
                         row<sweeps::Adagrad>("adagrad"),
                         row<sweeps::Adam<false>>("adam"),
                         row<sweeps::Amsgrad>("amsgrad"),
                         row<sweeps::Adam<true>>("adamw"),
                         row<sweeps::Adam<true, false>>("bertadam"),
                         {{"lamb", &lamb}, nullptr}};

void sweep_rows(const SweepCall& call, const TouchedRows& touched, Sweep sweep) {
  for (const Row& row : kRows)
    if (row.whole.run == sweep && row.touched != nullptr) return row.touched(call, touched);
  fail(Code::Internal, "CUDA has no sweep over rows for that optimizer");
}

}  // namespace
}  // namespace cuda

const TensorKernels& cuda_tensor_kernels() {
  static const auto sweeps = [] {
    std::array<SweepRow, std::size(cuda::kRows)> all;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = cuda::kRows[i].whole;
    return all;
  }();
  static const TensorKernels kernels{
      .fill = &cuda::fill,
      .set_counters = &cuda::set_counters,
      .add = &cuda::add,
      .add_difference = &cuda::add_difference,
      .add_wide = &cuda::add_wide,
      .mean = &cuda::mean,
      .scale = &cuda::scale,
      .sum_of_squares = &cuda::sum_of_squares,
      .scatter_rows = &cuda::scatter_rows,
      .merge_rows = &cuda::merge_rows,
      .clear_rows = &cuda::clear_rows,
      .touch_filled = &cuda::touch_filled,
      .sum_of_squares_rows = &cuda::sum_of_squares_rows,
      .sweep_rows = &cuda::sweep_rows,
      .invert_factors = &cuda::invert_factors,
      .precondition = &cuda::precondition,
      .factor_scratch = &cuda::factor_scratch,
      .sweeps = sweeps.data(),
      .sweep_count = static_cast<int>(sweeps.size()),
  };
  return kernels;
}

}  // namespace hetu
