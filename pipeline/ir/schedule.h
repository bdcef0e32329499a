// The schedule IR: who does what, in which order. Generators make it, lowering widens it, verifier,
// simulator, interpreter and renderers read it. Plain data: no method's name has a meaning outside
// pipeline/generate.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hetu {

/// What an instruction does. Text form `<stage><KIND><micro>`, as in torch.distributed.pipelining.
enum class Kind : std::uint8_t {
  Forward,        ///< F
  Backward,       ///< B: input and weight gradient in one
  InputGrad,      ///< I
  WeightGrad,     ///< W
  Recompute,      ///< R: forward again, before B or I
  SendForward,    ///< SEND_F: the output of (stage, micro) to its consumer
  RecvForward,    ///< RECV_F: the input of (stage, micro) from its producer
  SendBackward,   ///< SEND_B: the input gradient of (stage, micro) to the stage before
  RecvBackward,   ///< RECV_B: the output gradient of (stage, micro) from the stage after
  ReduceGrad,     ///< REDUCE_GRAD: all-reduce over the copies of a stage; part = bucket; no micro
  ReduceScalars,  ///< REDUCE_SCALARS: norm, overflow, loss over all workers; no stage, no micro
  Update,         ///< UPDATE: optimizer step of a stage, its own or, see
                  ///< updates_at_servers, theirs; no micro
  PartialReduce,  ///< PARTIAL_REDUCE: a mean of the stage's weights with those of some other
                  ///< pipelines begins; the stage's next update waits for it; no micro
  Push,  ///< PUSH: what the stage's weights have changed by since its last push goes to the
         ///< servers, which add it, or the gradient of its update, which they apply; no micro
  Pull,  ///< PULL: the servers' weights of the stage, with that push and as many of the other
         ///< pipelines' as Lowering::staleness asks for, take the place of what its own were at
         ///< the push; updates since then are kept; no micro
  CurvatureA,  ///< CURVATURE_A: x x^T of a layer's inputs goes into its input factor; part = layer
               ///< of the stage, here and below
  CurvatureB,  ///< CURVATURE_B: dy dy^T of its output gradients into its gradient factor
  SyncA,       ///< SYNC_A: all-reduce of an input factor over the copies of the stage; no micro
  SyncB,       ///< SYNC_B: the same of a gradient factor
  InvertA,     ///< INVERT_A: the damped inverse of an input factor, which then is empty; part =
               ///< layer or, of a stage whose copies share them (Lowering::owners), round; no micro
  InvertB,     ///< INVERT_B: the same of a gradient factor
  Gather,      ///< GATHER: the inverses of a round, from the copies of the stage that made them to
               ///< all; part = round; no micro
  Precondition,  ///< PRECONDITION: the stage's gradients times its inverses; no micro
};

constexpr int kKindCount = static_cast<int>(Kind::Precondition) + 1;

/// One instruction. 16 bytes: a plan of 1,024 workers x 4,096 micro-batches fits in memory.
struct Instr {
  Kind kind = Kind::Forward;
  bool with_next = false;   ///< runs as one with the next one, e.g. `(0F1;3B0)OVERLAP_F_B`
  std::int16_t part = 0;    ///< bucket of a reduction, extra edge of a message, piece of other work
  std::int32_t stage = 0;   ///< index into Schedule::placements; -1 where the kind has none
  std::int32_t micro = -1;  ///< global micro-batch id; -1 where the kind has none

  bool operator==(const Instr&) const = default;
};

/// Text of a kind: "F", "SEND_B", "UPDATE", …
const char* kind_name(Kind kind);

/// F, B, I, W or R: what a device computes for one micro-batch.
constexpr bool is_compute(Kind kind) { return kind <= Kind::Recompute; }
constexpr bool is_send(Kind kind) {
  return kind == Kind::SendForward || kind == Kind::SendBackward;
}
constexpr bool is_recv(Kind kind) {
  return kind == Kind::RecvForward || kind == Kind::RecvBackward;
}
/// Of K-FAC (pipeline/fill).
constexpr bool is_curvature(Kind kind) {
  return kind == Kind::CurvatureA || kind == Kind::CurvatureB;
}
constexpr bool is_factor_sync(Kind kind) { return kind == Kind::SyncA || kind == Kind::SyncB; }
constexpr bool is_inversion(Kind kind) { return kind == Kind::InvertA || kind == Kind::InvertB; }
/// What copies of a stage exchange of K-FAC.
constexpr bool is_factor_exchange(Kind kind) {
  return is_factor_sync(kind) || kind == Kind::Gather;
}
/// What a device computes of K-FAC.
constexpr bool is_second_order(Kind kind) {
  return is_curvature(kind) || is_inversion(kind) || kind == Kind::Precondition;
}
/// What counts as busy.
constexpr bool is_work(Kind kind) { return is_compute(kind) || is_second_order(kind); }
/// Whether it is about input factors (A) or gradient factors (B).
constexpr bool is_of_inputs(Kind kind) {
  return kind == Kind::CurvatureA || kind == Kind::SyncA || kind == Kind::InvertA;
}

