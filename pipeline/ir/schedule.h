// The schedule IR: which worker runs which instruction, in which order. Generators make a schedule
// and lowering adds messages and reductions to it. The verifier, the simulator, the interpreter and
// the renderers read it. A schedule is plain data: a method's name has a meaning only in
// pipeline/generate.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace hetu {

/// The action of an instruction. Its text form is `<stage><KIND><micro>`, as in
/// torch.distributed.pipelining.
enum class Kind : std::uint8_t {
  Forward,       ///< F
  Backward,      ///< B: input gradient and weight gradient in one instruction
  InputGrad,     ///< I
  WeightGrad,    ///< W
  Recompute,     ///< R: runs the forward again, before B or I
  SendForward,   ///< SEND_F: sends the output of (stage, micro) to its consumer
  RecvForward,   ///< RECV_F: receives the input of (stage, micro) from its producer
  SendBackward,  ///< SEND_B: sends the input gradient of (stage, micro) to the previous stage
  RecvBackward,  ///< RECV_B: receives the output gradient of (stage, micro) from the next stage
  /// REDUCE_GRAD: starts an all-reduce over the copies of a stage. `part` is the bucket. No micro.
  ReduceGrad,
  /// REDUCE_SCALARS: sums the norm, overflow flag and loss over all workers. No stage, no micro.
  ReduceScalars,
  /// UPDATE: optimizer step of a stage. The servers run the optimizer instead if
  /// updates_at_servers() holds. No micro.
  Update,
  /// PARTIAL_REDUCE: starts averaging the stage's weights with those of some other pipelines. The
  /// stage's next update waits for the result. No micro.
  PartialReduce,
  /// PUSH: sends to the servers the change of the stage's weights since its last push, which the
  /// servers add. If updates_at_servers() holds, it sends the gradient of the update instead, which
  /// the servers apply. No micro.
  Push,
  /// PULL: fetches the stage's weights from the servers. The weights contain the pipeline's own
  /// last push and as many pushes of the other pipelines as ParameterServers::staleness requires.
  /// They replace the weights that the stage had at its push. Updates made since then are kept. No
  /// micro.
  Pull,
  /// CURVATURE_A: adds x x^T of a layer's inputs to the layer's input factor. `part` is the layer
  /// within the stage, also in the K-FAC kinds below unless stated otherwise.
  CurvatureA,
  CurvatureB,  ///< CURVATURE_B: adds dy dy^T of a layer's output gradients to its gradient factor
  SyncA,       ///< SYNC_A: all-reduce of an input factor over the copies of the stage. No micro.
  SyncB,       ///< SYNC_B: as SYNC_A, for a gradient factor
  /// INVERT_A: computes the damped inverse of an input factor and empties the factor. `part` is the
  /// layer, or the round if the copies of the stage share the inversions (Lowering::owners). No
  /// micro.
  InvertA,
  InvertB,  ///< INVERT_B: as INVERT_A, for a gradient factor
  /// GATHER: distributes the inverses of a round from the copies of the stage that computed them to
  /// all copies. `part` is the round. No micro.
  Gather,
  Precondition,  ///< PRECONDITION: multiplies the stage's gradients by its inverses. No micro.
};

constexpr int kKindCount = static_cast<int>(Kind::Precondition) + 1;

/// One instruction. Its 16 bytes let a plan of 1,024 workers x 4,096 micro-batches fit in memory.
struct Instr {
  Kind kind = Kind::Forward;
  /// True if this instruction and the next one run as one, as in `(0F1;3B0)OVERLAP_F_B`.
  bool with_next = false;
  /// Bucket of a reduction, edge of a message (0: the chain), or K-FAC layer or round.
  std::int16_t part = 0;
  std::int32_t stage = 0;   ///< Index into Schedule::placements; -1 if the kind has no stage.
  std::int32_t micro = -1;  ///< Global micro-batch id; -1 if the kind has no micro-batch.

  bool operator==(const Instr&) const = default;
};

/// Returns the text of a kind: "F", "SEND_B", "UPDATE", …
const char* kind_name(Kind kind);

