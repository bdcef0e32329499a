// What of a run's random numbers changes from micro-batch to micro-batch, where kernels read it
// late.
#pragma once
#include <cstdint>

namespace hetu {

/// In the memory of a device: of RunContext, for kernels that were recorded before it was known.
struct RunCounters {
  std::int64_t step = 0;
  std::int64_t sample_offset = 0;
};

}  // namespace hetu
