// The part of RunContext that recorded kernels read at run time.
#pragma once
#include <cstdint>

namespace hetu {

/// Counters in device memory, with the meaning of the same fields in RunContext. For kernels that
/// are recorded before the values are known.
struct RunCounters {
  std::int64_t step = 0;
  std::int64_t sample_offset = 0;
};

}  // namespace hetu
