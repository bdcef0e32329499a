// Messages between workers. Transport is the one interface for threads of one process (inproc.h)
// and for processes (connect.h, zmq.h). All implementations share the rules for order, deadlines
// and error text. Read by collective.h and executor/loop/interpreter.h.
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

/// Identifies a message in 64 bits: phase 1 | kind 6 | part 11 | stage 14 | micro 18 | step 14.
/// Messages of one tag between two workers arrive in the order they were sent. Messages of
/// different tags never match each other's receives, in whatever order the receives are posted.
/// Values that do not fit wrap around; the order of arrival makes this harmless.
using Tag = std::uint64_t;

/// Packs a tag. `kind` is free for the caller to choose; the interpreter uses hetu::Kind, and
/// tag_kinds.h lists the others.
constexpr Tag make_tag(int kind, int stage, int micro, int part, int step) {
  const auto bits = [](int value, int width) {
    return static_cast<Tag>(static_cast<std::uint32_t>(value)) & ((Tag{1} << width) - 1);
  };
  return bits(kind, 6) << 57 | bits(part, 11) << 46 | bits(stage, 14) << 32 |
         bits(micro, 18) << 14 | bits(step, 14);
}

/// Returns the same tag in its second phase. Collectives send pieces in phase 0 and results in
/// phase 1.
constexpr Tag second_phase(Tag tag) { return tag | Tag{1} << 63; }

/// Returns monotonic nanoseconds of this host. All times in this library are on this clock.
std::int64_t now_ns();

/// Names the purpose of a wait, for errors. The text is formatted only on failure. A WaitPurpose
/// refers to its argument, so use it as a function argument only.
class WaitPurpose {
 public:
  WaitPurpose(const char* text) : object_(text), call_(&literal) {}  // NOLINT: meant to be implicit
  template <class F, class = std::enable_if_t<std::is_invocable_r_v<std::string, const F&>>>
  WaitPurpose(const F& describe)  // NOLINT: meant to be implicit
      : object_(&describe),
        call_([](const void* f) { return std::string((*static_cast<const F*>(f))()); }) {}
  std::string text() const { return call_(object_); }

 private:
  static std::string literal(const void* text) { return static_cast<const char*>(text); }
  const void* object_;
  std::string (*call_)(const void*);
};

/// The place where completions are announced. Several requests may share a Signal, so that one
/// thread waits for any of them.
struct Signal {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t count = 0;  ///< completions so far; guarded by mutex
};

class Rendezvous;
class Transport;

/// One send or receive in progress. The caller owns the buffer and must keep it until the request
/// is done. Destroying a request that is not done withdraws it if no message has matched it.
/// Otherwise the destructor waits until nothing touches the buffer.
class Request {
 public:
  ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  /// Returns true once the message is sent or received, or has failed.
  bool done() const;
  /// Returns true once the message has failed. Transport::check throws the reason.
  bool failed() const;
  /// Returns now_ns() at completion, or 0 before.
  std::int64_t completed_ns() const;

  bool is_send() const { return is_send_; }
  int peer() const { return peer_; }
  Tag tag() const { return tag_; }
  std::size_t bytes() const { return bytes_; }

  // For transports only.
  const std::byte* source() const { return source_; }
  std::byte* target() const { return target_; }
  /// Announces success (empty error) or failure. Afterwards nothing may touch the request or its
  /// buffer.
  void complete(std::string error = {});
  int parts = 0;  ///< pieces of a large message in progress; used by the progress thread only

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
  State state_ = State::Pending;  // guarded by signal_->mutex, as are the next two members
  std::int64_t completed_ns_ = 0;
  std::string error_;
  const std::byte* source_ = nullptr;
  std::byte* target_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Deadlines and sizes of a transport. Times are in seconds.
struct Options {
  double timeout_s = 300;   ///< deadline of every wait (HETU_TIMEOUT)
  double heartbeat_s = 1;   ///< interval between heartbeats; 0 sends none
  double dead_after_s = 8;  ///< silence after which a worker counts as dead
  /// Messages of up to this size in bytes are copied at once; larger ones wait for their receive.
  std::size_t inline_bytes = 16384;
  /// Number of this worker if it is not its rank, else -1; numbers are 0…n-1, each once.
  int number = -1;
  /// Pipe that reports to heturun that MPI is starting (HETU_PROGRESS_FD); -1: no pipe.
  int progress_fd = -1;
  bool one_host = false;            ///< all workers are known to be on this host
  bool local_doorbells = true;      ///< false: treat every worker as if on another host (tests)
  std::shared_ptr<Rendezvous> met;  ///< the processes of the job, if MPI did not start them
  /// Called while this worker waits for the others; may throw (Ctrl-C).
  std::function<void()> while_waiting = {};
};

/// One worker's end of the links to all workers. Several threads may call send, recv and wait.
/// Messages advance without any call. After an Error with Code::Comm the transport is unusable.
class Transport {
 public:
  virtual ~Transport() = default;

