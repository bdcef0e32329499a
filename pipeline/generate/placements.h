// Where model stages stand: the tables that families of methods share. Each returns a schedule with
// sizes and placements filled in and empty rows. Replica r of model stage s has the id
// r * (P * V) + s.
#pragma once
#include "pipeline/generate/generate.h"

namespace hetu {

/// P stages, stage s on worker s.
Schedule one_stage_per_worker(const char* method, const Sizes& sizes);

/// Stage s on sizes.replicas[s] workers of its own, one after the other, replicas cyclic.
Schedule cyclic_stages(const char* method, const Sizes& sizes);

/// P * V stages in V rounds over the workers: worker w holds jP + w.
/// Source: Narayanan et al. 2021 (Megatron-LM), section 2.2.2.
Schedule looped(const char* method, const Sizes& sizes);

/// P * V stages, V even, that go down and up the workers in turn; with V = 2 a V: worker w holds w
/// and 2P - 1 - w.
/// Source: Liu et al. 2023 (Hanayo), section 3; Qi et al. 2024 (Zero Bubble), section 6.
Schedule waves(const char* method, const Sizes& sizes);

/// `sizes.pairs` pipelines down (stage s of the i-th on worker s + iP/pairs mod P), then as many up
/// (P - 1 - s + iP/pairs mod P), each a replica of all P stages.
/// Source: Li and Hoefler 2021 (Chimera), sections 3.1 and 3.6.
Schedule bidirectional(const char* method, const Sizes& sizes);

}  // namespace hetu
