// The loop that runs a worker's row of a schedule: training and `hetu rehearse` share it. It knows
// kinds of instructions, not methods; what an instruction computes is the stages', how copies of a
// stage agree is a WeightSync's.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/compile/row.h"
#include "executor/direct/direct_links.h"
#include "executor/loop/straggler_injector.h"
#include "executor/loop/trace_recorder.h"
#include "executor/stage/stages.h"
#include "executor/sync/weight_sync.h"
#include "net/transport/transport.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Runs one worker's row, step after step. Receives are posted ahead; sends never block compute (a
/// buffer's send is awaited only before the buffer is overwritten); weights are synchronised beside
/// compute, which is awaited before REDUCE_SCALARS and UPDATE. An instruction's end is an event:
/// sends and the times of a trace follow it. Errors of waits name the instruction and the step.
/// Stages and links must outlive it.
class Interpreter {
 public:
  struct Links {
    comm::Transport& transport;
    std::vector<WeightSync*> syncs;         ///< one for each kind of synchronisation in the row
    int receive_window = 8;                 ///< receives posted ahead of the instruction that runs
    StragglerInjector* injector = nullptr;  ///< of compute; must outlive the interpreter
    DirectLinks* direct = nullptr;          ///< of messages; null: the transport carries them
  };
  Interpreter(Row row, Stages& stages, const Links& links);
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
  /// whose first step is `step`. `asks_to_stop`: see Stages::begin_run.
  void start(int step, Repetitions known, TraceRecorder* trace = nullptr,
             bool asks_to_stop = false);
  /// More is known of the run; receives are posted ahead as far as that goes.
  void expect(Repetitions known);
  /// The body once more; at most as often as known.
  void repeat();
  /// The drain, after all repetitions.
  void drain();
  /// Sleeps until every send is done: before the stages' buffers go away.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hetu
