// The messages of a running row: receives posted ahead of the current instruction, and sends in
// progress behind it. Part of interpreter.h; all calls come from the interpreter's thread.
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

/// Returns the step of an instruction in a run whose first step is `first`.
inline int step_of(const Row& row, int first, const Instr& instr) {
  return row.micros_per_step > 0 && instr.micro >= 0 ? first + instr.micro / row.micros_per_step
                                                     : first;
}

/// Posts, starts and awaits the messages of one worker's row.
class RowMessages {
 public:
  /// `direct` carries messages if the stages' buffers are in device memory; if null, the transport
  /// does. `window` is the number of receives posted ahead in each direction. All arguments must
  /// outlive the object.
  RowMessages(const Row& row, Stages& stages, comm::Transport& transport, DirectLinks* direct,
              int window);

  /// Begins a run whose first step is `step`, with no known repetitions of the body.
  void begin(int step);
  /// Sets the repetitions of the body: exactly `count`, or at least `count` unless `all`.
  void expect(int count, bool all);
  int expected() const { return expected_; }
  bool all_expected() const { return all_expected_; }
  /// Returns the number that is added to micro-batch ids of the drain.
  int drain_raised() const { return (expected_ - row_.repeat) * row_.shift; }

  /// Posts receives in row order, as far as the window, the stages' buffers and the known part of
  /// the run allow.
  void post_ahead() {
    for (Direction& direction : directions_) post_ahead(direction);
  }
  /// Returns true if the next `count` messages of that kind have arrived.
  bool arrived(Kind recv, std::size_t count);
  /// Blocks until the message of a receive has arrived, and passes it to the stages.
  void await_receive(const Instr& instr);

  /// Queues a send and starts it once its data is ready.
  void send(const Action& action, const Instr& instr);
  /// Starts queued sends whose data is ready. With `wait`, waits for the data and starts all of
  /// them; with `direct`, the device waits for the data instead. Call it with `wait` before this
  /// worker waits for another one. The wait is safe, because the device work before a queued send
  /// waits for no other worker.
  void start_due_sends(bool wait);
  /// Returns true if no send still reads the buffers that the instruction will overwrite.
  /// await_room() blocks until that holds.
  bool has_room(const Instr& compute);
  void await_room(const Instr& compute);
  /// Blocks until every send is done.
  void finish();

 private:
  // A message in progress.
  struct Message {
    std::unique_ptr<comm::Request> request;  // null: direct_ carries the message
    Event end = {};
    bool done() const { return request ? request->done() : end.done(); }
  };
  struct Sending {
    Message message;
    const void* address;
    Instr instr;
    int step;
  };
  // A send whose data was not ready when the loop came to it.
  struct Due {
    const Action* action;
    Instr instr;
    Buffer buffer;
  };
  // A position in the run: prologue, body or drain. The repetition applies to the body only.
  struct Cursor {
    int part = 0;
    int repetition = 0;
    std::size_t index = 0;
  };
  // The incoming messages of one direction.
  struct Direction {
    std::vector<const Action*> receives[3];  // receives of each part
    Cursor next;                             // the first receive that is not posted
    std::deque<Message> posted;              // posted and not yet awaited, in row order
  };

  int step_of(const Instr& instr) const { return hetu::step_of(row_, step_, instr); }
  Direction& direction_of(Kind recv) { return directions_[recv == Kind::RecvForward ? 0 : 1]; }
  const Action* next_receive(Direction& direction, int& raised) const;
  void post_ahead(Direction& direction);
  void post_send(const Due& due);
  void await_sends_of(const void* address);
  void reap_sends();
  void await_send(Sending& sending);
  std::int64_t wait(Message& message, comm::WaitPurpose what);

  const Row& row_;
  Stages& stages_;
  comm::Transport& transport_;
  DirectLinks* const direct_;
  const std::size_t window_;
  int step_ = 0;      // first step of the run
  int expected_ = 0;  // known repetitions of the body
  bool all_expected_ = false;
  Direction directions_[2];     // forward, backward
  std::vector<Sending> sends_;  // in the order in which they were started
  std::deque<Due> due_;         // in row order
  std::vector<const void*> addresses_;
};

}  // namespace hetu