/// Returns true for F, B, I, W and R: the work of a device for one micro-batch.
constexpr bool is_compute(Kind kind) { return kind <= Kind::Recompute; }
constexpr bool is_send(Kind kind) {
  return kind == Kind::SendForward || kind == Kind::SendBackward;
}
constexpr bool is_recv(Kind kind) {
  return kind == Kind::RecvForward || kind == Kind::RecvBackward;
}
/// Returns true for the kinds that accumulate a factor of K-FAC (see pipeline/fill).
constexpr bool is_curvature(Kind kind) {
  return kind == Kind::CurvatureA || kind == Kind::CurvatureB;
}
constexpr bool is_factor_sync(Kind kind) { return kind == Kind::SyncA || kind == Kind::SyncB; }
constexpr bool is_inversion(Kind kind) { return kind == Kind::InvertA || kind == Kind::InvertB; }
/// Returns true if the copies of a stage exchange data of K-FAC with this kind.
constexpr bool is_factor_exchange(Kind kind) {
  return is_factor_sync(kind) || kind == Kind::Gather;
}
/// Returns true if a device computes a part of K-FAC with this kind.
constexpr bool is_second_order(Kind kind) {
  return is_curvature(kind) || is_inversion(kind) || kind == Kind::Precondition;
}
/// Returns true if a worker counts as busy during this kind.
constexpr bool is_work(Kind kind) { return is_compute(kind) || is_second_order(kind); }
/// Returns true if the kind handles input factors (A), false if it handles gradient factors (B).
constexpr bool is_of_inputs(Kind kind) {
  return kind == Kind::CurvatureA || kind == Kind::SyncA || kind == Kind::InvertA;
}

/// Returns true if the kind is an operation over several workers that is posted and completes
/// later.
constexpr bool is_collective(Kind kind) {
  return kind == Kind::ReduceGrad || kind == Kind::ReduceScalars || is_factor_exchange(kind);
}
/// Returns true if the kind waits for sums that its worker has started: an inversion waits for
/// those of factors, UPDATE and PRECONDITION wait for all.
constexpr bool awaits_sums(Kind kind) {
  return kind == Kind::Update || is_inversion(kind) || kind == Kind::Precondition;
}

/// Returns true if the kind belongs to weight synchronisation (executor/sync), by which the copies
/// of a stage agree on its weights.
constexpr bool is_weight_sync(Kind kind) {
  return kind == Kind::ReduceGrad || kind == Kind::PartialReduce || kind == Kind::Push ||
         kind == Kind::Pull || is_factor_exchange(kind);
}

/// The worker that holds a copy of a model stage. `workers` is a list to leave room for tensor
/// parallelism. StageGraph requires exactly one entry.
struct Placement {
  std::vector<int> workers;
  int model_stage = 0;
  /// Number of the copy of the model within one pipeline (Chimera and DualPipe have 2 or more), or
  /// of the copy of this stage; see ReplicaRule.
  int replica = 0;

  bool operator==(const Placement&) const = default;
};

/// A worker's program: the prologue, then the body `repeat` times, then the drain. Each repetition
/// raises the micro-batch ids of the body by `shift`.
struct Program {
  std::vector<Instr> prologue;
  std::vector<Instr> body;
  int repeat = 0;
  int shift = 0;
  std::vector<Instr> drain;

  bool operator==(const Program&) const = default;
};

/// Rule that gives the weight version, counted in updates, that the forward of a micro-batch uses.
/// - Newest: the version that the worker has at that time.
/// - Lag1: micro-batches of step t use version t - 1 (step 0 uses 0) on all stages. Each update
///   applies the gradient of one step.
/// - Wave: micro-batch m uses version m - M + 1 (at least 0) on all stages. Each update applies the
///   gradient of one micro-batch, and at most M micro-batches are in progress.
///
/// Source: PipeDream-2BW, section 3.1; HetPipe, section 4.
enum class VersionRule : std::uint8_t { Newest, Lag1, Wave };

/// Freedom that a worker has at run time to deviate from its row. It is part of the plan, not a
/// choice of the program that runs the plan.
/// - AsPlanned: none.
/// - ForwardBeforeLateGradient: applies if a recompute is next and the gradient for its backward
///   has not arrived. The next forward of the row then runs first if its input has arrived. This is
///   defined for plans of one weight version in which each R stands directly before its backward.
///
/// Source: Athlur et al. 2022 (Varuna), section 3.2.
enum class RunPolicy : std::uint8_t { AsPlanned, ForwardBeforeLateGradient };

