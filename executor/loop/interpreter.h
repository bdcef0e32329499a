// The loop that runs a worker's row of a schedule, shared by training and `hetu rehearse`. It knows
// kinds of instructions, not methods. Stages define what an instruction computes, and a WeightSync
// defines how copies of a stage agree.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/compile/row.h"
#include "executor/direct/direct_links.h"
#include "executor/feed/feeds.h"
#include "executor/loop/straggler_injector.h"
#include "executor/loop/trace_recorder.h"
#include "executor/stage/stages.h"
#include "executor/sync/weight_sync.h"
#include "net/transport/transport.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Runs one worker's row, step after step.
///
/// Receives are posted ahead. Sends never block compute: a buffer's send is awaited only before the
/// buffer is overwritten. Weight synchronisation overlaps with compute, and is awaited before
/// REDUCE_SCALARS and UPDATE. The end of an instruction is an event, which sends and the times of a
/// trace follow. Errors of waits name the instruction and the step. Stages and links must outlive
/// the interpreter.
class Interpreter {
 public:
  /// The connections of a worker, and the objects that act on its instructions.
  struct Links {
    comm::Transport& transport;
    std::vector<WeightSync*> syncs;         ///< one per kind of synchronisation in the row
    int receive_window = 8;                 ///< receives posted ahead of the running instruction
    StragglerInjector* injector = nullptr;  ///< delays compute; must outlive the interpreter
    DirectLinks* direct = nullptr;          ///< carries messages; null: the transport does
    Feeds* feeds = nullptr;                 ///< the stages' batches; null: they need none
  };
  Interpreter(Row row, Stages& stages, const Links& links);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// Runs the row once: start, the body as often as the row has it, drain. Sends of the step may
  /// still be in progress when it returns.
  void run_step(int step, TraceRecorder* trace = nullptr);

  /// The number of times that the body runs: exactly `count`, or at least `count` unless `all`.
  struct Repetitions {
    int count = 0;
    bool all = true;
  };
  /// Runs the prologue of a run whose first step is `step`. With expect(), repeat() and drain() it
  /// replaces run_step() for a body whose number of repetitions is not known in advance.
  /// `asks_to_stop`: see Stages::begin_run.
  void start(int step, Repetitions known, TraceRecorder* trace = nullptr,
             bool asks_to_stop = false);
  /// Updates the known repetitions of the run. Receives are posted ahead as far as these are known.
  void expect(Repetitions known);
  /// Runs the body once more. At most as many calls are allowed as repetitions are known.
  void repeat();
  /// Runs the drain, after all repetitions.
  void drain();
  /// Blocks until every send is done. Call it before the stages' buffers are freed.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hetu
