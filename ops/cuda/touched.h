// The test for touched rows of a tensor; all other rows are zero. Used only by the kernels.
#pragma once
#include "ops/scalar_fns.h"
#include "ops/touched_rows.h"

namespace hetu::cuda {

/// Returns true if a row is touched. Without bits every row is.
HETU_HD inline bool is_touched(const TouchedRows& rows, std::int64_t row) {
  constexpr std::int64_t kPerWord = TouchedRows::kPerWord;
  return rows.bits == nullptr || (rows.bits[row / kPerWord] >> (row % kPerWord) & 1U) != 0;
}

}  // namespace hetu::cuda
