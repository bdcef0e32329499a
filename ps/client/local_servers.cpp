#include "ps/client/local_servers.h"

#include <deque>
#include <exception>
#include <map>
#include <mutex>

#include "ps/client/client_state.h"

namespace hetu::ps {

namespace {
std::vector<std::string> names(int servers) {
  std::vector<std::string> all;
  for (int s = 0; s < servers; ++s) all.push_back(fmt::format("parameter server {}", s));
  return all;
}
}  // namespace

/// The stores and the clients. Lock order: this mutex first, then a client's mutex.
struct LocalServers::Shared {
  Shared(int servers, const std::function<void(const server::Applied&)>& on_applied) {
    for (int s = 0; s < servers; ++s) {
      // A thread doesn't become silent while its process runs.
      stores.emplace_back(server::StoreOptions{
          .server = s, .servers = servers, .dead_after_s = 0, .on_applied = on_applied});
    }
  }
  /// Delivers messages until there are none. The caller holds the mutex.
  void carry();

  std::mutex mutex;
  std::deque<server::Store> stores;
  std::map<server::Store::Peer, Client*> clients;
  server::Store::Peer next_peer = 1;
};

class LocalServers::Client : public client::ClientState {
 public:
  Client(std::shared_ptr<Shared> shared, const ParameterOptions& options)
      : ClientState(options, names(static_cast<int>(shared->stores.size()))),
        shared_(std::move(shared)),
        exceptions_(std::uncaught_exceptions()) {
    const std::lock_guard lock(shared_->mutex);
    peer_ = shared_->next_peer++;
    shared_->clients[peer_] = this;
  }
  ~Client() override {
    if (std::uncaught_exceptions() == exceptions_) leave();
    const std::lock_guard lock(shared_->mutex);
    shared_->clients.erase(peer_);
    for (server::Store& store : shared_->stores) {  // no effect on a client that has left
      store.peer_died(peer_, "has ended with an exception");
    }
    shared_->carry();
  }

 protected:
  void ring() override {
    const std::lock_guard lock(shared_->mutex);
    shared_->carry();
  }

 private:
  std::shared_ptr<Shared> shared_;
  const int exceptions_;
  server::Store::Peer peer_ = 0;
};

// A message may cause others, so the loop runs until no client and no store has any.
void LocalServers::Shared::carry() {
  for (bool any = true; any;) {
    any = false;
    for (const auto& [peer, client] : clients) {
      for (const client::ClientState::Outgoing& sent : client->take()) {
        any = true;
        stores[static_cast<std::size_t>(sent.server)].receive(peer, sent.header, sent.payload, 0);
      }
    }
    for (std::size_t s = 0; s < stores.size(); ++s) {
      stores[s].go_on();
      for (const server::Store::Outgoing& sent : stores[s].take()) {
        any = true;
        const auto found = clients.find(sent.to);
        if (found == clients.end()) continue;
        found->second->receive(static_cast<int>(s), sent.header, sent.payload);
      }
    }
  }
}

LocalServers::LocalServers(int servers,
                           const std::function<void(const server::Applied&)>& on_applied) {
  require(servers >= 1 && servers <= server::kMostServers, "there may be 1 to {} servers, not {}",
          server::kMostServers, servers);
  shared_ = std::make_shared<Shared>(servers, on_applied);
}
LocalServers::~LocalServers() = default;

std::unique_ptr<ParameterClient> LocalServers::client(const ParameterOptions& options) {
  return std::make_unique<Client>(shared_, options);
}

void LocalServers::worker_died(int worker, const std::string& reason) {
  const std::lock_guard lock(shared_->mutex);
  for (server::Store& store : shared_->stores) store.worker_died(worker, reason);
  shared_->carry();
}

}  // namespace hetu::ps