/// Rule that assigns micro-batches to the replicas of a stage.
/// - Whole: a replica is a copy of all stages, and a micro-batch stays in one replica.
/// - Cyclic: every stage has its own number of replicas D, and micro-batch g runs on replica g mod
///   D.
enum class ReplicaRule : std::uint8_t { Whole, Cyclic };

/// Two model stages that share something, with first < second. They are the ends of an edge between
/// stages that are not neighbours (a skip connection), or they use the same parameter (a tied
/// weight).
struct StagePair {
  int first = 0;
  int second = 0;

  bool operator==(const StagePair&) const = default;
};

/// Position of a stage's gradient reductions in a row.
/// - End: after the last compute.
/// - Eager: directly after the last backward of the stage.
/// - EagerOpt: as Eager if the worker still idles between that backward and its last compute (at F
///   = I = W = 1). The idle time then hides the reduction. Otherwise as End.
///
/// Source: Li and Hoefler 2021 (Chimera), section 3.2.
enum class SyncPlace : std::uint8_t { End, Eager, EagerOpt };

/// Value of ParameterServers::staleness for an unbounded staleness (asynchronous parallel, ASP).
inline constexpr int kAnyStaleness = -1;

/// Strategies by which pipelines share the weights of one model. A strategy of Lowering::sharing.
/// - GradientSums: pipelines sum their gradients before each update.
struct GradientSums {
  bool operator==(const GradientSums&) const = default;
};

/// - WeightAverages: pipelines share no gradient. Each pipeline makes its own updates. After every
///   update it averages the stage's weights with a group of pipelines that is chosen at run time
///   (pipeline/groups).
struct WeightAverages {
  bool operator==(const WeightAverages&) const = default;
};

/// - ParameterServers: pipelines share no gradient. The updates of each step, which form a wave, go
///   to servers that hold the weights for all pipelines (Kind::Push, Kind::Pull). With
///   VersionRule::Wave a wave is M updates that the pipeline makes itself. Otherwise it is one
///   update that the servers make (updates_at_servers).
struct ParameterServers {
  /// D, the number of waves by which a pipeline may be ahead of the slowest pipeline. The pull
  /// after wave c contains at least waves 0…c-D of every pipeline. With kAnyStaleness it contains
  /// at least the pipeline's own waves. Source: Park et al. 2020 (HetPipe), section 5 (WSP); Ho et
  /// al. 2013 (SSP; 0 is BSP).
  int staleness = 0;

  bool operator==(const ParameterServers&) const = default;
};

using Sharing = std::variant<GradientSums, WeightAverages, ParameterServers>;

/// Input of lowering: facts about the model and about the pipelines that train it together. The
/// schedule keeps it, so that the verifier, the simulator and the interpreter can read it.
struct Lowering {
  int pipelines = 1;  ///< Copies of this plan that share one model.
  /// Edges beyond s -> s + 1. Edge k travels as part k + 1.
  std::vector<StagePair> extra_edges = {};
  /// Tied pairs. Pair t is reduced as part gradient_buckets + t.
  std::vector<StagePair> tied = {};
  std::vector<int> gradient_buckets = {};  ///< Gradient buckets of each model stage; empty: 1 each.
  /// True if the update first needs a norm, an overflow flag or a loss of all workers.
  bool reduce_scalars = false;
  SyncPlace sync = SyncPlace::Eager;
  Sharing sharing = GradientSums{};
  /// Set by lowering: the plan had no update, so lowering put one at the end of each step (a
  /// flush).
  bool flush = false;
  /// For a plan with K-FAC work: layers with factors, by model stage. Empty: no K-FAC work.
  std::vector<int> factor_layers = {};
  /// The R copies of a stage share its inversions. In round k, copy c inverts layer k R + c if
  /// there is such a layer. All copies have the inverses after the GATHER of that round. Copies are
  /// numbered over pipelines, and over replicas within a pipeline. Source: Osawa et al. 2023
  /// (PipeFisher), in which the inverses stay with their owner.
  bool owners = false;
  /// Some inversions, and the gathers of their results, use factors of the previous cycle. They
  /// stand in the row before any CURVATURE instruction of their layers. The first cycle skips them.
  /// Source: Osawa et al. 2023 (PipeFisher), section 3.2.
  bool wraps = false;

