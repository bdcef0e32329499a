// Measures how fast the workers of a job sum gradients. Used when a trace is written, because the
// traced plan may have no sums while other plans do.
#pragma once
#include "net/transport/collective.h"

namespace hetu {

/// Returns the milliseconds per byte of a sum over two workers, derived from sums over all workers
/// in buckets like those of training; 0 in a job of one worker. Collective: every worker calls it
/// at the same time. Uses tags of kTraceTag. Blocks for about a tenth of a second.
double sum_ms_per_byte(comm::Transport& transport, comm::Reducer& reducer);

}  // namespace hetu