constexpr bool is_collective(Kind kind) {
  return kind == Kind::ReduceGrad || kind == Kind::ReduceScalars || is_factor_exchange(kind);
}
/// It waits for sums that its worker has posted: all, or, of an inversion, those of factors.
constexpr bool awaits_sums(Kind kind) {
  return kind == Kind::Update || is_inversion(kind) || kind == Kind::Precondition;
}

/// Copies of a stage agree on its weights: weight synchronisation (executor/sync).
constexpr bool is_weight_sync(Kind kind) {
  return kind == Kind::ReduceGrad || kind == Kind::PartialReduce || kind == Kind::Push ||
         kind == Kind::Pull || is_factor_exchange(kind);
}

/// Where a copy of a model stage stands. One worker today; a list so that tensor parallelism fits
/// later.
struct Placement {
  std::vector<int> workers;
  int model_stage = 0;
  int replica = 0;  ///< copy of the model within one pipeline (Chimera, DualPipe: 2 and more), or
                    ///< of this stage; see ReplicaRule

  bool operator==(const Placement&) const = default;
};

/// What a worker does: prologue, then body `repeat` times (micro ids raised by `shift` each time),
/// then drain.
struct Program {
  std::vector<Instr> prologue;
  std::vector<Instr> body;
  int repeat = 0;
  int shift = 0;
  std::vector<Instr> drain;

  bool operator==(const Program&) const = default;
};

/// Which weight version, counted in updates, the forward of a micro-batch uses. Newest: that of its
/// worker at the time. Lag1: micro-batches of step t use version t - 1 (step 0: 0) on all stages;
/// an update applies one step. Wave: micro-batch m uses version m - M + 1 (at least 0) on all
/// stages; an update applies one micro-batch, and M are underway at most.
/// Source: PipeDream-2BW, section 3.1; HetPipe, section 4.
enum class VersionRule : std::uint8_t { Newest, Lag1, Wave };

/// What a worker may do at run time other than its row says. ForwardBeforeLateGradient: where a
/// recompute is next and the gradient that its backward waits for has not arrived, the next forward
/// of the row goes first if its input has. Defined for plans of one weight version
/// with each R directly before its backward. A named choice of the plan, not of whoever runs it.
/// Source: Athlur et al. 2022 (Varuna), section 3.2.
enum class RunPolicy : std::uint8_t { AsPlanned, ForwardBeforeLateGradient };

/// Which replica of a stage runs a micro-batch. Whole: a replica is a copy of all stages, and a
/// micro-batch stays in one. Cyclic: every stage has its own number of replicas D, and micro-batch
/// g runs on replica g mod D.
enum class ReplicaRule : std::uint8_t { Whole, Cyclic };

/// Two model stages with something in common: an edge between stages that are not neighbours (a
/// skip connection), or one parameter that both use (a tied weight); first < second.
struct StagePair {
  int first = 0;
  int second = 0;

  bool operator==(const StagePair&) const = default;
};

/// Where a stage's gradient reductions stand in a row: after the last compute; directly after the
/// last backward of the stage; or there only if the worker still idles after it before its last
/// compute (at F = I = W = 1), so that the time is hidden, and at the end otherwise.
/// Source: Li and Hoefler 2021 (Chimera), section 3.2.
enum class SyncPlace : std::uint8_t { End, Eager, EagerOpt };

/// A staleness without a bound (ASP).
inline constexpr int kAnyStaleness = -1;

/// What lowering is told of the model and of the pipelines beside this one. It stays in the
/// schedule, so that verifier, simulator and interpreter know it too.
struct Lowering {
  int pipelines = 1;                        ///< copies of this plan that share one model
  std::vector<StagePair> extra_edges = {};  ///< beyond s -> s + 1; edge k travels as part k + 1
  std::vector<StagePair> tied = {};         ///< pair t is reduced as part gradient_buckets + t
  std::vector<int> gradient_buckets = {};   ///< reductions per model stage; empty: 1 each
  bool reduce_scalars = false;  ///< the update needs a norm, an overflow flag or a loss first
  SyncPlace sync = SyncPlace::Eager;
  /// Pipelines share no gradient: each updates alone, and after every update averages the stage's
  /// weights with whom it is told to (pipeline/groups).
  bool average_weights = false;
  /// Pipelines share no gradient: the updates of each step, a wave, go to servers that hold the
  /// weights of all: Kind::Push, Kind::Pull. Of versions by waves these are M of the pipeline's
  /// own, else one, which the servers make (updates_at_servers).
  bool servers = false;
  /// With servers: waves by which a pipeline may be ahead of the slowest one, D. The pull after
  /// wave c has waves 0…c-D of every pipeline at least; kAnyStaleness: its own. Source: Park et al.
  /// 2020 (HetPipe), section 5 (WSP); Ho et al. 2013 (SSP, of which 0 is BSP).
  int staleness = 0;
  /// What lowering has found: the plan had no update, so each step got one at its end, a flush.
  bool flush = false;
  /// Of a plan with K-FAC's work: layers with factors, by model stage; empty: none.
  std::vector<int> factor_layers = {};
  /// Of these a stage with R copies shares its inversions: in round k copy c inverts layer k R + c,
  /// if there is one, and all have the inverses after the GATHER of that round. Copies are counted
  /// over pipelines, and over replicas within one. Source: Osawa et al. 2023 (PipeFisher), whose
  /// inverses stay with their owner.
  bool owners = false;
  /// Some inversions, and the gathers of these, are of factors of the cycle before: they stand
  /// before any piece of their layers. The first cycle goes without them. Source: Osawa et al. 2023
  /// (PipeFisher), section 3.2.
  bool wraps = false;

