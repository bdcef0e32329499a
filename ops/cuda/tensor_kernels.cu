// Arithmetic on whole tensors on the device: sums, norms, averages, and the same on touched rows.
#include <launch.h>

#include "ops/cuda/chunks.h"
#include "ops/cuda/kronecker.h"
#include "ops/cuda/packs.h"
#include "ops/cuda/registry.h"
#include "ops/cuda/scatter.h"
#include "ops/cuda/sums.h"
#include "ops/cuda/sweeps.h"
#include "ops/cuda/touched.h"

namespace hetu {
namespace cuda {
namespace {

constexpr std::int64_t kPerWord = TouchedRows::kPerWord;

struct SquareOf {
  const float* x;
  double* result;
};

constexpr std::int64_t kSumChunk = 1 << 13;
using SquareParts = Chunks<SquareOf, kSumChunk>;

/// A body that computes the sum of squares of a chunk, one row of for_rows() each, into parts[row].
/// A column adds the elements of one thread: four quads at a time, which are all loaded before the
/// first is used.
struct SquareChunks : RowWork {
  static constexpr int kRounds = 1, kQuad = 4, kAtOnce = 4;
  static constexpr std::int64_t kColumns = kMostThreads, kTurn = kColumns * kQuad * kAtOnce;
  static_assert(kSumChunk % kTurn == 0);
  const SquareParts chunks;
  double* parts;

  HETU_HD static void load(const SquareParts::Part& of, std::int64_t begin, bool in_quads,
                           float (&x)[kAtOnce][kQuad]) {
    constexpr std::int64_t kSpan = (kAtOnce - 1) * kColumns * kQuad + kQuad;
    if (in_quads && begin + kSpan <= of.elements) {
      for (int q = 0; q < kAtOnce; ++q) load_quad(of.of.x + begin + q * kColumns * kQuad, x[q]);
      return;
    }
    for (int q = 0; q < kAtOnce; ++q)
      for (int k = 0; k < kQuad; ++k) {
        const std::int64_t i = begin + q * kColumns * kQuad + k;
        x[q][k] = i < of.elements ? of.of.x[i] : 0.0F;
      }
  }

  HETU_HD double term(int, std::int64_t row, std::int64_t j, const double*) const {
    const SquareParts::Part& of = chunks.holder(row);
    const std::int64_t begin = (row - of.first) * kSumChunk, left = of.elements - begin;
    const std::int64_t count = left < kSumChunk ? left : kSumChunk;
    const bool in_quads = lies_in_quads(of.of.x);
    double sum = 0;
    for (std::int64_t i = j * kQuad; i < count; i += kTurn) {
      float x[kAtOnce][kQuad];
      load(of, begin + i, in_quads, x);
      for (int q = 0; q < kAtOnce; ++q)
        for (int k = 0; k < kQuad; ++k) sum += double(x[q][k]) * x[q][k];
    }
    return sum;
  }
  HETU_HD void write(std::int64_t, std::int64_t, const double*) const {}
  HETU_HD void finish(std::int64_t row, const double* sum) const { parts[row] = sum[0]; }
};

/// A body that adds the parts of a tensor, one row of for_rows() each.
struct SquareTotals : RowWork {
  static constexpr int kRounds = 1;
  const SquareParts chunks;
  const double* parts;
  HETU_HD double term(int, std::int64_t t, std::int64_t j, const double*) const {
    const SquareParts::Part& of = chunks.part(t);
    return j < of.chunks() ? parts[of.first + j] : 0.0;
  }
  HETU_HD void write(std::int64_t, std::int64_t, const double*) const {}
  HETU_HD void finish(std::int64_t t, const double* sum) const {
    *chunks.part(t).of.result = sum[0];
  }
};

void sums_of_squares(std::span<const SquaresCall> calls) {
  auto* const parts = static_cast<double*>(kernel_context().workspace);
  in_chunks(
      calls, SquareParts(),
      [](SquareParts& chunks, const SquaresCall& p) {
        chunks.add({p.x, p.result}, p.elements);
      },
      [&](const SquareParts& chunks) {
        HETU_ASSERT(8 * chunks.chunks() <= kWorkspaceBytes);
        for_rows(chunks.chunks(), SquareChunks::kColumns, SquareChunks{{}, chunks, parts});
        for_rows(chunks.parts(), columns_of_parts(chunks), SquareTotals{{}, chunks, parts});
      });
}

/// A copy of one tensor.
struct CopyOf {
  float* to;
  const float* from;
};
using CopyParts = Chunks<CopyOf, kMostThreads>;
struct CopyChunks {
  CopyParts parts;
  HETU_HD void operator()(std::int64_t i) const {
    const CopyParts::Part& part = parts.holder(i / CopyParts::kChunk);
    const std::int64_t at = i - part.first * CopyParts::kChunk;
    if (at < part.elements) part.of.to[at] = part.of.from[at];
  }
};

void copy_all(std::span<const CopyCall> calls) {
  in_chunks(
      calls, CopyParts(),
      [](CopyParts& parts, const CopyCall& c) {
        if (c.to != c.from) parts.add({c.to, c.from}, c.elements);
      },
      [](const CopyParts& parts) {
        for_each(parts.chunks() * CopyParts::kChunk, CopyChunks{parts});
      });
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
         static_cast<double*>(kernel_context().workspace), result);
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
  const void* const both[] = {to, from};
  if (!swept_in_packs<2>(DType::Float32, both, to, elements, fn::Add()))
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

/// A body that sets the bits of rows that have a nonzero element. One thread checks the 64 rows of
/// a word.
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

}  // namespace
}  // namespace cuda

const TensorKernels& cuda_tensor_kernels() {
  static const std::span<const SweepRow> sweeps = cuda::sweep_table();
  static const TensorKernels kernels{
      .fill = &cuda::fill,
      .set_counters = &cuda::set_counters,
      .add = &cuda::add,
      .add_difference = &cuda::add_difference,
      .add_wide = &cuda::add_wide,
      .mean = &cuda::mean,
      .scale = &cuda::scale,
      .sums_of_squares = &cuda::sums_of_squares,
      .copy_all = &cuda::copy_all,
      .sweep_all = &cuda::sweep_all,
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
