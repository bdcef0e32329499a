// Operators along one axis. Operators that only move elements copy bytes, so one kernel serves
// every dtype and is its own reference.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "ops/cpu/axis_shape.h"
#include "ops/cpu/check_indices.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

constexpr std::int64_t kParallelBytes = kParallelElements * 4;

Axis axis_of_node(const KernelDesc& d, const TensorType& type) {
  return axis_of(type.shape, d.attrs->integer("axis"));
}

PreparedKernel concat(const KernelDesc& d) {
  const std::int64_t bytes = dtype_bytes(d.outputs[0].dtype);
  const std::int64_t outer = axis_of_node(d, d.outputs[0]).outer;
  std::vector<std::int64_t> pieces;
  for (const TensorType& type : d.inputs) {
    const Axis a = axis_of_node(d, type);
    pieces.push_back(a.size * a.inner * bytes);
  }
  const std::int64_t all = std::accumulate(pieces.begin(), pieces.end(), std::int64_t{0});
  return {[=](const KernelCall& c) {
#pragma omp parallel for if (outer * all > kParallelBytes)
            for (std::int64_t o = 0; o < outer; ++o) {
              char* to = c.out<char>(0) + o * all;
              for (std::size_t i = 0; i < pieces.size(); ++i) {
                if (pieces[i] == 0) continue;
                std::memcpy(to, c.in<char>(static_cast<int>(i)) + o * pieces[i], pieces[i]);
                to += pieces[i];
              }
            }
          },
          0, "reference"};
}

/// Correspondence between two tensors along an axis. Index i of the shorter tensor corresponds to
/// index first + i * step of the longer one. A step of -1 goes backwards.
struct Places {
  Axis longer;
  std::int64_t size, first, step, bytes;
  Places(const KernelDesc& d, const TensorType& whole, const TensorType& part,
         std::int64_t first_place, std::int64_t between)
      : longer(axis_of_node(d, whole)),
        size(axis_of_node(d, part).size),
        first(first_place),
        step(between),
        bytes(longer.inner * dtype_bytes(whole.dtype)) {}

  /// Calls copy(byte offset in the longer tensor, byte offset in the shorter one, bytes). Adjacent
  /// elements are copied in one call.
  template <class Copy>
  void each(const Copy& copy) const {
    if (size * bytes == 0) return;
#pragma omp parallel for if (longer.outer * size * bytes > kParallelBytes)
    for (std::int64_t o = 0; o < longer.outer; ++o) {
      const std::int64_t to = (o * longer.size + first) * bytes, from = o * size * bytes;
      if (step == 1) copy(to, from, size * bytes);
      for (std::int64_t i = 0; step != 1 && i < size; ++i)
        copy(to + i * step * bytes, from + i * bytes, bytes);
    }
  }
};

PreparedKernel slice(const KernelDesc& d) {
  const Places p(d, d.inputs[0], d.outputs[0], d.attrs->integer("first"), d.attrs->integer("step"));
  return {[p](const KernelCall& c) {
            p.each([&](std::int64_t from, std::int64_t to, std::int64_t bytes) {
              std::memcpy(c.out<char>(0) + to, c.in<char>(0) + from, bytes);
            });
          },
          0, "reference"};
}

PreparedKernel flip(const KernelDesc& d) {
  const Places p(d, d.inputs[0], d.outputs[0], axis_of_node(d, d.inputs[0]).size - 1, -1);
  return {[p](const KernelCall& c) {
            p.each([&](std::int64_t from, std::int64_t to, std::int64_t bytes) {
              std::memcpy(c.out<char>(0) + to, c.in<char>(0) + from, bytes);
            });
          },
          0, "reference"};
}

PreparedKernel slice_grad(const KernelDesc& d) {
  const Places p(d, d.outputs[0], d.inputs[0], d.attrs->integer("first"), d.attrs->integer("step"));
  const std::int64_t all = count_of(d.outputs[0]) * dtype_bytes(d.outputs[0].dtype);
  return {[p, all](const KernelCall& c) {
            if (all > 0) std::memset(c.outputs[0], 0, all);
            p.each([&](std::int64_t to, std::int64_t from, std::int64_t bytes) {
              std::memcpy(c.out<char>(0) + to, c.in<char>(0) + from, bytes);
            });
          },
          0, "reference"};
}

template <class T>
struct Pad {
  Places places;
  std::int64_t all;
  T value;
  explicit Pad(const KernelDesc& d)
      : places(d, d.outputs[0], d.inputs[0], d.attrs->integer("before"), 1),
        all(count_of(d.outputs[0])),
        value(static_cast<T>(d.attrs->real("value"))) {}
  void operator()(const KernelCall& c) const {
    std::fill_n(c.out<T>(0), all, value);
    places.each([&](std::int64_t to, std::int64_t from, std::int64_t bytes) {
      std::memcpy(c.out<char>(0) + to, c.in<char>(0) + from, bytes);
    });
  }
};

