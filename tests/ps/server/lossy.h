// Clients and stores on a transport that drops, repeats, delays and reorders messages and loses
// connections. Stores are killed and restarted from their logs. All events follow from a seed. Used
// by the tests of ps/server.
#pragma once
#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "ps/client/client_state.h"
#include "tests/ps/server/logged_store.h"
#include "tests/temporary_folder.h"

namespace hetu::ps {

struct Rates {
  double drop = 0, repeat = 0, delay = 0, cut = 0;
  double kill = 0;  ///< probability per tick that one server is killed
};

/// Called for an addition. `is_replayed` is true if a store reports it while it recovers from its
/// log.
using OnApplied = std::function<void(const server::Applied&, bool is_replayed)>;

/// A server that can be killed and restarted.
class Mortal {
 public:
  Mortal(int server, int servers, unsigned seed, OnApplied on_applied)
      : draw_(seed), server_(server), servers_(servers), on_applied_(std::move(on_applied)) {
    live();
  }
  server::Store& store() { return logged_->store(); }
  /// Returns the messages that may be sent. Additions before this call are then durable.
  std::vector<server::Store::Outgoing> settle() {
    std::vector<server::Store::Outgoing> out = logged_->settle(100);
    for (const Added& added : std::exchange(unsettled_, {})) tell(added, false);
    return out;
  }
  /// Kills the server at a point between receiving messages and answering them, and restarts it.
  void die() {
    const std::string log = newest_log();
    const auto kept = std::filesystem::file_size(log);
    const unsigned how = draw_() % 3;
    if (how > 0) logged_->log().commit();
    logged_.reset();
    const auto all = std::filesystem::file_size(log);
    if (how == 2) std::filesystem::resize_file(log, kept + draw_() % (all - kept + 1));
    unsettled_.clear();
    live();
  }

 private:
  struct Added {
    std::string table;
    int part, member;
    std::int64_t number;
  };
  void live() {
    server::StoreOptions options{.server = server_, .servers = servers_, .dead_after_s = 0};
    is_replayed_ = true;
    options.on_applied = [this](const server::Applied& applied) {
      const Added added{applied.table, applied.part, applied.member, applied.number};
      if (is_replayed_)
        tell(added, true);
      else
        unsettled_.push_back(added);
    };
    logged_ = std::make_unique<server::LoggedStore>(options,
                                                    server::LogOptions{.folder = folder_.path(),
                                                                       .job = "lossy",
                                                                       .server = server_,
                                                                       .servers = servers_,
                                                                       .snapshot_after = 2,
                                                                       .least_bytes = 10'000},
                                                    10'000);
    is_replayed_ = false;
  }
  void tell(const Added& added, bool is_replayed) const {
    on_applied_({added.table, added.part, added.member, added.number}, is_replayed);
  }
  std::string newest_log() const {
    std::string newest;
    int highest = -1;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      const std::string name = entry.path().filename();
      if (name.find(".log.") == std::string::npos) continue;
      const int number = std::stoi(name.substr(name.rfind('.') + 1));
      if (number > highest) newest = entry.path();
      highest = std::max(highest, number);
    }
    return newest;
  }

  std::mt19937 draw_;
  const int server_, servers_;
  const OnApplied on_applied_;
  const TemporaryFolder folder_;
  bool is_replayed_ = false;
  std::vector<Added> unsettled_;
  std::unique_ptr<server::LoggedStore> logged_;
};

/// The messages in transit. A tick is the time of an undelayed message.
class Lossy {
 public:
  Lossy(int servers, unsigned seed, Rates rates, const OnApplied& on_applied)
      : draw_(seed), rates_(rates) {
    for (int s = 0; s < servers; ++s) servers_.emplace_back(s, servers, draw_(), on_applied);
  }
  int servers() const { return static_cast<int>(servers_.size()); }
  void add(client::ClientState& client) { clients_.push_back(&client); }
  std::int64_t messages() const { return messages_; }
  std::int64_t harmed() const { return harmed_; }
  int killed() const { return killed_; }

  /// Runs one tick: all clients send, due messages arrive, and a server may then be killed.
  void step() {
    ++now_;
    for (std::size_t c = 0; c < clients_.size(); ++c) {
      client::ClientState& client = *clients_[c];
      if (now_ % 20 == static_cast<std::int64_t>(c)) client.beat();
      if (chance(rates_.cut)) {
        client.line_lost(static_cast<int>(draw_() % servers_.size()));
        ++harmed_;
      }
      for (client::ClientState::Outgoing& sent : client.take()) {
        put({0, true, static_cast<int>(c), sent.server, std::move(sent.header), sent.payload});
      }
    }
    for (std::size_t s = 0; s < servers_.size(); ++s) {
      for (server::Store::Outgoing& sent : servers_[s].settle()) {
        put({0, false, static_cast<int>(sent.to) - 1, static_cast<int>(s), std::move(sent.header),
             sent.payload});
      }
    }
    deliver();
    if (chance(rates_.kill)) kill(static_cast<int>(draw_() % servers_.size()));
  }

