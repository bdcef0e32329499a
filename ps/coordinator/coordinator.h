// The coordinator's rules without its sockets and clocks: who sits where, who is alive, and the
// policy's decisions as messages. Driven by serve_coordinator (ZeroMQ), by local_coordinator.h, and
// by fuzz tests.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ps/coordinator/messages.h"

namespace hetu::ps {

/// What a coordinator needs to know before anyone speaks. Times in seconds.
struct CoordinatorOptions {
  double dead_after_s = kDeadAfterS;  ///< silence of a worker that means death; 0 = never
  /// Is told of each pipeline that the job goes on without, and why.
  std::function<void(int pipeline, const std::string& reason)> on_loss = nullptr;
};

/// Events in, frames out. Times are microseconds of one monotonic clock.
class Coordinator {
 public:
  /// The transport's name of a connection.
  using Peer = std::uint64_t;
  struct Outgoing {
    Peer to = 0;
    Bytes bytes;
  };

  explicit Coordinator(CoordinatorOptions options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  /// Takes a frame. What no worker of this job would send is dropped and counted.
  void receive(Peer from, const std::byte* data, std::size_t bytes, std::int64_t now_us);
  /// Looks after what depends on time alone; call it at wakes_at_us().
  void tick(std::int64_t now_us);
  std::optional<std::int64_t> wakes_at_us() const;

  /// A worker is known to be dead, by its number (heturun sees it end); as if it had been silent.
  void worker_died(int worker, const std::string& reason, std::int64_t now_us);
  /// A pipeline is known to be dead.
  void pipeline_died(int pipeline, const std::string& reason, std::int64_t now_us);

  /// Frames to send since the last call, in order.
  std::vector<Outgoing> take();

  /// True once someone has come and everyone who came and lives has left.
  bool finished() const;
  /// Why the job cannot go on; "" while it can.
  const std::string& failure() const { return failure_; }
  std::int64_t dropped_frames() const { return dropped_; }

 private:
  struct Seat;
  struct Job;

  void take_hello(Peer from, const Hello& hello, std::int64_t now_us);
  void take_message(Seat& seat, const FromWorker& message, std::int64_t now_us);
  void take_begin(Seat& seat, const RunStart& run, std::int64_t now_us);
  void take_ask(Seat& seat, std::int64_t update, std::int64_t now_us);
  void begin_if_all_have(std::int64_t now_us);
  void hand_out();
  void release_if_all_have_come();
  void confirm_average(Seat& seat);
  void introduce(int stage);
  void check_heartbeats(std::int64_t now_us);
  void lose(int pipeline, const std::string& reason, std::int64_t now_us);
  Lost loss_of(int pipeline, const std::string& reason);
  bool is_done_with_it(int worker) const;
  void begin_next_job_if_over(std::int64_t now_us);
  void fail_all(Code code, const std::string& text);
  void send(Peer to, const FromCoordinator& message);
  void drop(const std::string& why);

  CoordinatorOptions options_;
  /// Pipelines that died before the first Hello of a training, and how.
  std::map<int, std::string> died_before_;
  std::unique_ptr<Job> job_;  ///< none before the first Hello
  std::map<Peer, Seat*> seat_of_;
  std::vector<std::pair<Peer, Hello>> early_;  ///< who wants the next job before this one is over
  std::vector<Outgoing> outgoing_;
  std::string failure_;
  Code failure_code_ = Code::Comm;
  std::int64_t dropped_ = 0;
  std::int64_t looked_us_ = 0;  ///< last check for silence
};

}  // namespace hetu::ps
