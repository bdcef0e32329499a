// Operations on the touched rows of a tensor. Each thread owns whole words of bits, and so whole
// rows. No result depends on the number of threads.
#include "ops/cpu/row_kernels.h"

#include <algorithm>

#include "base/error.h"

namespace hetu::cpu {
namespace {

// Fewer words run on one thread, because waking other threads costs more.
constexpr std::int64_t kParallelWords = 64;

template <class Visit>
void for_words(const TouchedRows& touched, const Visit& visit) {
  const std::int64_t words = touched.words();
#pragma omp parallel for schedule(static) if (words > kParallelWords)
  for (std::int64_t word = 0; word < words; ++word)
    if (touched.bits[word] != 0) visit(word);
}

void add_row(float* to, const float* from, std::int64_t width) {
#pragma omp simd
  for (std::int64_t k = 0; k < width; ++k) to[k] += from[k];
}

bool is_zero(const float* row, std::int64_t width) {
  return std::all_of(row, row + width, [](float x) { return x == 0.0F; });
}

}  // namespace

// Every part reads all ids. They are few compared with the data that they move.
void scatter_rows(float* to, const TouchedRows& touched, const RowsOf& from) {
  for (std::int64_t i = 0; i < from.count; ++i)
    HETU_ASSERT(from.ids[i] >= 0 && from.ids[i] < touched.rows);
  const std::int64_t width = touched.width, words = touched.words();
  constexpr std::int64_t kParts = 8;
#pragma omp parallel for schedule(static) if (from.count * width > (1 << 14))
  for (std::int64_t part = 0; part < kParts; ++part) {
    const std::int64_t begin = words * part / kParts * TouchedRows::kPerWord;
    const std::int64_t end = words * (part + 1) / kParts * TouchedRows::kPerWord;
    for (std::int64_t i = 0; i < from.count; ++i) {
      const std::int64_t row = from.ids[i];
      if (row < begin || row >= end) continue;
      touched.touch(row);
      add_row(to + row * width, from.values + i * width, width);
    }
  }
}

void merge_rows(float* to, const TouchedRows& of_to, float* from, const TouchedRows& of_from) {
  const std::int64_t width = of_to.width;
  for_words(of_from, [&](std::int64_t word) {
    of_from.each_of(word, [&](std::int64_t row) {
      add_row(to + row * width, from + row * width, width);
      std::fill_n(from + row * width, width, 0.0F);
    });
    of_to.bits[word] |= of_from.bits[word];
    of_from.bits[word] = 0;
  });
}

void clear_rows(float* x, const TouchedRows& touched) {
  for_words(touched, [&](std::int64_t word) {
    touched.each_of(
        word, [&](std::int64_t row) { std::fill_n(x + row * touched.width, touched.width, 0.0F); });
    touched.bits[word] = 0;
  });
}

void touch_filled(const float* x, const TouchedRows& touched) {
  const std::int64_t words = touched.words();
#pragma omp parallel for schedule(static) if (words > kParallelWords)
  for (std::int64_t word = 0; word < words; ++word) {
    const std::int64_t first = word * TouchedRows::kPerWord;
    const std::int64_t end = std::min(first + TouchedRows::kPerWord, touched.rows);
    for (std::int64_t row = first; row < end; ++row)
      if (!is_zero(x + row * touched.width, touched.width)) touched.touch(row);
  }
}

void sweep_rows(const SweepCall& call, const TouchedRows& touched, Sweep sweep) {
  for_words(touched, [&](std::int64_t word) {
    touched.each_of(word, [&](std::int64_t row) {
      const std::int64_t at = row * touched.width;
      if (is_zero(call.gradient + at, touched.width)) return;
      SweepCall of_row = call;
      of_row.weight += at;
      of_row.gradient += at;
      for (float*& state : of_row.state)
        if (state != nullptr) state += at;
      for (BFloat16*& state : of_row.narrow)
        if (state != nullptr) state += at;
      of_row.first += at;
      of_row.elements = touched.width;
      sweep(of_row);
    });
  });
}

}  // namespace hetu::cpu