 private:
  struct Frame {
    std::int64_t due = 0;
    bool to_server = false;
    int client = 0;
    int server = 0;
    Bytes header;
    server::Payload payload;
  };
  bool chance(double rate) { return std::uniform_real_distribution<>()(draw_) < rate; }
  void put(const Frame& frame) {
    ++messages_;
    if (chance(rates_.drop)) {
      ++harmed_;
      return;
    }
    for (const bool again : {false, true}) {
      if (again && !chance(rates_.repeat)) continue;
      const bool late = chance(rates_.delay);
      harmed_ += again || late ? 1 : 0;
      way_.emplace(now_ + 1 + (late ? static_cast<std::int64_t>(draw_() % 60) : 0), frame);
    }
  }
  void deliver() {
    while (!way_.empty() && way_.begin()->first <= now_) {
      const Frame frame = std::move(way_.begin()->second);
      way_.erase(way_.begin());
      if (frame.to_server) {
        servers_[static_cast<std::size_t>(frame.server)].store().receive(
            static_cast<server::Store::Peer>(frame.client) + 1, frame.header, frame.payload, now_);
      } else {
        clients_[static_cast<std::size_t>(frame.client)]->receive(frame.server, frame.header,
                                                                  frame.payload);
      }
    }
    for (auto at = lost_.begin(); at != lost_.end() && at->first <= now_; at = lost_.erase(at)) {
      clients_[static_cast<std::size_t>(at->second.first)]->line_lost(at->second.second);
    }
  }
  /// Kills a server. Messages to it are lost, and some of the messages from it. The clients notice
  /// it gradually, some after they have sent to the restarted server.
  void kill(int server) {
    ++killed_;
    servers_[static_cast<std::size_t>(server)].die();
    for (auto at = way_.begin(); at != way_.end();) {
      const bool is_lost =
          at->second.server == server && (at->second.to_server || draw_() % 2 == 0);
      at = is_lost ? way_.erase(at) : std::next(at);
    }
    for (std::size_t c = 0; c < clients_.size(); ++c) {
      lost_.emplace(now_ + static_cast<std::int64_t>(draw_() % 10),
                    std::make_pair(static_cast<int>(c), server));
    }
  }

  std::mt19937 draw_;
  const Rates rates_;
  std::deque<Mortal> servers_;
  std::vector<client::ClientState*> clients_;
  std::multimap<std::int64_t, Frame> way_;
  std::multimap<std::int64_t, std::pair<int, int>> lost_;  // connections: client and server
  std::int64_t now_ = 0;
  std::int64_t messages_ = 0;
  std::int64_t harmed_ = 0;
  int killed_ = 0;
};

/// A client that runs the transport while it waits, so that the test has one thread.
class Stepped : public client::ClientState {
 public:
  Stepped(int worker, Lossy& way)
      : ClientState({.worker = worker, .timeout_s = 0},
                    std::vector<std::string>(static_cast<std::size_t>(way.servers()), "a server")),
        way_(way) {
    way.add(*this);
  }
  int open(const Table& table, int member, const float* initial,
           const OptimizerStates* first = nullptr) override {
    opens_ = true;
    const int number = ClientState::open(table, member, initial, first);
    opens_ = false;
    return number;
  }

  int open_rows(const SparseTable& table, int member) override {
    opens_ = true;
    const int number = ClientState::open_rows(table, member);
    opens_ = false;
    return number;
  }

  OptimizerStates states(int table, float* values) override {
    opens_ = true;
    OptimizerStates found = ClientState::states(table, values);
    opens_ = false;
    return found;
  }

 protected:
  void ring() override {
    for (int ticks = 0; opens_ && !is_idle() && ticks < 10'000; ++ticks) way_.step();
  }

 private:
  Lossy& way_;
  bool opens_ = false;
};

inline const std::vector<Rates> kLossy = {{0, 0, 0, 0},
                                          {0.03, 0, 0, 0},
                                          {0, 0.05, 0.05, 0},
                                          {0.02, 0.02, 0.02, 0.002},
                                          {0.1, 0.1, 0.1, 0.01}};
inline const std::vector<Rates> kDeadly = {{0, 0, 0, 0, 0.01}, {0.02, 0.02, 0.02, 0.002, 0.003}};

}  // namespace hetu::ps
