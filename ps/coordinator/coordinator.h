// The coordinator's rules, without its sockets and clocks: the workers' slots, which workers are
// alive, and the policy's decisions as messages. Driven by serve_coordinator (ZeroMQ), by
// local_coordinator.h, and by fuzz tests.
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

/// Options of a coordinator. Times are in seconds.
struct CoordinatorOptions {
  double dead_after_s = kDeadAfterS;  ///< silence after which a worker is dead; 0: never
  /// Called for each pipeline that the job continues without, with the reason.
  std::function<void(int pipeline, const std::string& reason)> on_loss = nullptr;
};

/// A state machine: events in, frames out. Times are microseconds of one monotonic clock.
class Coordinator {
 public:
  /// The transport's id of a connection.
  using Peer = std::uint64_t;
  struct Outgoing {
    Peer to = 0;
    Bytes bytes;
  };

  explicit Coordinator(CoordinatorOptions options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  /// Processes a frame. Drops and counts a frame that no worker of this job would send.
  void receive(Peer from, const std::byte* data, std::size_t bytes, std::int64_t now_us);
  /// Handles timeouts of the policy and silent workers. Call it at wakes_at_us().
  void tick(std::int64_t now_us);
  /// Returns the time of the next tick(), or nullopt if none is needed.
  std::optional<std::int64_t> wakes_at_us() const;

  /// Marks a worker as dead by its number, because heturun saw it end. The effect is that of
  /// silence. The death may precede the worker's Hello or a training. If the job continues without
  /// lost pipelines, it then takes effect with the Hello, which names the pipeline.
  void worker_died(int worker, const std::string& reason, std::int64_t now_us);
  /// Marks a pipeline as dead.
  void pipeline_died(int pipeline, const std::string& reason, std::int64_t now_us);

  /// Returns the frames to send since the last call, in order.
  std::vector<Outgoing> take();

  /// Returns true once at least one worker has come and every worker that is alive has left.
  bool finished() const;
  /// Returns why the job can't continue, or "" if it can.
  const std::string& failure() const { return failure_; }
  /// Returns the number of dropped frames.
  std::int64_t dropped_frames() const { return dropped_; }

 private:
  struct WorkerSlot;
  struct Job;

  void take_hello(Peer from, const Hello& hello, std::int64_t now_us);
  void take_message(WorkerSlot& slot, const FromWorker& message, std::int64_t now_us);
  void take_begin(WorkerSlot& slot, const RunStart& run, std::int64_t now_us);
  void take_ask(WorkerSlot& slot, std::int64_t update, std::int64_t now_us);
  // Begins the run once all living workers have sent BeginRun.
  void begin_if_all_have(std::int64_t now_us);
  // Sends the policy's decisions to their members and logs them.
  void hand_out();
  // Ends the rendezvous once all living workers have arrived.
  void release_if_all_have_come();
  // Records that the worker's last group has completed its average.
  void confirm_average(WorkerSlot& slot);
  // Sends a stage's workers their endpoints once all have connected.
  void introduce(int stage);
  void check_heartbeats(std::int64_t now_us);
  // Ends the job, or loses its pipeline, because the slot's worker died.
  void end_worker(const WorkerSlot& slot, const std::string& reason, std::int64_t now_us);
  // Fails a job that can't lose pipelines if a worker that died has not joined it yet.
  void fail_if_one_never_joins();
  // Continues the job without a pipeline.
  void lose(int pipeline, const std::string& reason, std::int64_t now_us);
  // Returns the updates that a pipeline takes with it.
  Lost loss_of(int pipeline, const std::string& reason);
  bool is_done_with_it(int worker) const;
  // Begins the next training if this one is over and a worker waits.
  void begin_next_job_if_over(std::int64_t now_us);
  // Ends the job with an error for all workers.
  void fail_all(Code code, const std::string& text);
  void send(Peer to, const FromCoordinator& message);
  void drop(const std::string& why);

  CoordinatorOptions options_;
  /// pipelines that died before the first Hello of a training, with the reason
  std::map<int, std::string> died_before_;
  /// workers that died, with the reason
  std::map<int, std::string> dead_workers_;
  std::unique_ptr<Job> job_;  ///< null before the first Hello
  std::map<Peer, WorkerSlot*> slot_of_;
  std::vector<std::pair<Peer, Hello>> early_;  ///< hellos for the next training while this one runs
  std::vector<Outgoing> outgoing_;
  std::string failure_;
  Code failure_code_ = Code::Comm;
  std::int64_t dropped_ = 0;
  std::int64_t looked_us_ = 0;  ///< time of the last check for silent workers
};

}  // namespace hetu::ps