  int worker() const { return worker_; }
  int workers() const { return workers_; }
  const Options& options() const { return options_; }
  /// Returns the host name of a worker, as that worker states it.
  virtual const std::string& host_of(int worker) const = 0;
  /// Returns true if the worker reads the same now_ns() clock.
  virtual bool same_clock(int worker) const = 0;

  /// Starts a send; never blocks. Completion is announced to `signal`, if given, which must outlive
  /// the request. A worker may send to itself. Throws InvalidArgument if the peer does not exist.
  std::unique_ptr<Request> send(int peer, Tag tag, const void* data, std::size_t bytes,
                                Signal* signal = nullptr);
  /// Starts a receive of exactly `bytes` bytes; never blocks. Otherwise as send().
  std::unique_ptr<Request> recv(int peer, Tag tag, void* data, std::size_t bytes,
                                Signal* signal = nullptr);

  /// Makes all later messages whose tag has this kind carry at most one byte. The rest of the
  /// received buffer is zero. This removes the cost of communication from a run, whose results are
  /// then meaningless. Call it on every worker, before any such message.
  void carry_one_byte(int kind);

  /// Sleeps until the request is done. Throws Timeout after options().timeout_s, and names the
  /// peer, `what`, and the position that the peer last reported. Throws Comm if the peer or the
  /// link failed, or if the sizes of the two sides differ.
  void wait(Request& request, WaitPurpose what);
  /// Throws what wait() would throw for a request that has failed; otherwise returns. For callers
  /// that wait on a Signal.
  void check(Request& request, WaitPurpose what);
  /// Throws the Timeout error of wait(). For callers that wait on a Signal.
  [[noreturn]] void timed_out(const Request& request, WaitPurpose what);

  /// Sets the function that describes this worker's position. A peer asks for the position when its
  /// wait times out. The function is called from any thread; an empty function removes it.
  void set_reporter(std::function<std::string()> reporter);

  /// Ends the job: the waits of all other workers fail with `reason`. Between processes (connect.h)
  /// it also logs the reason and ends this process with `status`, or with the status of an internal
  /// error if `status` is 0. Pass "" as the reason if it was reported before.
  virtual void abort(int status, const std::string& reason) = 0;

  /// Leaves the job in order, and returns once every worker has left. Nothing may be sent or
  /// received afterwards. A worker that still waits for this one fails at once, with `note`. The
  /// note says where this worker left; "" means after all its work. Throws the error that broke the
  /// links, or Timeout. Over MPI it also ends MPI. Later calls do nothing. The
  /// call has an effect for the transports of connect.h only.
  virtual void leave(const std::string& /*note*/) {}

  /// Leaves a job that cannot continue, at once and without ending the process, so that the program
  /// can report the reason itself. The waits of all other workers fail with `reason`.
  virtual void give_up(const std::string& reason) { abort(0, reason); }

  /// Returns the error for a message whose length differs from its receive, or "" if they are
  /// equal. For transports only.
  static std::string size_error(int receiver, std::size_t expected, int sender, std::size_t sent);
  /// Returns this worker's own position.
  std::string own_position();

 protected:
  Transport(int worker, int workers, Options options)
      : worker_(worker), workers_(workers), options_(std::move(options)) {}

  /// Starts a request.
  virtual void post(Request& request) = 0;
  /// Withdraws a request that is not done, or waits until nothing touches its buffer.
  virtual void cancel(Request& request) = 0;
  /// Returns the position that a peer reports within about a second, or "".
  virtual std::string ask_position(int peer) = 0;

 private:
  friend class Request;
  void check_peer(int peer) const;
  // Returns the bytes that a message carries; see carry_one_byte().
  std::size_t carried(Tag tag, std::size_t bytes) const;
  int worker_;
  int workers_;
  Options options_;
  std::uint64_t one_byte_ = 0;  // one bit per kind of tag
  std::mutex reporter_mutex_;
  std::function<std::string()> reporter_;
};

}  // namespace hetu::comm