  bool averages() const { return std::holds_alternative<WeightAverages>(sharing); }
  bool has_servers() const { return std::holds_alternative<ParameterServers>(sharing); }
  /// Returns the staleness bound of the servers; 0 without servers.
  int staleness() const {
    const auto* servers = std::get_if<ParameterServers>(&sharing);
    return servers != nullptr ? servers->staleness : 0;
  }

  bool operator==(const Lowering&) const = default;
};

/// A pipeline's plan for one step (synchronous methods) or for `steps` steps (asynchronous
/// methods). All pipelines run the same plan. Worker w of pipeline d is the global worker d *
/// workers.size() + w.
struct Schedule {
  std::string method;
  int stages = 0;         ///< Workers of one pipeline, P.
  int micro_batches = 0;  ///< Micro-batches per step, M, of all replicas together.
  int chunks = 1;         ///< Model stages per worker, V.
  int steps = 1;
  /// True if backward ids are half micro-batches 2i and 2i+1 (chimera --concat halving).
  bool half_micros = false;
  VersionRule version_rule = VersionRule::Newest;
  RunPolicy run_policy = RunPolicy::AsPlanned;
  ReplicaRule replica_rule = ReplicaRule::Whole;
  /// The most weight versions that a placement may keep at the same time; 0: any number.
  int most_versions = 1;
  std::vector<Placement> placements;
  std::vector<Program> workers;
  Lowering lowering;

  bool operator==(const Schedule&) const = default;
};

/// Returns the number of model stages: the highest model_stage + 1.
int model_stages(const Schedule& schedule);

/// Returns true if `test` holds for an instruction of the plan. An instruction of a body is tested
/// once, however often the body repeats.
template <class Test>
bool any_instr(const Schedule& schedule, const Test& test) {
  for (const Program& p : schedule.workers) {
    for (const auto* part : {&p.prologue, &p.body, &p.drain})
      for (const Instr& i : *part)
        if (test(i)) return true;
  }
  return false;
}

/// Returns true if the plan holds an instruction of this kind.
inline bool holds(const Schedule& schedule, Kind kind) {
  return any_instr(schedule, [kind](const Instr& i) { return i.kind == kind; });
}

/// Returns true if the plan holds a send or a receive. Values then cross workers only by messages.
bool is_lowered(const Schedule& schedule);

/// Returns the number of micro-batches of the whole plan: micro_batches * steps.
int total_micros(const Schedule& schedule);

/// Returns the weight version, counted in updates, that the forward of a micro-batch uses.
/// `updates` is the number of updates of its stage before it.
int forward_version(const Schedule& schedule, int micro, int updates);

/// Returns the number of micro-batches whose gradient one update applies: 1 with VersionRule::Wave,
/// otherwise those of a step. Not for plans without servers that update after each backward and
/// have VersionRule::Newest, such as pipedream.
int micros_per_update(const Schedule& schedule);

/// Returns the number of updates that go to servers together as a wave: the updates of a step.
int updates_per_wave(const Schedule& schedule);

/// Returns true if an UPDATE only completes a gradient, which the PUSH after it sends to servers
/// that run the optimizer. This holds for plans with servers whose versions don't go by waves.
bool updates_at_servers(const Schedule& schedule);

/// Returns the clock, in waves, that a pull requires of every pipeline after `waves` waves of its
/// own. For kAnyStaleness this is the lowest number.
std::int64_t least_clock(int staleness, std::int64_t waves);

/// Returns the same plan over another number of steps, with the repetitions of each body adjusted.
/// Throws Plan if a row's body can't give that number of steps.
Schedule with_steps(const Schedule& schedule, int steps);

/// Returns the placement id of (model stage, replica), or -1 if there is no such placement.
int placement_of(const Schedule& schedule, int model_stage, int replica);

/// Returns a worker's program as one flat row: the prologue, the repeated body and the drain.
std::vector<Instr> unroll(const Program& program);

/// As above, but appends to `row`.
void append_unrolled(const Program& program, std::vector<Instr>& row);

/// Returns the text of an instruction, such as "2F0", "1SEND_B3", "0UPDATE" or "REDUCE_SCALARS". A
/// part > 0 follows a colon, as in "0REDUCE_GRAD:2" or "3SEND_B0:1".
std::string to_string(const Instr& instr);

/// Parses the text of one instruction; overlap pairs are not accepted. Throws InvalidArgument with
/// the text found and the known kinds.
Instr parse_instr(std::string_view cell);

}  // namespace hetu
