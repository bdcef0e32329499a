// Where pipelines meet at servers: one push and one pull per stage and wave. Part of lowering.
#pragma once
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Adds to rows that have all else: of each stage a PUSH directly after the last UPDATE of a wave
/// (the M-th where versions go by waves, else each); and the PULL of wave c directly before (the
/// receives of) the first forward whose version has that wave in it, c + 1 waves of updates and
/// more, or at the end of the row where there is none. A body stays one if each repetition gets the
/// same; else the row is all prologue. Source: Park et al. 2020 (HetPipe), section 5.
void add_waves(Schedule& lowered);

}  // namespace hetu
