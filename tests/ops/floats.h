// Access to floats of any kernel dtype in memory, for stand-ins of NVIDIA's libraries.
#pragma once
#include <cstdint>

#include "base/bfloat16.h"
#include "base/dtype.h"
#include "base/float16.h"

namespace hetu::test {

/// Returns element i of bfloat16, float16 or float32 data.
inline float float_at(const void* data, DType dtype, std::int64_t i) {
  if (dtype == DType::BFloat16) return float(static_cast<const BFloat16*>(data)[i]);
  if (dtype == DType::Float16) return float(static_cast<const Float16*>(data)[i]);
  return static_cast<const float*>(data)[i];
}

/// Writes element i, rounded to the dtype.
inline void set_float(void* data, DType dtype, std::int64_t i, float value) {
  if (dtype == DType::BFloat16)
    static_cast<BFloat16*>(data)[i] = BFloat16(value);
  else if (dtype == DType::Float16)
    static_cast<Float16*>(data)[i] = Float16(value);
  else
    static_cast<float*>(data)[i] = value;
}

}  // namespace hetu::test
