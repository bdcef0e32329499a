// The status of a store. A client that asks for it takes no part: it gets no ClientSlot and no
// clock, and finished() ignores it.
#include <algorithm>

#include "ps/server/status.h"
#include "ps/server/store.h"
#include "ps/server/table_state.h"

namespace hetu::ps::server {

namespace {
constexpr int kAnswersPerSecond = 100;  // limit, so that unread answers can't fill the memory
}  // namespace

ServerStatus Store::status(std::int64_t now_us) const {
  ServerStatus status{.server = options_.server,
                      .servers = options_.servers,
                      .received_bytes = received_bytes_,
                      .sent_bytes = answers_.sent_bytes(),
                      .dropped = answers_.dropped(),
                      .clients = {},
                      .tables_in_all = static_cast<std::int64_t>(state_->tables.size()),
                      .tables = {}};
  for (const Presence presence : {Presence::Connected, Presence::Dead, Presence::Left}) {
    for (const auto& [session, client] : state_->clients) {
      if (client->presence() != presence) continue;
      ++status.count[static_cast<std::size_t>(presence)];
      if (status.clients.size() == kMostClients) continue;
      status.clients.push_back({client->worker, presence,
                                std::max<std::int64_t>(0, now_us - client->heard_us),
                                client->pushes, client->death.substr(0, 256)});
    }
  }
  return status;
}

// Answers with the page of tables from number `first` on.
void Store::send_status(Peer to, std::uint32_t attempt, const Status& asked, std::int64_t now_us) {
  if (now_us - status_second_us_ >= kSecond_us) {
    status_second_us_ = now_us;
    statuses_sent_ = 0;
  }
  if (++statuses_sent_ > kAnswersPerSecond)
    return answers_.drop("more than 100 requests for the status per second");
  ServerStatus page = status(now_us);
  std::size_t bytes = 0;
  std::int64_t number = 0;
  for (const auto& [name, table] : state_->tables) {
    if (number++ < asked.first) continue;
    constexpr std::size_t kOfTable = 400;
    constexpr std::size_t kOfMember = 13 + 16;  // and its pull
    if (bytes >= kPageBytes) break;
    page.tables.push_back(table->status());
    bytes += kOfTable + kOfMember * table->members.size();
  }
  const auto whole = std::make_shared<const Bytes>(encode_status(page));
  answers_.send_to(to, encode(attempt, StatusIs{asked.first}),
                   {whole->data(), whole->size(), whole});
}

}  // namespace hetu::ps::server
