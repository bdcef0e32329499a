// One time origin for the workers of a job, whose clocks may differ.
#pragma once
#include <cstdint>

#include "net/transport/transport.h"

namespace hetu::comm {

/// Returns a moment of the recent past, the same one on all workers, on this worker's clock
/// (now_ns()). It is exact for workers that share worker 0's clock. For the others, the clocks'
/// distance is taken from the fastest of several round trips to worker 0. Its error is at most half
/// of that round trip. Collective: every worker of the job calls it with the same tag. Blocks.
std::int64_t common_origin(Transport& transport, Tag tag, WaitPurpose purpose);

}  // namespace hetu::comm
