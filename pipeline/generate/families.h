// The generators, one .cpp per family; read by the table in table.cpp only. Sizes are legal when
// they are called.
#pragma once
#include "pipeline/generate.h"

namespace hetu {

/// P stages, stage s on worker s, empty rows: where a family with one stage per worker begins.
Schedule one_stage_per_worker(const char* method, const Sizes& sizes);

/// GPipe: all forwards, then all backwards, both in ascending order. Every worker holds M
/// activations; bubble (P - 1)(F + B).
/// Source: Huang et al. 2019 (GPipe), section 2.3.
Schedule gpipe(const Sizes& sizes);

/// 1F1B with a flush. Worker s holds at most min(M, P - s) activations; the bubble is GPipe's.
/// Source: Fan et al. 2021 (DAPPLE), section 3; Narayanan et al. 2021 (Megatron-LM), section 2.2.1.
Schedule one_f_one_b(const Sizes& sizes);

/// Plain data parallelism: one stage, each micro-batch forward and backward in turn; the copies are
/// pipelines side by side. One activation; no bubble.
Schedule data_parallel(const Sizes& sizes);

}  // namespace hetu
