// Operators that process an axis in order: cumulative sum, argmax and top-k; and rotary position
// embeddings. One thread processes a line along the axis, or one element that is rotated.
#include <launch.h>

#include <cmath>

#include "ops/cpu/axis_shape.h"
#include "ops/cpu/rotary_frequency.h"
#include "ops/cuda/indices.h"
#include "ops/cuda/rows.h"

namespace hetu::cuda {
namespace {

using cpu::Axis;
using cpu::count_of;
using cpu::Rows;
using cpu::rows_of;

Axis axis_of_node(const KernelDesc& d) {
  return cpu::axis_of(d.inputs[0].shape, d.attrs->integer("axis"));
}

struct CumsumOf {
  const float* x;
  float* y;
  Axis a;
  bool reverse;
  HETU_HD void operator()(std::int64_t line) const {
    double sum = 0;
    for (std::int64_t i = 0; i < a.size; ++i) {
      const std::int64_t place = reverse ? a.size - 1 - i : i;
      const std::int64_t at = (line / a.inner * a.size + place) * a.inner + line % a.inner;
      sum += x[at];
      y[at] = static_cast<float>(sum);
    }
  }
};

struct Cumsum {
  Axis a;
  bool reverse;
  explicit Cumsum(const KernelDesc& d)
      : a(axis_of_node(d)), reverse(d.attrs->integer("reverse") != 0) {}
  void operator()(const KernelCall& c) const {
    for_each(a.outer * a.inner, CumsumOf{c.in<float>(0), c.out<float>(0), a, reverse});
  }
};

/// Returns true if a ranks before b: it is larger, or a NaN while b isn't.
HETU_HD inline bool above(float a, float b) { return a > b || (a != a && b == b); }

struct ArgmaxOf {
  const float* x;
  std::int32_t* y;
  Axis a;
  HETU_HD void operator()(std::int64_t line) const {
    const float* at = x + line / a.inner * a.size * a.inner + line % a.inner;
    std::int64_t best = 0;
    for (std::int64_t i = 1; i < a.size; ++i)
      if (above(at[i * a.inner], at[best * a.inner])) best = i;
    y[line] = static_cast<std::int32_t>(best);
  }
};

struct Argmax {
  Axis a;
  explicit Argmax(const KernelDesc& d) : a(axis_of_node(d)) {}
  void operator()(const KernelCall& c) const {
    for_each(a.outer * a.inner, ArgmaxOf{c.in<float>(0), c.out<std::int32_t>(0), a});
  }
};

/// A body that selects the k largest elements in k passes over the row. Each pass finds the first
/// element that ranks behind the previous one.
struct TopKOf {
  const float* x;
  float* y;
  std::int32_t* places;
  std::int64_t columns, k;
  HETU_HD void operator()(std::int64_t r) const {
    const float* row = x + r * columns;
    std::int64_t last = -1;
    for (std::int64_t i = 0; i < k; ++i) {
      std::int64_t best = -1;
      for (std::int64_t j = 0; j < columns; ++j) {
        if (last >= 0 && !before(row, last, j)) continue;
        if (best < 0 || before(row, j, best)) best = j;
      }
      y[r * k + i] = row[best];
      places[r * k + i] = static_cast<std::int32_t>(best);
      last = best;
    }
  }
  HETU_HD static bool before(const float* row, std::int64_t a, std::int64_t b) {
    return above(row[a], row[b]) || (!above(row[b], row[a]) && a < b);
  }
};

struct TopK {
  Rows x;
  std::int64_t k;
  explicit TopK(const KernelDesc& d) : x(rows_of(d.inputs[0])), k(d.attrs->integer("k")) {}
  void operator()(const KernelCall& c) const {
    for_each(x.rows, TopKOf{c.in<float>(0), c.out<float>(0), c.out<std::int32_t>(1), x.columns, k});
  }
};

struct TopKGradOf {
  const std::int32_t* places;
  const float* dy;
  float* dx;
  std::int64_t columns, k;
  Indices indices;
  HETU_HD void operator()(std::int64_t r) const {
    for (std::int64_t i = r * k; i < (r + 1) * k; ++i)
      if (indices.good(i, places[i])) dx[r * columns + places[i]] += dy[i];
  }
};

struct TopKGrad {
  Rows dx, dy;
  IndexRule rule;
  explicit TopKGrad(const KernelDesc& d)
      : dx(rows_of(d.outputs[0])), dy(rows_of(d.inputs[0])), rule(d.name, dx.columns) {}
  void operator()(const KernelCall& c) const {
    clear(c.outputs[0], dx.elements() * std::int64_t{sizeof(float)});
    for_each(dx.rows, TopKGradOf{c.in<std::int32_t>(0), c.in<float>(1), c.out<float>(0), dx.columns,
                                 dy.columns, rule.now()});
  }
};

/// A body that rotates one element per thread. Shape letters as in ops/cpu/rotary.cpp.
struct RotaryOf {
  const float* x;
  const std::int32_t* given;  // null: a token's position is its index
  float* y;
  std::int64_t tokens, heads, D, N;
  cpu::RotaryFrequency frequency;
  bool interleaved, each;  // each: positions are given per sample
  int sign;
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t column = i % D, row = i / (heads * D), token = row % tokens;
    if (column >= N) {
      y[i] = x[i];
      return;
    }
    const std::int64_t pair = interleaved ? column / 2 : column % (N / 2);
    const std::int64_t first = interleaved ? 2 * pair : pair;
    const std::int64_t second = interleaved ? 2 * pair + 1 : pair + N / 2;
    const std::int64_t position = given == nullptr ? token : given[each ? row : token];
    const double by = sign * double(position) * frequency(pair);
    const float* of_head = x + (i - column);
    const double a = of_head[first], b = of_head[second];
    y[i] = static_cast<float>(column == first ? a * std::cos(by) - b * std::sin(by)
                                              : b * std::cos(by) + a * std::sin(by));
  }
};

struct Rotary {
  RotaryOf of;
  std::int64_t count;
  bool given;
  explicit Rotary(const KernelDesc& d) : count(count_of(d.outputs[0])), given(d.inputs.size() > 1) {
    of = {};
    of.tokens = d.inputs[0].shape[1];
    of.heads = d.attrs->integer("heads");
    of.D = d.inputs[0].shape[2] / of.heads;
    of.N = d.attrs->integer("rotated") > 0 ? d.attrs->integer("rotated") : of.D;
    of.frequency = cpu::RotaryFrequency::of(*d.attrs, of.N);
    of.interleaved = d.attrs->integer("interleaved") != 0;
    of.each = given && d.inputs[1].shape.size() == 2;
    of.sign = d.attrs->integer("inverse") != 0 ? -1 : 1;
  }
  void operator()(const KernelCall& c) const {
    RotaryOf body = of;
    body.x = c.in<float>(0);
    body.given = given ? c.in<std::int32_t>(1) : nullptr;
    body.y = c.out<float>(0);
    for_each(count, body);
  }
};

}  // namespace

const KernelTable& order_rows() {
  static const KernelTable kRows = {
      row("cumsum", floats<Cumsum>), row("argmax", floats<Argmax>),
      row("top_k", floats<TopK>),    row("top_k_grad", floats<TopKGrad>),
      row("rotary", floats<Rotary>),
  };
  return kRows;
}

}  // namespace hetu::cuda
