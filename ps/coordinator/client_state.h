// The state of a client of the coordinator, independent of its transport: the open request, the
// answer, and the failure. Base class of the clients over ZeroMQ and within a process.
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>

#include "ps/coordinator/messages.h"

namespace hetu::ps {

/// A GroupClient without its transport. It sends frames with post() and receives them with take().
class ClientState : public GroupClient {
 public:
  void begin_run(const RunStart& run) override;
  void request(std::int64_t update) override;
  void stop_soon() override;
  std::optional<Answer> poll() override;
  std::optional<Answer> poll_invitation() override;
  Answer wait(const std::function<std::string()>& what) override;
  void on_news(std::function<void()> ring) override;
  std::vector<Lost> lost_pipelines() override;
  Rendezvous rendezvous(bool ok, bool flag, const std::function<std::string()>& what) override;
  std::vector<std::string> endpoints() override;
  void on_lost(std::function<void(int pipeline)> lost) override;
  void leave() override;

 protected:
  explicit ClientState(ClientOptions options);

  /// Sends a frame without blocking. Called without the lock.
  virtual void post(Bytes frame) = 0;

  /// Sends Hello and blocks until the coordinator has answered. Throws as connect_coordinator().
  void greet();
  /// Processes a frame. A frame that no coordinator sends ends the client.
  void take(const std::byte* data, std::size_t bytes);
  /// Ends the client with an error, which every later call throws.
  void die(Code code, const std::string& text);
  /// Returns true if the coordinator has accepted the Hello.
  bool welcome() const;
  /// Returns true if the worker has left or the client has failed.
  bool has_left() const;
  /// Ends the wait of leave(): the coordinator has received Leave, or never will.
  void stop_leaving();

  const ClientOptions options_;

 private:
  void take_message(const FromCoordinator& message);
  void throw_if_dead() const;
  std::string who() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool welcome_ = false;
  bool left_ = false;
  bool leave_ended_ = false;
  bool open_ = false;
  bool dead_ = false;
  Code code_ = Code::Comm;
  std::string failure_;
  std::optional<Answer> answer_;
  std::deque<Answer> invitations_;
  std::vector<Lost> lost_;
  std::optional<Rendezvous> rendezvous_;
  std::vector<std::string> endpoints_;
  std::mutex ring_mutex_;
  std::function<void()> ring_;
  std::function<void(int)> on_lost_;
};

}  // namespace hetu::ps
