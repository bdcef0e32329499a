// The messages of a row that is followed: receives posted ahead of it, sends under way behind it.
// Part of interpreter.h, on whose thread all of it runs.
#pragma once
#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "executor/compile/row.h"
#include "executor/direct/direct_links.h"
#include "executor/stage/stages.h"
#include "net/transport/transport.h"

namespace hetu {

/// The step of an instruction in a run whose first step is `first`.
inline int step_of(const Row& row, int first, const Instr& instr) {
  return row.micros_per_step > 0 && instr.micro >= 0 ? first + instr.micro / row.micros_per_step
                                                     : first;
}

class RowMessages {
 public:
  /// `direct`: what carries messages, where the stages' buffers lie in a device's memory; null: the
  /// transport. `window`: receives posted ahead, in each direction. All must outlive it.
  RowMessages(const Row& row, Stages& stages, comm::Transport& transport, DirectLinks* direct,
              int window);

  /// A run begins whose first step is `step`; of it no repetition of the body is known yet.
  void begin(int step);
  /// The body runs `count` times, or at least so often if not `all`.
  void expect(int count, bool all);
  int expected() const { return expected_; }
  bool all_expected() const { return all_expected_; }
  /// What is added to micro-batch ids of the drain.
  int drain_raised() const { return (expected_ - row_.repeat) * row_.shift; }

  /// Posts receives in row order, as far as window, stages and what is known of the run allow.
  void post_ahead() {
    for (Way& way : ways_) post_ahead(way);
  }
  /// Whether the next `count` messages of that kind are there.
  bool arrived(Kind recv, std::size_t count);
  void await_receive(const Instr& instr);

  void send(const Action& action, const Instr& instr);
  /// Sends whose bytes are there; with `wait` all of them, before this worker waits for another
  /// one: what stands before them on the device waits for nobody.
  void start_due_sends(bool wait);
  /// Whether what the instruction makes has a place from which nothing is being sent any more; and
  /// sleeps until it has.
  bool has_room(const Instr& compute);
  void await_room(const Instr& compute);
  /// Sleeps until every send is done.
  void finish();

 private:
  // One that is under way.
  struct Message {
    std::unique_ptr<comm::Request> request;  // null: it goes by direct_
    Event end = {};
    bool done() const { return request ? request->done() : end.done(); }
  };
  struct Sending {
    Message message;
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
  // A place in the run: prologue, body or drain; the repetition matters in the body.
  struct Cursor {
    int part = 0;
    int repetition = 0;
    std::size_t index = 0;
  };
  // What comes in, in one direction.
  struct Way {
    std::vector<const Action*> receives[3];  // of each part
    Cursor next;                             // of `receives`: the first not posted
    std::deque<Message> posted;              // not yet awaited, in row order
  };

  int step_of(const Instr& instr) const { return hetu::step_of(row_, step_, instr); }
  Way& way_of(Kind recv) { return ways_[recv == Kind::RecvForward ? 0 : 1]; }
  const Action* next_receive(Way& way, int& raised) const;
  void post_ahead(Way& way);
  void post_send(const Due& due);
  void await_sends_of(const void* address);
  void reap_sends();
  void await_send(Sending& sending);
  std::int64_t wait(Message& message, comm::What what);

  const Row& row_;
  Stages& stages_;
  comm::Transport& transport_;
  DirectLinks* const direct_;
  const std::size_t window_;
  int step_ = 0;      // the run's first
  int expected_ = 0;  // repetitions of the body known so far
  bool all_expected_ = false;
  Way ways_[2];                 // forward, backward
  std::vector<Sending> sends_;  // in order of their start
  std::deque<Due> due_;         // in row order
  std::vector<const void*> addresses_;
};

}  // namespace hetu
