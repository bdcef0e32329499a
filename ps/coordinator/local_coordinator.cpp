#include "ps/coordinator/local_coordinator.h"

#include <chrono>
#include <exception>
#include <map>
#include <thread>

#include "ps/coordinator/client_state.h"
#include "ps/coordinator/coordinator.h"

namespace hetu::ps {

namespace {
std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
}  // namespace

/// The rules, the clients, and a thread that calls tick() when the rules ask for it.
struct LocalCoordinator::Shared {
  // A thread doesn't become silent while its process runs.
  Shared() : rules({.dead_after_s = 0}), timer([this] { sleep_and_tick(); }) {}
  ~Shared() {
    {
      const std::lock_guard lock(mutex);
      over = true;
    }
    changed.notify_all();
    timer.join();
  }

  void receive(Coordinator::Peer from, const Bytes& frame) {
    {
      const std::lock_guard lock(mutex);
      rules.receive(from, frame.data(), frame.size(), now_us());
      deliver();
    }
    changed.notify_all();
  }
  void deliver();
  void sleep_and_tick();

  std::mutex mutex;
  std::condition_variable changed;
  Coordinator rules;
  std::map<Coordinator::Peer, Client*> clients;
  Coordinator::Peer next_peer = 1;
  bool over = false;
  std::thread timer;  // last member: the thread uses all others
};

/// Delivers frames by function calls. Lock order: the mutex of Shared first, then the client's
/// mutex.
class LocalCoordinator::Client : public ClientState {
 public:
  Client(std::shared_ptr<Shared> shared, const ClientOptions& options)
      : ClientState(options), shared_(std::move(shared)) {
    {
      const std::lock_guard lock(shared_->mutex);
      peer_ = shared_->next_peer++;
      shared_->clients[peer_] = this;
    }
    try {
      greet();
    } catch (...) {
      forget();
      throw;
    }
  }
  ~Client() override {
    if (std::uncaught_exceptions() == 0) leave();
    forget();
  }
  void deliver(const Bytes& frame) { take(frame.data(), frame.size()); }

 protected:
  void post(Bytes frame) override { shared_->receive(peer_, frame); }

 private:
  void forget() {
    const std::lock_guard lock(shared_->mutex);
    shared_->clients.erase(peer_);
  }
  std::shared_ptr<Shared> shared_;
  Coordinator::Peer peer_ = 0;
};

void LocalCoordinator::Shared::deliver() {
  for (const Coordinator::Outgoing& frame : rules.take()) {
    const auto found = clients.find(frame.to);
    if (found != clients.end()) found->second->deliver(frame.bytes);
  }
}

void LocalCoordinator::Shared::sleep_and_tick() {
  std::unique_lock lock(mutex);
  while (!over) {
    const std::optional<std::int64_t> wake = rules.wakes_at_us();
    if (!wake) {
      changed.wait(lock);
      continue;
    }
    const std::int64_t left_us = *wake - now_us();
    if (left_us > 0) changed.wait_for(lock, std::chrono::microseconds(left_us));
    if (over) break;
    rules.tick(now_us());
    deliver();
  }
}

LocalCoordinator::LocalCoordinator() : shared_(std::make_shared<Shared>()) {}
LocalCoordinator::~LocalCoordinator() = default;

std::unique_ptr<GroupClient> LocalCoordinator::client(const ClientOptions& options) {
  return std::make_unique<Client>(shared_, options);
}

void LocalCoordinator::lose(int pipeline, const std::string& reason) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->rules.pipeline_died(pipeline, reason, now_us());
    shared_->deliver();
  }
  shared_->changed.notify_all();
}

}  // namespace hetu::ps
