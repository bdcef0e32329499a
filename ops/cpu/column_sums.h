// Sums of the columns of a matrix, on their own or after a product that reads the same matrix.
// Threads take different columns, so the order of additions doesn't depend on the number of
// threads.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

#include "ops/cpu/kernel_shapes.h"

namespace hetu::cpu {

/// Rows are summed in blocks of 64, and the blocks are added in order. This keeps rounding errors
/// small for many rows.
inline constexpr std::int64_t kRowBlock = 64;
/// Columns that a thread sums at a time.
inline constexpr std::int64_t kStrip = 256;

/// out[j] = the sum over rows i of the terms in column j. `add_row(i, begin, width, part)` adds row
/// i of the columns [begin, begin + width) to the array `part`.
template <class AddRow>
void sum_columns(Rows x, float* out, const AddRow& add_row) {
  // Narrow matrices have narrower strips, so that every thread gets one.
  const std::int64_t strip = x.columns < 4096 ? 64 : kStrip;
  const std::int64_t strips = (x.columns + strip - 1) / strip;
#pragma omp parallel for schedule(static) if (x.elements() > kParallelElements)
  for (std::int64_t s = 0; s < strips; ++s) {
    const std::int64_t begin = s * strip, width = std::min(strip, x.columns - begin);
    alignas(64) float total[kStrip] = {}, part[kStrip];
    for (std::int64_t first = 0; first < x.rows; first += kRowBlock) {
      const std::int64_t last = std::min(x.rows, first + kRowBlock);
      std::fill_n(part, width, 0.0f);
      for (std::int64_t i = first; i < last; ++i) add_row(i, begin, width, part);
#pragma omp simd
      for (std::int64_t j = 0; j < width; ++j) total[j] += part[j];
    }
    std::copy_n(total, width, out + begin);
  }
}

/// sums[j] = the sum of column j of a float32 or bfloat16 matrix.
template <class T>
void sum_rows(Rows x, const T* in, float* sums) {
  const std::int64_t columns = x.columns;
  sum_columns(x, sums, [=](std::int64_t i, std::int64_t begin, std::int64_t width, float* part) {
    const T* row = in + i * columns + begin;
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j) part[j] += float(row[j]);
  });
}

/// Extends a kernel of linear_weight_grad: it also writes the column sums of dy (input 1) to output
/// 1.
template <class T>
PreparedKernel with_bias_grad(const KernelDesc& d, PreparedKernel of_weight) {
  const auto and_sums = [dy = rows_of(d.inputs[1])](std::function<void(const KernelCall&)> run) {
    return [dy, run = std::move(run)](const KernelCall& c) {
      run(c);
      sum_rows(dy, c.in<T>(1), c.out<float>(1));
    };
  };
  of_weight.run = and_sums(std::move(of_weight.run));
  of_weight.add = and_sums(std::move(of_weight.add));
  return of_weight;
}

}  // namespace hetu::cpu