  bool operator==(const Lowering&) const = default;
};

/// One pipeline's plan for one step (synchronous methods) or for `steps` steps (asynchronous ones).
/// Several pipelines side by side run the same plan; worker w of pipeline d is then the global
/// worker d * workers.size() + w.
struct Schedule {
  std::string method;
  int stages = 0;         ///< workers of one pipeline, P
  int micro_batches = 0;  ///< per step, over all directions, M
  int chunks = 1;         ///< model stages per worker, V
  int steps = 1;
  bool half_micros = false;  ///< backward ids are half-micros 2i, 2i+1 (chimera --concat halving)
  VersionRule version_rule = VersionRule::Newest;
  RunPolicy run_policy = RunPolicy::AsPlanned;
  ReplicaRule replica_rule = ReplicaRule::Whole;
  int most_versions =
      1;  ///< weight versions alive at once that any placement may need; 0: any number
  std::vector<Placement> placements;
  std::vector<Program> workers;
  Lowering lowering;

  bool operator==(const Schedule&) const = default;
};

/// Number of model stages: the highest model_stage + 1.
int model_stages(const Schedule& schedule);

/// True if `test` holds for an instruction of the plan; each stands once, however often its body
/// repeats.
template <class Test>
bool any_instr(const Schedule& schedule, const Test& test) {
  for (const Program& p : schedule.workers) {
    for (const auto* part : {&p.prologue, &p.body, &p.drain})
      for (const Instr& i : *part)
        if (test(i)) return true;
  }
  return false;
}

/// True if the plan holds an instruction of this kind.
inline bool holds(const Schedule& schedule, Kind kind) {
  return any_instr(schedule, [kind](const Instr& i) { return i.kind == kind; });
}

/// True if the plan holds a send or a receive, so that values cross workers only by them.
bool is_lowered(const Schedule& schedule);

/// Micro-batches of the whole plan: micro_batches * steps.
int total_micros(const Schedule& schedule);

/// The weight version, counted in updates, that the forward of a micro-batch uses where its stage
/// has been updated `updates` times before it.
int forward_version(const Schedule& schedule, int micro, int updates);

/// Micro-batches whose gradient one update applies: those of a step; one where versions go by
/// waves.
int micros_per_update(const Schedule& schedule);

/// Updates that go to servers together, in a wave: those of a step.
int updates_per_wave(const Schedule& schedule);

/// Whether an UPDATE only ends a gradient, which the PUSH after it takes to servers that run the
/// optimizer: pipelines with a flush at the end of each step and servers.
bool updates_at_servers(const Schedule& schedule);

/// The clock, in waves, that a pull asks for of every pipeline after so many waves of its own; of
/// any staleness the lowest number.
std::int64_t least_clock(int staleness, std::int64_t waves);

/// The same plan over another number of steps: bodies repeat as often as that needs. Throws Plan
/// where a row's body cannot give that number.
Schedule with_steps(const Schedule& schedule, int steps);

/// The placement id of (model stage, replica), or -1.
int placement_of(const Schedule& schedule, int model_stage, int replica);

/// A worker's program as one flat row: prologue, repeated body, drain.
std::vector<Instr> unroll(const Program& program);

/// The same at the end of a longer list.
void append_unrolled(const Program& program, std::vector<Instr>& row);

/// "2F0", "1SEND_B3", "0UPDATE", "REDUCE_SCALARS", "0REDUCE_GRAD"; a part > 0 follows a colon, as
/// in "0REDUCE_GRAD:2" or "3SEND_B0:1".
std::string to_string(const Instr& instr);

/// The inverse of to_string for one cell without an overlap pair. Throws InvalidArgument: what was
/// found, what is known.
Instr parse_instr(std::string_view cell);

}  // namespace hetu
