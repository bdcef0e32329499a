// The schedule IR: who does what, in which order. Generators make it, lowering widens it, verifier, simulator,
// interpreter and renderers read it. Plain data: no method's name has a meaning outside pipeline/generate.
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
  ReduceGrad,     ///< REDUCE_GRAD: gradient sum over all copies of a stage; part = bucket; no micro
  ReduceScalars,  ///< REDUCE_SCALARS: norm, overflow, loss over all workers; no stage, no micro
  Update,         ///< UPDATE: optimizer step of a stage; no micro
};

/// One instruction. 16 bytes: a plan of 1,024 workers x 4,096 micro-batches fits in memory.
struct Instr {
  Kind kind = Kind::Forward;
  bool with_next = false;   ///< runs as one with the instruction after it, e.g. `(0F1;3B0)OVERLAP_F_B`
  std::int16_t part = 0;    ///< bucket of a reduction, extra edge of a send or receive, piece of other work
  std::int32_t stage = 0;   ///< index into Schedule::placements; -1 where the kind has none
  std::int32_t micro = -1;  ///< global micro-batch id; -1 where the kind has none

  bool operator==(const Instr&) const = default;
};

/// Where a copy of a model stage stands. One worker today; a list so that tensor parallelism fits later.
struct Placement {
  std::vector<int> workers;
  int model_stage = 0;
  int replica = 0;  ///< copy of the model within one pipeline (Chimera, DualPipe: 2 and more)

  bool operator==(const Placement&) const = default;
};

/// What a worker does: prologue, then body `repeat` times (micro ids raised by `shift` each time), then drain.
struct Program {
  std::vector<Instr> prologue;
  std::vector<Instr> body;
  int repeat = 0;
  int shift = 0;
  std::vector<Instr> drain;

  bool operator==(const Program&) const = default;
};

/// Which weight version a forward uses: the newest, the one before it (pipedream-2bw), or a wave's (hetpipe).
enum class VersionRule : std::uint8_t { Newest, Lag1, Wave };

/// One pipeline's plan for one step (synchronous methods) or for `steps` steps (asynchronous ones). Several pipelines
/// side by side run the same plan; worker w of pipeline d is then the global worker d * workers.size() + w.
struct Schedule {
  std::string method;
  int stages = 0;         ///< workers of one pipeline, P
  int micro_batches = 0;  ///< per step, over all directions, M
  int chunks = 1;         ///< model stages per worker, V
  int steps = 1;
  bool half_micros = false;  ///< backward ids are half-micros 2i, 2i+1 (chimera --concat halving)
  VersionRule version_rule = VersionRule::Newest;
  int most_versions = 1;  ///< weight versions alive at once that the plan may need on any placement
  std::vector<Placement> placements;
  std::vector<Program> workers;

  bool operator==(const Schedule&) const = default;
};

/// Number of model stages: the highest model_stage + 1.
int model_stages(const Schedule& schedule);

/// The placement id of (model stage, replica), or -1.
int placement_of(const Schedule& schedule, int model_stage, int replica);

/// A worker's program as one flat row: prologue, repeated body, drain.
std::vector<Instr> unroll(const Program& program);

/// "2F0", "1SEND_B3", "0UPDATE", "REDUCE_SCALARS", "0REDUCE_GRAD" (a part > 0 as "0REDUCE_GRAD:2").
std::string to_string(const Instr& instr);

/// The inverse of to_string for one cell without an overlap pair. Throws InvalidArgument: what was found, what is known.
Instr parse_instr(std::string_view cell);

}  // namespace hetu
