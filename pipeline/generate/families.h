// The generators, one .cpp per family; read by the table in table.cpp only. Sizes are legal when
// they are called.
#pragma once
#include "pipeline/generate.h"

namespace hetu {

/// GPipe: all forwards, then all backwards, both in ascending order. Every worker holds M
/// activations; bubble (P - 1)(F + B).
/// Source: Huang et al. 2019 (GPipe), section 2.3.
Schedule gpipe(const Sizes& sizes);

/// 1F1B with a flush. Worker s holds at most min(M, P - s) activations; the bubble is GPipe's.
/// Source: Fan et al. 2021 (DAPPLE), section 3; Narayanan et al. 2021 (Megatron-LM), section 2.2.1.
Schedule one_f_one_b(const Sizes& sizes);

/// Interleaved 1F1B: V chunks per worker, looped; V P + M - 1 full passes of one chunk at M <= P,
/// from there a bubble of (P - 1)(F + B + W) / V. Worker 0 holds min(M, ((V - 1)k + 2P - 1) / V), k
/// micro-batches per round.
/// Source: Narayanan et al. 2021 (Megatron-LM), section 2.2.2; rounds: see Rounds.
Schedule interleaved_1f1b(const Sizes& sizes);

/// Looped breadth-first: all micro-batches through a chunk before the next; backwards in reverse.
/// Bubble as interleaved_1f1b, M activations.
/// Source: Lamy-Poirier 2023 (Breadth-First Pipeline Parallelism), section 4.
Schedule looped_bfs(const Sizes& sizes);

/// ZB-H1: 1F1B with W apart, later by as much as I comes earlier. Holds P activations; span bubble
/// (P - 1)(F + B - W) for W <= F, W <= B < F + W, M > P.
/// Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 2.1.
Schedule zb_h1(const Sizes& sizes);

/// ZB-H2: twice the warm-up, 2P - 1 activations; span bubble (P - 1) max(0, F + B - 2W, B - F) for
/// M >= 2P - 1.
/// Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 2.2.
Schedule zb_h2(const Sizes& sizes);

/// ZB-H1 with V chunks per worker, looped, in the rounds of interleaved_1f1b.
/// Source: Qi et al. 2024, section 2.1, as in torch.distributed.pipelining.
Schedule interleaved_zb(const Sizes& sizes);

/// Plain data parallelism: one stage, each micro-batch forward and backward in turn; the copies are
/// pipelines side by side. One activation; no bubble.
Schedule data_parallel(const Sizes& sizes);

}  // namespace hetu
