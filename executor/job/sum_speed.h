// How fast the workers of a job sum gradients: asked when a trace is written, because the traced
// plan need not have sums and other plans may.
#pragma once
#include "net/transport/collective.h"

namespace hetu {

/// Milliseconds that a sum over two workers takes per byte, from sums over all of them in buckets
/// like those of training; 0 of a job of one. Every worker calls it, at the same time; takes tags
/// of kTraceTag. Blocks for about a tenth of a second.
double sum_ms_per_byte(comm::Transport& transport, comm::Reducer& reducer);

}  // namespace hetu
