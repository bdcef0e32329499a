// The generators, one .cpp per family; read by the table in table.cpp only. Sizes are legal when
// they are called.
#pragma once
#include "pipeline/generate/generate.h"

namespace hetu {

/// GPipe: all forwards, then all backwards, both in ascending order. Every worker holds M
/// activations; bubble (P - 1)(F + B).
/// Source: Huang et al. 2019 (GPipe), section 2.3.
Schedule gpipe(const Sizes& sizes);

/// 1F1B with a flush. Worker s holds at most min(M, P - s) activations; the bubble is GPipe's.
/// Source: Fan et al. 2021 (DAPPLE), section 3; Narayanan et al. 2021 (Megatron-LM), section 2.2.1.
Schedule one_f_one_b(const Sizes& sizes);

/// The three methods over stages with replicas of their own, sizes.replicas[s] of stage s:
/// micro-batch g on replica g mod D, about as many underway on a replica as there are workers from
/// its stage on, divided by D. PipeDream updates all stages once per M micro-batches, which every D
/// divides, with the sum over the replicas. Source: Narayanan et al. 2019 (PipeDream), sections 3.1
/// and 3.2 (round-robin, NOAM).
Schedule gpipe_replicated(const Sizes& sizes);
Schedule one_f_one_b_replicated(const Sizes& sizes);
Schedule pipedream_replicated(const Sizes& sizes);

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

/// PipeDream: 1F1B over all steps without a flush, an update after each backward. Worker s holds
/// P - s activations and as many weight versions; no bubble once filled.
/// Source: Narayanan et al. 2019 (PipeDream), section 3.
Schedule pipedream(const Sizes& sizes);

/// PipeDream-2BW: one update per M backwards, all micro-batches of step t on the weights of t - 1
/// updates, two versions. Needs M >= P, so that those weights are there in time.
/// Source: Narayanan et al. 2021 (Memory-Efficient Pipeline-Parallel DNN Training), section 3.1.
Schedule pipedream_2bw(const Sizes& sizes);

/// HetPipe's virtual worker: M micro-batches in flight at most (a wave of s_local + 1), an update
/// after each; micro-batch m runs on the local updates of 0…m - M, on all stages alike. A body is a
/// whole wave.
/// Source: Park et al. 2020 (HetPipe), section 4.
Schedule hetpipe(const Sizes& sizes);

/// Chimera: `pairs` pipelines down and as many up through the same workers. M = P: length
/// 2P + P/pairs - 2 in slots of F = B, at most P activations per worker, 2 pairs copies of the
/// weights. More micro-batches: `concat` units of P directly, of 2P with forwards in twos
/// (doubling), or with backwards in halves (halving). Throws InvalidArgument: several pairs with
/// doubling or halving.
/// Source: Li and Hoefler 2021 (Chimera), sections 3.1-3.3, 3.5 and 3.6.
Schedule chimera(const Sizes& sizes);

/// GEMS: two directions, never more than one micro-batch alive on a worker. M even; makespan
/// M(2P + 1) + P - 1 at F = 1, F + B + W = 3. Micro-batches 0…M/2-1 run down, the others up.
/// Source: Jain et al. 2020 (GEMS), section 4.
Schedule gems(const Sizes& sizes);

/// Hanayo: V/2 waves over the workers, at most P micro-batches underway; the order is a greedy run
/// in which F and B take one slot: backwards first, then the deepest chunk. M = KP, B + W >= F:
/// bubble (P - 1)(F + K(B + W - F)) / waves. Source: Liu et al. 2023 (Hanayo), sections 3 and 4.
Schedule hanayo(const Sizes& sizes);

/// ZB-V: V placement, a fixed order without a bubble inside for F = B = W; P activations, makespan
/// bubble (P - 1)F / 2.
/// Source: Qi et al. 2024 (Zero Bubble), section 6; fixed order as in torch.distributed.pipelining.
Schedule zb_v(const Sizes& sizes);

/// V-Half: V placement, at most floor((P + 2) / 2) activations. F = B = W: bubble (3P - 7) / 2 for
/// even P (1/2 for P = 2), (3P - 4) / 2 for odd P.
/// Source: Qi et al. 2024 (Pipeline Parallelism with Controllable Memory), section 3.
Schedule v_half(const Sizes& sizes);

/// V-Min: V placement, at most floor((P + 4) / 3) activations. F = B = W: bubble 2P - 5/2, or
/// 2P - 7/2 where 3 divides P (P = 1: 0).
/// Source: Qi et al. 2024 (Pipeline Parallelism with Controllable Memory), section 3.
Schedule v_min(const Sizes& sizes);

/// DualPipe: two directions, P + 1 activations. M and P even, M >= 2P. Atomic: an F and a B of
/// opposite directions run as one instruction; split: as two, F first.
/// Source: DeepSeek-AI 2024 (DeepSeek-V3), section 3.2.1, and its published code.
Schedule dualpipe(const Sizes& sizes);

/// DualPipe's phases on a V placement, so that weights stand once: M >= 2P, P + 1/2 activations.
/// Source: DeepSeek-AI 2025 (DualPipe's published code); as in torch.distributed.pipelining.
Schedule dualpipev(const Sizes& sizes);
/// Varuna: backwards first in order, each stage recomputes while the next one's gradient is made,
/// forwards fill what is left. Holds at most min(M, 3(P - 1 - s)) inputs on stage s. With
/// `runtime_rule` the order that RunPolicy::ForwardBeforeLateGradient comes to under the costs.
/// Source: Athlur et al. 2022 (Varuna), section 3.2.
Schedule varuna(const Sizes& sizes);

/// Zero bubble for given costs, within P (zb_1p) or 2P (zb_2p) activations or the given limits: W's
/// fill the waits of a greedy order; of eight ways to choose the shortest span.
/// Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 3.1.
Schedule zb_1p(const Sizes& sizes);
Schedule zb_2p(const Sizes& sizes);

/// The plan with one replica and V chunks per worker that a search finds for the given costs
/// (stages and speeds may differ) within the given limits of memory: order, warm-up depth and place
/// of the W's, for V even also looped or waves. Never a longer makespan than another method of such
/// a plan within these limits, since those are tried too; among those the least makespan + span.
Schedule automatic(const Sizes& sizes);

/// Plain data parallelism: one stage, each micro-batch forward and backward in turn; the copies are
/// pipelines side by side. One activation; no bubble.
Schedule data_parallel(const Sizes& sizes);

}  // namespace hetu
