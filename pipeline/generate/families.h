// The generators, one .cpp per family, read only by the table in table.cpp. Callers pass legal
// sizes.
//
// In the bounds below, P is the number of workers, M the number of micro-batches and V the chunks
// per worker. F, B and W are times. In a bound that contains W, B is the time of the input
// gradient. In the others, B is the time of the whole backward.
#pragma once
#include "pipeline/generate/generate.h"

namespace hetu {

/// Returns GPipe: all forwards, then all backwards, both in ascending order. Every worker holds M
/// activations. The bubble is (P - 1)(F + B).
/// Source: Huang et al. 2019 (GPipe), section 2.3.
Schedule gpipe(const Sizes& sizes);

/// Returns 1F1B with a flush. Worker s holds at most min(M, P - s) activations. The bubble is that
/// of GPipe.
/// Source: Fan et al. 2021 (DAPPLE), section 3; Narayanan et al. 2021 (Megatron-LM), section 2.2.1.
Schedule one_f_one_b(const Sizes& sizes);

/// Returns GPipe, 1F1B or PipeDream for stages with different numbers of replicas,
/// sizes.replicas[s] for stage s. Micro-batch g runs on replica g mod D of a stage with D replicas.
/// A replica has about as many micro-batches in progress as there are workers from its stage on,
/// divided by D. PipeDream updates all stages once per M micro-batches, with the sum over the
/// replicas. M must be a multiple of every D.
/// Source: Narayanan et al. 2019 (PipeDream), sections 3.1 and 3.2 (round-robin, NOAM).
Schedule gpipe_replicated(const Sizes& sizes);
Schedule one_f_one_b_replicated(const Sizes& sizes);
Schedule pipedream_replicated(const Sizes& sizes);

/// Returns interleaved 1F1B with V chunks per worker, looped. For M <= P the makespan is V P + M -
/// 1 passes of one chunk, each F + B + W. For larger M the bubble is (P - 1)(F + B + W) / V. Worker
/// 0 holds min(M, ((V - 1)k + 2P - 1) / V) activations, with k micro-batches per round.
/// Source: Narayanan et al. 2021 (Megatron-LM), section 2.2.2; rounds: see Rounds.
Schedule interleaved_1f1b(const Sizes& sizes);

/// Returns the looped breadth-first method: all micro-batches run through a chunk before the next
/// chunk, and the backwards run in reverse. The bubble is that of interleaved_1f1b. Every worker
/// holds M activations.
/// Source: Lamy-Poirier 2023 (Breadth-First Pipeline Parallelism), section 4.
Schedule looped_bfs(const Sizes& sizes);

/// Returns ZB-H1: 1F1B with separate W's, which run later by as much as the I's run earlier. Holds
/// P activations. The span bubble is (P - 1)(F + B - W) for W <= F, W <= B < F + W, M > P.
/// Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 2.1.
Schedule zb_h1(const Sizes& sizes);

/// Returns ZB-H2: twice the warm-up of ZB-H1, 2P - 1 activations. The span bubble is (P - 1) max(0,
/// F + B - 2W, B - F) for M >= 2P - 1.
/// Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 2.2.
Schedule zb_h2(const Sizes& sizes);

/// Returns ZB-H1 with V chunks per worker, looped, in the rounds of interleaved_1f1b.
/// Source: Qi et al. 2024, section 2.1, as in torch.distributed.pipelining.
Schedule interleaved_zb(const Sizes& sizes);

/// Returns PipeDream: 1F1B over all steps without a flush, with an update after each backward.
/// Worker s holds P - s activations and as many weight versions. There is no bubble once the
/// pipeline is full.
/// Source: Narayanan et al. 2019 (PipeDream), section 3.
Schedule pipedream(const Sizes& sizes);

/// Returns PipeDream-2BW: one update per M backwards and two weight versions. All micro-batches of
/// step t use the weights after t - 1 updates. M >= P is needed so that these weights exist in
/// time.
/// Source: Narayanan et al. 2021 (Memory-Efficient Pipeline-Parallel DNN Training), section 3.1.
Schedule pipedream_2bw(const Sizes& sizes);

/// Returns the plan of HetPipe's virtual worker: at most M micro-batches in progress (a wave of
/// s_local + 1), and an update after each. Micro-batch m uses the local updates of micro-batches
/// 0…m - M, on all stages. A body is a whole wave.
/// Source: Park et al. 2020 (HetPipe), section 4.
Schedule hetpipe(const Sizes& sizes);

/// Returns Chimera: `pairs` pipelines go down and `pairs` pipelines go up through the same workers.
/// For M = P the length is 2P + P/pairs - 2 in slots of F = B. Each worker holds at most P
/// activations, and there are 2 * pairs copies of the weights. `concat` decides how a larger M
/// runs: in units of P micro-batches (direct), in units of 2P with forwards in twos (doubling), or
/// with backwards in halves (halving). Throws InvalidArgument for several pairs with doubling or
/// halving.
/// Source: Li and Hoefler 2021 (Chimera), sections 3.1-3.3, 3.5 and 3.6.
Schedule chimera(const Sizes& sizes);

/// Returns GEMS: two directions, with at most one micro-batch in progress on a worker. M is even.
/// The makespan is M(2P + 1) + P - 1 at F = 1, F + B + W = 3. Micro-batches 0…M/2-1 run down, the
/// others run up.
/// Source: Jain et al. 2020 (GEMS), section 4.
Schedule gems(const Sizes& sizes);

/// Returns Hanayo: V/2 waves over the workers, with at most P micro-batches in progress. The order
/// is that of a greedy run in which F and B take one slot each: backwards first, then the deepest
/// chunk. For M = KP and B + W >= F the bubble is (P - 1)(F + K(B + W - F)) / waves.
/// Source: Liu et al. 2023 (Hanayo), sections 3 and 4.
Schedule hanayo(const Sizes& sizes);

/// Returns ZB-V: a V placement and a fixed order that has no bubble inside for F = B = W. Holds P
/// activations. The makespan bubble is (P - 1)F / 2.
/// Source: Qi et al. 2024 (Zero Bubble), section 6; fixed order as in torch.distributed.pipelining.
Schedule zb_v(const Sizes& sizes);

/// Returns V-Half: a V placement with at most floor((P + 2) / 2) activations. For F = B = W the
/// bubble is (3P - 7) / 2 for even P and (3P - 4) / 2 for odd P. For P = 2 it is 1/2.
/// Source: Qi et al. 2024 (Pipeline Parallelism with Controllable Memory), section 3.
Schedule v_half(const Sizes& sizes);

/// Returns V-Min: a V placement with at most floor((P + 4) / 3) activations. For F = B = W the
/// bubble is 2P - 5/2, or 2P - 7/2 if P is a multiple of 3 (P = 1: 0).
/// Source: Qi et al. 2024 (Pipeline Parallelism with Controllable Memory), section 3.
Schedule v_min(const Sizes& sizes);

/// Returns DualPipe: two directions and P + 1 activations. M and P are even, M >= 2P. With atomic
/// pairs, an F and a B of opposite directions run as one instruction. With split pairs they run as
/// two, F first.
/// Source: DeepSeek-AI 2024 (DeepSeek-V3), section 3.2.1, and its published code.
Schedule dualpipe(const Sizes& sizes);

/// Returns DualPipeV: DualPipe's phases on a V placement, so that each weight exists once. M >= 2P.
/// Holds P + 1/2 activations.
/// Source: DeepSeek-AI 2025 (DualPipe's published code); as in torch.distributed.pipelining.
Schedule dualpipev(const Sizes& sizes);
/// Returns Varuna: backwards go first, in order; each stage recomputes while the next stage
/// computes the gradient; forwards fill the remaining time. Stage s holds at most min(M, 3(P - 1 -
/// s)) inputs. With `runtime_rule` the order is the one that RunPolicy::ForwardBeforeLateGradient
/// produces under the costs.
/// Source: Athlur et al. 2022 (Varuna), section 3.2.
Schedule varuna(const Sizes& sizes);

/// Returns a zero-bubble plan for given costs, within P (zb_1p) or 2P (zb_2p) activations or the
/// given limits. W's fill the waits of a greedy order. The result is the plan with the shortest
/// span of eight variants of the order.
/// Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 3.1.
Schedule zb_1p(const Sizes& sizes);
Schedule zb_2p(const Sizes& sizes);

/// Returns a plan with one replica and V chunks per worker that a search finds for the given costs
/// and limits of memory. Stages and speeds may differ. The search varies the order, the depth of
/// the warm-up and the positions of the W's. For even V it tries looped placements and waves. The
/// makespan is never longer than that of another method of such a plan within these limits, because
/// the search tries those methods too. Among such plans the result has the least makespan + span.
Schedule automatic(const Sizes& sizes);

/// Returns plain data parallelism: one stage, with the forward and the backward of each micro-batch
/// in turn. The copies are pipelines. Holds one activation and has no bubble.
Schedule data_parallel(const Sizes& sizes);

}  // namespace hetu
