// Pushes and pulls for pipelines with servers: one push and one pull per stage and wave. Part of
// lowering.
#pragma once
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Adds pushes and pulls to rows in which everything else is in place. Each stage gets a PUSH
/// directly after the last UPDATE of a wave: the M-th update with versions by waves, otherwise each
/// update. The PULL of wave c stands directly before the first forward whose version contains c + 1
/// or more waves of updates, and before the receives of that forward. If no such forward follows,
/// the PULL stands at the end of the row.
///
/// A body stays a body if each repetition gets the same additions. Otherwise the whole row goes
/// into the prologue. Source: Park et al. 2020 (HetPipe), section 5.
void add_waves(Schedule& lowered);

}  // namespace hetu
