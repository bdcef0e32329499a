// Placements of model stages on workers, shared by families of methods. Each function returns a
// schedule with its sizes and placements filled in and empty rows. Replica r of model stage s has
// the id r * (P * V) + s.
#pragma once
#include "pipeline/generate/generate.h"

namespace hetu {

/// Returns P stages, stage s on worker s.
Schedule one_stage_per_worker(const char* method, const Sizes& sizes);

/// Returns stages with replicas of their own: stage s has sizes.replicas[s] consecutive workers,
/// used cyclically.
Schedule cyclic_stages(const char* method, const Sizes& sizes);

/// Returns P * V stages in V rounds over the workers: worker w holds the stages jP + w.
/// Source: Narayanan et al. 2021 (Megatron-LM), section 2.2.2.
Schedule looped(const char* method, const Sizes& sizes);

/// Returns P * V stages, V even, that go down and up the workers in turn. With V = 2 they form a V:
/// worker w holds the stages w and 2P - 1 - w.
/// Source: Liu et al. 2023 (Hanayo), section 3; Qi et al. 2024 (Zero Bubble), section 6.
Schedule waves(const char* method, const Sizes& sizes);

/// Returns `sizes.pairs` pipelines down and as many up, each a replica of all P stages. Stage s of
/// the i-th pipeline down is on worker (s + iP/pairs) mod P. Stage s of the i-th pipeline up is on
/// worker (P - 1 - s + iP/pairs) mod P.
/// Source: Li and Hoefler 2021 (Chimera), sections 3.1 and 3.6.
Schedule bidirectional(const char* method, const Sizes& sizes);

}  // namespace hetu
