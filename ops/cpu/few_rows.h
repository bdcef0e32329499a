// Products with few rows of A, which cost the reading of B: what a predictor computes for a token,
// or for a sample. Called by Product alone.
#pragma once
#include <cstdint>

#include "ops/cpu/product_shape.h"

namespace hetu::cpu {

constexpr std::int64_t kFewRows = 4;     ///< at most
constexpr std::int64_t kMostStep = 384;  ///< of the depth, with a sum of its own

/// One product of `shape`, m <= kFewRows and A not transposed, whatever its batch; `step` <=
/// kMostStep steps of the depth have a sum of their own, which is added to C, and `bias` (nullptr
/// for none) last. B is read once, where it lies. Parts of a product's columns are shared out
/// among threads; no bit depends on them.
void multiply_few_rows(const ProductShape& shape, std::int64_t step, const float* a, const float* b,
                       const float* bias, float* c);

}  // namespace hetu::cpu
