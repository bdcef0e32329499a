// The state of the loop while it runs, for its source files: interpreter.cpp (the loop) and
// interpreter_rule.cpp (the run policy).
#pragma once
#include <atomic>
#include <optional>

#include "executor/loop/interpreter.h"
#include "executor/loop/row_messages.h"

namespace hetu {

struct Interpreter::Impl {
  // An instruction that has not ended, and the index of its trace record.
  struct Running {
    std::size_t record;
    Event end;
  };

  Impl(Row bound, Stages& of_worker, const Links& with);
  ~Impl() {
    for (WeightSync* sync : links.syncs) sync->forget(row);
    links.transport.set_reporter({});
    stages.bucket_ready = [](int, int) {};
  }

  // The step of an instruction, its begin after its waits, and its end.
  struct Done {
    int step = 0;
    std::int64_t start_ns = 0;
    Event end;
  };

  // Runs an instruction whose micro-batch id is raised by `raised`, and records it.
  void run(const Action& action, int raised);
  // Returns nullopt for synchronisation, which ends later.
  std::optional<Done> carry_out(const Action& action, const Instr& instr);
  Done compute(const Instr& instr);
  Done update(const Instr& instr);
  Done reduce_scalars(const Instr& instr);
  void synchronise(const Action& action, const Instr& instr);
  template <class Work>
  Done timed(const Instr& instr, const Work& work) const {
    const std::int64_t start = comm::now_ns();
    work();
    return {step_of(instr), start, Event(comm::now_ns())};
  }
  void run_all(const std::vector<Action>& actions, int raised) {
    for (const Action& action : actions) run(action, raised);
  }
  void begin(int of_step, bool asks_to_stop, TraceRecorder* recorder);
  int step_of(const Instr& instr) const { return hetu::step_of(row, step.load(), instr); }
  // Returns the synchronisation that carries out the instruction. Throws Plan if there is none.
  WeightSync& sync_of(const Instr& instr);
  // Blocks until all synchronisation of the stage is complete.
  void wait_for_syncs(int stage);
  void note_running();
  int last_update_step(int stage) const;
  int count_update(int stage);
  // Runs a step by RunPolicy::ForwardBeforeLateGradient.
  void run_by_rule();

  Row row;
  Stages& stages;
  Links links;
  RowMessages messages;
  // Null while nothing is recorded.
  TraceRecorder* trace = nullptr;
  // The current action; null before the first. Atomic, because the transport's reporter reads it
  // from any thread.
  std::atomic<const Action*> position{nullptr};
  std::atomic<int> raised_at{0};  // added to the micro-batch id of the current instruction
  std::atomic<int> step{0};       // first step of the run
  int done = 0;                   // completed repetitions of the body
  std::vector<Running> running;   // in row order
  std::vector<int> updates;       // updates of each stage in this run
};

}  // namespace hetu
