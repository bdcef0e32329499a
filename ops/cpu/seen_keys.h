// What a query of attention sees, if it is told by a bool mask.
#pragma once
#include <algorithm>
#include <cstdint>

#include "ops/kernel.h"

namespace hetu::cpu {

/// The mask of attention, input 3: bool, [queries, keys] for all samples or one per sample. An
/// int32 mask, of padding, is none.
struct SeenKeys {
  std::int64_t per_sample = 0;
  bool given = false;
  explicit SeenKeys(const TensorType& mask)
      : per_sample(mask.shape.size() == 3 ? mask.shape[1] * mask.shape[2] : 0),
        given(mask.dtype == DType::Bool) {}
  /// Of query i of a sample, a byte per key; nullptr if there is none.
  const std::uint8_t* row(const KernelCall& c, std::int64_t sample, std::int64_t i,
                          std::int64_t keys) const {
    return given ? c.in<std::uint8_t>(3) + sample * per_sample + i * keys : nullptr;
  }
  /// Whether a row hides all keys.
  static bool nothing(const std::uint8_t* shown, std::int64_t keys) {
    return shown != nullptr && std::all_of(shown, shown + keys, [](auto one) { return one == 0; });
  }
};

}  // namespace hetu::cpu
