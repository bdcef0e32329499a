// Messages between workers: the one interface over threads of one process (inproc.h) and MPI
// processes (mpi.h), with common rules for order, deadlines and error text. Read by collective.h
// and executor/loop/interpreter.h.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

namespace hetu::comm {

/// What a message is, packed into 64 bits: phase 1 | kind 6 | part 11 | stage 14 | micro 18 |
/// step 14. Messages of one tag between two workers arrive in the order they were sent; messages of
/// different tags never meet, in whatever order the receives are posted. Values that do not fit
/// wrap, which the order of arrival makes harmless.
using Tag = std::uint64_t;

/// Packs a tag; `kind` is free to the caller (the interpreter uses hetu::Kind).
constexpr Tag make_tag(int kind, int stage, int micro, int part, int step) {
  const auto bits = [](int value, int width) {
    return static_cast<Tag>(static_cast<std::uint32_t>(value)) & ((Tag{1} << width) - 1);
  };
  return bits(kind, 6) << 57 | bits(part, 11) << 46 | bits(stage, 14) << 32 |
         bits(micro, 18) << 14 | bits(step, 14);
}

/// The same tag in its second phase: collectives send pieces in phase 0 and results in phase 1.
constexpr Tag second_phase(Tag tag) { return tag | Tag{1} << 63; }

/// Monotonic nanoseconds of this host; the clock of every time in this library.
std::int64_t now_ns();

/// Names what a wait is for, formatted only on failure. Refers to its argument: pass it as a
/// function argument only.
class What {
 public:
  What(const char* text) : object_(text), call_(&literal) {}  // NOLINT: meant to be implicit
  template <class F, class = std::enable_if_t<std::is_invocable_r_v<std::string, const F&>>>
  What(const F& describe)  // NOLINT: meant to be implicit
      : object_(&describe),
        call_([](const void* f) { return std::string((*static_cast<const F*>(f))()); }) {}
  std::string text() const { return call_(object_); }

 private:
  static std::string literal(const void* text) { return static_cast<const char*>(text); }
  const void* object_;
  std::string (*call_)(const void*);
};

/// Where completions are announced. Several requests may share one, so that one thread waits for
/// any of them.
struct Signal {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t count = 0;  ///< completions so far; guarded by mutex
};

class Rendezvous;
class Transport;

/// One message under way. The buffer is the caller's and must live until the request is done;
/// dropping a request that is not done withdraws it (a receive that nothing has matched) or waits
/// until the buffer is no longer touched.
class Request {
 public:
  ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  /// True once the message is sent or received, or has failed.
  bool done() const;
  /// True once the message has failed; Transport::check throws why.
  bool failed() const;
  /// now_ns() at completion; 0 before.
  std::int64_t completed_ns() const;

  bool is_send() const { return is_send_; }
  int peer() const { return peer_; }
  Tag tag() const { return tag_; }
  std::size_t bytes() const { return bytes_; }

  // For transports only.
  const std::byte* source() const { return source_; }
  std::byte* target() const { return target_; }
  /// Announces success (empty error) or failure. Nothing may touch the request or its buffer
  /// afterwards.
  void complete(std::string error = {});
  int parts = 0;  ///< pieces of a large message still under way; the progress thread's own

 private:
  friend class Transport;
  enum class State : std::uint8_t { Pending, Done, Failed };
  Request(Transport& owner, bool is_send, int peer, Tag tag, Signal* signal)
      : owner_(owner),
        signal_(signal ? signal : &own_),
        tag_(tag),
        peer_(peer),
        is_send_(is_send) {}

