// Which clients are alive, and the effects of a death.
#include <algorithm>

#include "base/log.h"
#include "base/words.h"
#include "ps/server/dense_tables.h"
#include "ps/server/sparse_tables.h"
#include "ps/server/store.h"

namespace hetu::ps::server {

namespace {
constexpr std::int64_t kCheck_us = kSecond_us;
// no tick for this long: the process itself was stopped
constexpr std::int64_t kStopped_us = 3 * kSecond_us;
// silent workers logged per tick, so that new names can't fill the disk
constexpr int kSilentNamed = 5;
}  // namespace

void Store::go_on() {
  for (ClientSlot* client : answers_.take_held_back()) {
    for (const auto& [number, membership] : client->memberships) {
      if (membership.table->rows != nullptr) sparse_->answer(*membership.table);
    }
  }
  end_overfull();
}

// Ends the sessions of clients that don't read their answers. Their memory is released when their
// connections end.
void Store::end_overfull() {
  for (std::vector<ClientSlot*> clients = answers_.take_overfull(); !clients.empty();
       clients = answers_.take_overfull()) {
    for (ClientSlot* client : clients) {
      if (client->gone()) continue;
      const std::string why = fmt::format(
          "does not read its answers: {} wait for it, "
          "more than the size of its tables plus {}",
          memory_text(answers_.unread(*client)), memory_text(options_.most_unread));
      log(Level::Warning, "parameter server {}: worker {} {}", options_.server, client->worker,
          why);
      end_session(*client, why);
    }
  }
}

// If this process was stopped (a suspended machine, a debugger), silence says nothing about
// clients, so their time starts again.
void Store::tick(std::int64_t now_us) {
  if (now_us - looked_us_ < kCheck_us) return;
  const bool stood_still = now_us - looked_us_ > kStopped_us;
  looked_us_ = now_us;
  if (options_.dead_after_s <= 0) return;
  const auto limit_us = static_cast<std::int64_t>(options_.dead_after_s * kSecond_us);
  int silent = 0;
  for (const auto& [session, client] : state_->clients) {
    if (client->gone()) continue;
    if (stood_still) client->heard_us = now_us;
    if (now_us - client->heard_us > limit_us) {
      if (++silent <= kSilentNamed) {
        log(Level::Warning, "parameter server {}: worker {} is silent for {:g} s", options_.server,
            client->worker, options_.dead_after_s);
      }
      end_session(*client, fmt::format("is silent for {:g} s", options_.dead_after_s));
    }
  }
  if (silent > kSilentNamed) {
    log(Level::Warning, "parameter server {}: and {} more are silent", options_.server,
        silent - kSilentNamed);
  }
}

std::optional<std::int64_t> Store::wakes_at_us() const {
  if (options_.dead_after_s <= 0 || finished() || state_->clients.empty()) return std::nullopt;
  return looked_us_ + kCheck_us;
}

namespace {
Payload payload_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
}  // namespace

// Callers have already reported this death to people, and repeat it to a server that restarts.
void Store::worker_died(int worker, const std::string& reason) {
  if (state_->died_before.count(worker) > 0) return;
  end_worker(worker, reason);
  note(Change::Of::Worker, static_cast<std::uint64_t>(worker), payload_of(reason), {});
}

void Store::end_worker(int worker, const std::string& reason) {
  state_->died_before[worker] = reason;
  for (const auto& [session, client] : state_->clients) {
    if (client->worker == worker && !client->gone()) die(*client, reason);
  }
}

void Store::peer_died(Peer peer, const std::string& reason) {
  const auto found = client_of_.find(peer);
  if (found != client_of_.end() && !found->second->gone()) end_session(*found->second, reason);
}

void Store::end_session(ClientSlot& client, const std::string& reason) {
  die(client, reason);
  note(Change::Of::Session, client.session, payload_of(reason), {});
}

void Store::die(ClientSlot& client, const std::string& reason) {
  client.death = reason;
  answer_all(client);
  forget_tables_that_ended();
}

void Store::answer_all(ClientSlot& client) {
  for (const auto& [number, membership] : client.memberships) {
    for (auto& [part, state] : membership.table->parts) {
      std::erase_if(state.answered, [member = membership.member](const Answered& one) {
        return one.member == member;  // it asks no more
      });
      dense_->answer(*membership.table, part);
    }
    if (membership.table->rows != nullptr) sparse_->answer(*membership.table);
  }
}

// Forgets ended clients that no table refers to. If such a client returns, it is refused because
// this server holds nothing of its training.
void Store::forget_ended_clients() {
  std::erase_if(state_->clients, [&](const auto& one) {
    ClientSlot* client = one.second.get();
    const bool waits = std::any_of(state_->early.begin(), state_->early.end(),
                                   [&](const EarlyJoin& early) { return early.client == client; });
    if (!client->gone() || !client->memberships.empty() || waits) return false;
    client_of_.erase(client->peer);
    answers_.forget(client);
    return true;
  });
}

// Removing a table frees its name, so joins for the next training are processed afterwards.
void Store::forget_tables_that_ended() {
  const auto is_gone = [](const ClientSlot* member) { return member != nullptr && member->gone(); };
  bool any = false;
  for (auto table = state_->tables.begin(); table != state_->tables.end();) {
    const std::vector<ClientSlot*>& members = table->second->members;
    if (!std::all_of(members.begin(), members.end(), is_gone)) {
      ++table;
      continue;
    }
    for (ClientSlot* member : members) {
      std::erase_if(member->memberships, [&](const auto& membership) {
        return membership.second.table == table->second;
      });
    }
    table = state_->tables.erase(table);
    any = true;
  }
  if (!any) return;
  for (const EarlyJoin& early : std::exchange(state_->early, {})) {
    if (!early.client->gone()) take_join(*early.client, early.join, true);
  }
  answers_.changes = true;  // even if no join succeeded
}

bool Store::finished() const {
  return !state_->clients.empty() &&
         std::all_of(state_->clients.begin(), state_->clients.end(),
                     [](const auto& client) { return client.second->gone(); });
}

}  // namespace hetu::ps::server
