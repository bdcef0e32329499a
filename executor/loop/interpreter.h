// The loop that runs a worker's row of a schedule: training and `hetu rehearse` share it. It knows
// kinds of instructions, not methods; what an instruction computes is a StageRunner's.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/comm/collective.h"
#include "executor/comm/transport.h"
#include "executor/loop/straggler_injector.h"
#include "executor/loop/trace_recorder.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// An instruction of a row together with whom it concerns; made by bind_row.
struct Action {
  Instr instr;
  int peer = -1;       ///< SEND_*, RECV_*: the global worker at the other end
  int tag_stage = -1;  ///< a number for the stage that all parties of the message or sum share
  int tag_part = 0;
  comm::Group group;  ///< REDUCE_GRAD: global workers that take part, in the order of the sum
  bool sums_follow = false;  ///< a gradient: the sums of its stage stand directly after it
};

/// A worker's program with every action bound: prologue, body, drain as in Program; the drain's
/// micro-batch ids are those of `repeat` repetitions.
struct Row {
  std::vector<Action> prologue;
  std::vector<Action> body;
  std::vector<Action> drain;
  int repeat = 0;
  int shift = 0;            ///< of micro-batch ids from one repetition to the next
  int micros_per_step = 0;  ///< 0: every id belongs to the step that the run starts with
  /// RunPolicy::ForwardBeforeLateGradient; such a row is all drain.
  bool forwards_first = false;
};

/// A message or gradient in memory, owned by the runner.
struct Buffer {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// One gradient bucket: `count` elements of `dtype`, summed in place over the group.
struct Bucket {
  DType dtype = DType::Float32;
  void* data = nullptr;
  std::int64_t count = 0;
};

/// What one worker knows of a step once it has updated its stage: summed over its micro-batches.
struct StepReport {
  int step = 0;
  std::vector<double> fetches;  ///< of the graph, in its order; 0 where another stage has it
  double squares = 0;           ///< of the gradient of the parameters that this worker counts
};

/// What a worker does at each compute instruction, and where its messages lie. `stage` and `micro`
/// are those of the instruction: placement id and global micro-batch id. All calls come from the
/// thread that runs the interpreter.
class StageRunner {
 public:
  virtual ~StageRunner() = default;

  virtual void begin_step(int /*step*/) {}
  virtual void forward(int stage, int micro) = 0;
  virtual void backward(int stage, int micro) = 0;
  virtual void input_grad(int stage, int micro) = 0;
  virtual void weight_grad(int stage, int micro) = 0;
  virtual void recompute(int stage, int micro) = 0;
  /// `step` counts up by one with each update of a stage in a run of several.
  virtual void update(int stage, int step) = 0;
  /// PARTIAL_REDUCE: begins to average the stage's weights, as they are after this update, with
  /// other pipelines'. They may change before the next update only if this function changes them.
  virtual void begin_average(int /*stage*/, int /*step*/) {}
  /// Sleeps until that average is done, and returns the moment: before the stage's next update, and
  /// at the end of a run.
  virtual std::int64_t end_average(int /*stage*/) { return comm::now_ns(); }
  /// Reports of a run of several updates since the last call, in the order of their steps; see
  /// repeated_run.h.
  virtual std::vector<StepReport> take_reports() { return {}; }
  /// REDUCE_SCALARS: all gradient sums of this worker are complete. Blocks; uses comm::sum_f64 and
  /// the like.
  virtual void reduce_scalars(comm::Transport& transport, int step) = 0;

  /// What a SEND_F or SEND_B ships. Its producer has run; it stays unchanged until the send is
  /// done, see `overwrites`.
  virtual Buffer out_buffer(const Instr& send) = 0;
  /// Where a RECV_F or RECV_B lands, or nothing while that memory is still in use: receives are
  /// posted ahead, in row order, as far as this allows. Called again until it gives a buffer; must
  /// give one when the loop reaches the instruction. The buffer belongs to the message from then on
  /// until `received`.
  virtual std::optional<Buffer> in_buffer(const Instr& recv) = 0;
  /// A receive is complete; arrival_ns is comm::now_ns() of the moment its last byte came.
  virtual void received(const Instr& /*recv*/, std::int64_t /*arrival_ns*/) {}
  /// Appends the addresses (Buffer::data) of earlier out_buffers that this compute instruction is
  /// about to overwrite; the loop waits for their sends first, and for no others.
  virtual void overwrites(const Instr& /*compute*/, std::vector<const void*>& /*addresses*/) {}

  /// Buckets of a REDUCE_GRAD, numbered uniquely within the stage (below 2048) and alike on every
  /// copy of it.
  virtual std::vector<int> buckets(const Instr& reduce) = 0;
  virtual Bucket bucket(int stage, int bucket) = 0;
  /// The sum of every bucket of a REDUCE_GRAD is complete since done_ns. Returns the moment that
  /// the trace shows as its end.
  virtual std::int64_t reduced(const Instr& /*reduce*/, std::int64_t done_ns) { return done_ns; }

  /// Set by the interpreter at the start of a step. A runner may call it during the last backward
  /// of a stage before an update, once the bucket is final: where the plan has the sums of the
  /// stage directly after that backward, its sum then starts at once, under the rest of it.
  /// Otherwise it starts at the REDUCE_GRAD.
  std::function<void(int stage, int bucket)> bucket_ready = [](int, int) {};
};

/// The row of one worker of a lowered plan, each message with its peer and each gradient sum with
/// its group. The same plan runs on `pipelines` pipelines side by side: worker w of pipeline d is
/// global worker d * plan.stages + w.
Row bind_row(const Schedule& lowered, int global_worker, int pipelines);

/// Runs one worker's row, step after step. Receives are posted ahead; sends never block compute (a
/// buffer's send is awaited only before the buffer is overwritten); gradient sums run beside
/// compute and are awaited before REDUCE_SCALARS and UPDATE. Errors of waits name the instruction
/// and the step. Runner and links must outlive it.
class Interpreter {
 public:
  struct Links {
    comm::Transport& transport;
    comm::Reducer& reducer;
    int receive_window = 8;                 ///< receives posted ahead of the instruction that runs
    StragglerInjector* injector = nullptr;  ///< of compute; must outlive the interpreter
  };
  Interpreter(Row row, StageRunner& runner, const Links& links);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// Runs the row once: start, the body as often as the row says, drain. Sends of the step may
  /// still be under way when it returns.
  void run_step(int step, TraceRecorder* trace = nullptr);

  /// How often the body will run in a run: `count` times, or at least so often if not `all`.
  struct Repetitions {
    int count = 0;
    bool all = true;
  };
  /// The same in pieces, for a body that repeats until told otherwise. start: the prologue of a run
  /// whose first step is `step`.
  void start(int step, Repetitions known, TraceRecorder* trace = nullptr);
  /// More is known of the run; receives are posted ahead as far as that goes.
  void expect(Repetitions known);
  /// The body once more; at most as often as known.
  void repeat();
  /// The drain, after all repetitions.
  void drain();
  /// Sleeps until every send is done: before the runner's buffers go away.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hetu