  Transport& owner_;
  Signal* signal_;
  mutable Signal own_;
  Tag tag_;
  int peer_;
  bool is_send_;
  State state_ = State::Pending;  // guarded by signal_->mutex, as are the two after it
  std::int64_t completed_ns_ = 0;
  std::string error_;
  const std::byte* source_ = nullptr;
  std::byte* target_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Deadlines and sizes; times in seconds.
struct Options {
  double timeout_s = 300;   ///< deadline of every wait (HETU_TIMEOUT)
  double heartbeat_s = 1;   ///< between signs of life; 0 = none
  double dead_after_s = 8;  ///< silence after which a worker counts as dead
  std::size_t inline_bytes =
      16384;        ///< messages up to this are copied at once, larger ones wait for their receive
  int number = -1;  ///< of this worker, where it is not its rank: each of 0…n-1 once
  int progress_fd = -1;             ///< where heturun hears that MPI starts here (HETU_PROGRESS_FD)
  bool one_host = false;            ///< all workers are known to be on this host
  bool local_doorbells = true;      ///< false: treat every worker as if on another host (tests)
  std::shared_ptr<Rendezvous> met;  ///< the processes of the job, where no MPI has started them
  std::function<void()> while_waiting = {};  ///< called while workers come; may throw (Ctrl-C)
};

/// One worker's end of the links to all workers. send, recv and wait may be called from several
/// threads; nobody needs to call anything for messages to advance. After an Error with Code::Comm
/// the transport is dead.
class Transport {
 public:
  virtual ~Transport() = default;

  int worker() const { return worker_; }
  int workers() const { return workers_; }
  const Options& options() const { return options_; }
  /// Host name of a worker, as that worker states it.
  virtual const std::string& host_of(int worker) const = 0;
  /// True if the worker reads the same now_ns() clock.
  virtual bool same_clock(int worker) const = 0;

  /// Starts sending; never blocks. Completions go to `signal` if given, which must outlive the
  /// request. Peer = self is allowed. Throws InvalidArgument on a peer that does not exist.
  std::unique_ptr<Request> send(int peer, Tag tag, const void* data, std::size_t bytes,
                                Signal* signal = nullptr);
  /// Starts receiving exactly `bytes` bytes; never blocks.
  std::unique_ptr<Request> recv(int peer, Tag tag, void* data, std::size_t bytes,
                                Signal* signal = nullptr);

  /// From here on a message whose tag has this kind carries one byte, however long it is; the rest
  /// of what is received is zero. To take communication out of a run, whose results mean nothing
  /// then: on every worker, before any such message.
  void carry_one_byte(int kind);

  /// Sleeps until the request is done. Throws Timeout (naming peer, `what` and what the peer last
  /// reported) after options().timeout_s, Comm if the peer or the link failed or the sizes of the
  /// two sides differ.
  void wait(Request& request, What what);
  /// Throws what wait would throw for a request that is done and failed; for those who wait on a
  /// Signal.
  void check(Request& request, What what);
  /// Throws the Timeout error of wait; for those who wait on a Signal.
  [[noreturn]] void timed_out(const Request& request, What what);

  /// How this worker answers "where do you stand?", which a peer asks when its wait times out.
  /// Called from any thread; an empty function withdraws it.
  void set_reporter(std::function<std::string()> reporter);

  /// Ends the job: every other worker's waits fail with `reason`. Over MPI this ends the process
  /// with `status`, and the reason, unless it is "" because it was told already, goes to the log.
  virtual void abort(int status, const std::string& reason) = 0;

  /// Leaves the job in order, which nothing may be sent or awaited in afterwards: returns once
  /// every worker has left. Whoever still waits for this worker fails at once, with `note`, which
  /// says where it left ("" : after all its work). Throws what broke the links, or Timeout. Over
  /// MPI, the end of MPI too; once per job, later calls do nothing.
  virtual void leave(const std::string& /*note*/) {}

  /// Leaves a job that cannot go on, at once and without an end of the process, so that its own
  /// way to the end may say why: every other worker's waits fail with `reason`.
  virtual void give_up(const std::string& reason) { abort(0, reason); }

  // For transports only.
  /// The text of a message that is not as long as its receive; empty if it is.
  static std::string size_error(int receiver, std::size_t expected, int sender, std::size_t sent);

 protected:
  Transport(int worker, int workers, Options options)
      : worker_(worker), workers_(workers), options_(std::move(options)) {}

  virtual void post(Request& request) = 0;
  virtual void cancel(Request& request) = 0;
  /// What the peer reports within about a second, or "".
  virtual std::string ask_position(int peer) = 0;
  std::string own_position();

 private:
  friend class Request;
  void check_peer(int peer) const;
  std::size_t carried(Tag tag, std::size_t bytes) const;
  int worker_;
  int workers_;
  Options options_;
  std::uint64_t one_byte_ = 0;  // a bit per kind of tag
  std::mutex reporter_mutex_;
  std::function<std::string()> reporter_;
};

}  // namespace hetu::comm
