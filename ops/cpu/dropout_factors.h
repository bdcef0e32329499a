// The dropout decisions of ops/philox.h for many elements at once.
#pragma once
#include <cstdint>

#include "base/bfloat16.h"
#include "ops/philox.h"

namespace hetu::cpu {

/// factors[i] = scale if element begin + i is kept, else 0, for i in [0, n) and any begin >= 0.
void dropout_factors(const PhiloxStream& stream, const DropoutRate& rate, std::int64_t begin,
                     std::int64_t n, float* factors);

/// y[i] = x[i] times the factor of element begin + i.
void dropout_apply(const PhiloxStream& stream, const DropoutRate& rate, std::int64_t begin,
                   std::int64_t n, const float* x, float* y);
void dropout_apply(const PhiloxStream& stream, const DropoutRate& rate, std::int64_t begin,
                   std::int64_t n, const BFloat16* x, BFloat16* y);

}  // namespace hetu::cpu