template <class T>
struct Cumsum {
  Axis a;
  bool reverse;
  explicit Cumsum(const KernelDesc& d)
      : a(axis_of_node(d, d.inputs[0])), reverse(d.attrs->integer("reverse") != 0) {}
  void operator()(const KernelCall& c) const {
    for (std::int64_t o = 0; o < a.outer; ++o)
      for (std::int64_t j = 0; j < a.inner; ++j) {
        double sum = 0;
        for (std::int64_t i = 0; i < a.size; ++i) {
          const std::int64_t place = reverse ? a.size - 1 - i : i;
          const std::int64_t at = (o * a.size + place) * a.inner + j;
          sum += double(c.in<T>(0)[at]);
          c.out<T>(0)[at] = static_cast<T>(sum);
        }
      }
  }
};

/// Returns true if a ranks before b: a is larger, or a is NaN and b isn't.
template <class T>
bool above(T a, T b) {
  return a > b || (a != a && b == b);
}

template <class T>
struct Argmax {
  Axis a;
  explicit Argmax(const KernelDesc& d) : a(axis_of_node(d, d.inputs[0])) {}
  void operator()(const KernelCall& c) const {
    for (std::int64_t o = 0; o < a.outer; ++o)
      for (std::int64_t j = 0; j < a.inner; ++j) {
        const T* x = c.in<T>(0) + o * a.size * a.inner + j;
        std::int64_t best = 0;
        for (std::int64_t i = 1; i < a.size; ++i)
          if (above(x[i * a.inner], x[best * a.inner])) best = i;
        c.out<std::int32_t>(0)[o * a.inner + j] = static_cast<std::int32_t>(best);
      }
  }
};

template <class T>
PreparedKernel top_k_of(const KernelDesc& d) {
  const Rows x = rows_of(d.inputs[0]);
  const std::int64_t k = d.attrs->integer("k");
  return {[x, k](const KernelCall& c) {
            auto* places = static_cast<std::int32_t*>(c.scratch);
            for (std::int64_t r = 0; r < x.rows; ++r) {
              const T* row = c.in<T>(0) + r * x.columns;
              for (std::int64_t i = 0; i < x.columns; ++i) places[i] = static_cast<std::int32_t>(i);
              std::partial_sort(places, places + k, places + x.columns,
                                [row](std::int32_t a, std::int32_t b) {
                                  return above(row[a], row[b]) || (!above(row[b], row[a]) && a < b);
                                });
              for (std::int64_t i = 0; i < k; ++i) {
                c.out<T>(0)[r * k + i] = row[places[i]];
                c.out<std::int32_t>(1)[r * k + i] = places[i];
              }
            }
          },
          x.columns * std::int64_t(sizeof(std::int32_t)), "reference"};
}

PreparedKernel top_k(const KernelDesc& d) {
  return d.inputs[0].dtype == DType::Float64 ? top_k_of<double>(d) : top_k_of<float>(d);
}

template <class T>
struct TopKGrad {
  std::string name;
  Rows dx, dy;
  explicit TopKGrad(const KernelDesc& d)
      : name(d.name), dx(rows_of(d.outputs[0])), dy(rows_of(d.inputs[0])) {}
  void operator()(const KernelCall& c) const {
    const auto* places = c.in<std::int32_t>(0);
    check_indices(name, places, dy.elements(), dx.columns, 0);
    std::fill_n(c.out<T>(0), dx.elements(), T(0));
    for (std::int64_t i = 0; i < dy.elements(); ++i)
      c.out<T>(0)[i / dy.columns * dx.columns + places[i]] += c.in<T>(1)[i];
  }
};

}  // namespace

const KernelTable& reference_axis_rows() {
  static const KernelTable kRows = {
      {"concat", "reference", nullptr, concat},
      {"slice", "reference", nullptr, slice},
      {"flip", "reference", nullptr, flip},
      {"slice_grad", "reference", nullptr, slice_grad},
      {"pad", "reference", nullptr, reference<Pad>},
      {"cumsum", "reference", nullptr, reference<Cumsum>},
      {"argmax", "reference", nullptr, reference<Argmax>},
      {"top_k", "reference", nullptr, top_k},
      {"top_k_grad", "reference", nullptr, reference<TopKGrad>},
  };
  return kRows;
}

}  // namespace hetu::cpu
