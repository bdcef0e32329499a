// What the loop keeps while it runs, for the files that make it up: interpreter.cpp the loop,
// interpreter_messages.cpp its messages, interpreter_sums.cpp its gradient sums and averages,
// interpreter_rule.cpp the run policy.
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
  // The sums of one REDUCE_GRAD of the row, time after time.
  struct Reduction {
    const Action* action;
    std::vector<int> buckets;
    int times = 0;  // reached in this run
    // Of the next time: per bucket, null before its start, which may come before the loop does.
    std::vector<std::shared_ptr<comm::Sum>> sums;
    std::int64_t start_ns = 0;
  };
  struct Started {  // reached and not awaited
    Instr instr;
    int step;
    std::vector<std::shared_ptr<comm::Sum>> sums;
    std::int64_t start_ns;
  };
  struct Averaging {  // begun and not awaited
    Instr instr;
    int step;
    std::int64_t start_ns;
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

  Impl(Row bound, StageRunner& stage_runner, const Links& with);
  ~Impl() {
    links.transport.set_reporter({});
    runner.bucket_ready = [](int, int) {};
  }

  void run(const Action& action, int raised);
  void run_all(const std::vector<Action>& actions, int raised) {
    for (const Action& action : actions) run(action, raised);
  }
  void begin(int of_step, TraceRecorder* recorder);
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
  void await_sends_of(const void* address);
  void reap_sends();
  void await_send(Sending& sending);
  void before_compute(const Instr& instr);
  Reduction* find_reduction(const Instr& instr);
  void start_bucket(int stage, int bucket);
  void start_sum(Reduction& reduction, std::size_t k);
  void reach_reduction(const Instr& instr);
  void await_reductions();
  void await_average(int stage);
  int count_update(int stage);
  void run_by_rule();

  Row row;
  StageRunner& runner;
  Links links;
  TraceRecorder* trace = nullptr;
  std::atomic<const Action*> position{nullptr};
  std::atomic<int> raised_at{0};  // what is added to the micro-batch id there
  std::atomic<int> step{0};       // the run's first
  int expected = 0;               // repetitions of the body known so far
  bool all_expected = false;
  int done = 0;  // repetitions

  Way ways[2];                        // forward, backward
  std::vector<Sending> sends;         // in order of their start
  std::vector<Reduction> reductions;  // in row order
  std::vector<Started> started;
  std::vector<Averaging> averaging;
  std::vector<int> updates;  // of each stage in this run
  std::vector<const void*> addresses;
};

}  // namespace hetu
