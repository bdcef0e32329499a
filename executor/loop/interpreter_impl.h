// What the loop keeps while it runs, for the files that make it up: interpreter.cpp the loop,
// interpreter_messages.cpp its messages, interpreter_rule.cpp the run policy.
#pragma once
#include <atomic>
#include <deque>

#include "executor/loop/interpreter.h"

namespace hetu {

struct Interpreter::Impl {
  struct Sending {
    std::unique_ptr<comm::Request> request;
    const void* address;
    Instr instr;
    int step;
  };
  // A send that was reached before what it ships was there.
  struct Due {
    const Action* action;
    Instr instr;
    Buffer buffer;
  };
  // An instruction whose end is still to come, and where the trace has it.
  struct Running {
    std::size_t record;
    Event end;
  };
  // A place in the run: prologue, body or drain; the repetition matters in the body.
  struct Cursor {
    int part = 0;
    int repetition = 0;
    std::size_t index = 0;
  };
  // What comes in, in one direction.
  struct Way {
    std::vector<const Action*> receives[3];             // of each part
    Cursor next;                                        // of `receives`: the first not posted
    std::deque<std::unique_ptr<comm::Request>> posted;  // not yet awaited, in row order
  };

  Impl(Row bound, Stages& of_worker, const Links& with);
  ~Impl() {
    for (WeightSync* sync : links.syncs) sync->forget(row);
    links.transport.set_reporter({});
    stages.bucket_ready = [](int, int) {};
  }

  void run(const Action& action, int raised);
  Event carry_out(const Action& action, const Instr& instr, int of_step);
  void run_all(const std::vector<Action>& actions, int raised) {
    for (const Action& action : actions) run(action, raised);
  }
  void begin(int of_step, bool asks_to_stop, TraceRecorder* recorder);
  int drain_raised() const { return (expected - row.repeat) * row.shift; }
  int step_of(const Instr& instr) const {
    return row.micros_per_step > 0 && instr.micro >= 0
               ? step.load() + instr.micro / row.micros_per_step
               : step.load();
  }
  Way& way_of(Kind recv) { return ways[recv == Kind::RecvForward ? 0 : 1]; }
  const Action* next_receive(Way& way, int& raised) const;
  void post_ahead(Way& way);
  void post_ahead() {
    for (Way& way : ways) post_ahead(way);
  }
  bool arrived(Kind recv, std::size_t count);
  bool has_room(const Instr& compute);
  void await_receive(const Instr& instr);
  void start_send(const Action& action, const Instr& instr);
  void start_due_sends(bool wait);
  void post_send(const Due& due);
  void await_sends_of(const void* address);
  void reap_sends();
  void await_send(Sending& sending);
  void before_compute(const Instr& instr);
  WeightSync& sync_of(const Instr& instr);
  void wait_for_syncs(int stage);
  void note_running();
  int last_update_step(int stage) const;
  int count_update(int stage);
  void run_by_rule();

  Row row;
  Stages& stages;
  Links links;
  TraceRecorder* trace = nullptr;
  std::atomic<const Action*> position{nullptr};
  std::atomic<int> raised_at{0};  // what is added to the micro-batch id there
  std::atomic<int> step{0};       // the run's first
  int expected = 0;               // repetitions of the body known so far
  bool all_expected = false;
  int done = 0;  // repetitions

  Way ways[2];                   // forward, backward
  std::vector<Sending> sends;    // in order of their start
  std::deque<Due> due;           // in row order
  std::vector<Running> running;  // in row order
  std::vector<int> updates;      // of each stage in this run
  std::vector<const void*> addresses;
};

}  // namespace hetu
