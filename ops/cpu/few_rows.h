// Products in which A has few rows, so that the cost is the reading of B. Predictors compute them
// for one token or one sample. Only Product calls this.
#pragma once
#include <cstdint>

#include "ops/cpu/product_shape.h"

namespace hetu::cpu {

constexpr std::int64_t kFewRows = 4;     ///< maximum number of rows
constexpr std::int64_t kMostStep = 384;  ///< largest part of the depth with a sum of its own

/// Computes one product of `shape`, regardless of shape.batch. Requires m <= kFewRows and A not
/// transposed. Every `step` <= kMostStep steps of the depth have a sum of their own, which is added
/// to C. `bias` (nullptr if there is none) is added last. B is read once, in place. Threads take
/// different columns; the result doesn't depend on their number.
void multiply_few_rows(const ProductShape& shape, std::int64_t step, const float* a, const float* b,
                       const float* bias, float* c);

}  // namespace hetu::cpu
