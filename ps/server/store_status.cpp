// What a store says of itself to whoever asks. Whoever asks takes no part: no seat, no clock, and
// finished() knows nothing of it.
#include <algorithm>

#include "ps/server/status.h"
#include "ps/server/store_impl.h"

namespace hetu::ps::server {

namespace {
constexpr std::int64_t kSecond_us = 1'000'000;
constexpr int kAnswersPerSecond = 100;  // whoever does not read them fills no memory
}  // namespace

Presence Store::presence_of(const Seat* seat) {
  if (seat == nullptr) return Presence::NotCome;
  if (seat->left) return Presence::Left;
  return seat->death.empty() ? Presence::Connected : Presence::Dead;
}

TableStatus Store::status_of(const TableState& table) {
  TableStatus status{.name = table.name,
                     .rule = describe(table.rule),
                     .elements = table.elements,
                     .width = table.width,
                     .members = {},
                     .waiting = {}};
  std::vector<std::int64_t> clocks(table.members.size());
  std::map<int, WaitStatus> waiting;
  const auto wait = [&](int member, std::int64_t least) {
    WaitStatus& one = waiting.try_emplace(member, WaitStatus{member, least, 0}).first->second;
    one.least = std::max(one.least, least);
    ++one.parts;
  };
  if (table.rows != nullptr) {
    clocks = table.rows->clocks;
    status.bytes = table.rows->state.bytes();
    status.pushes = table.rows->state.counts().pushes;
    status.updates = table.rows->state.counts().updates;
    for (const RowsState::Waiting& each : table.rows->waiting) wait(each.member, each.pull.least);
  }
  bool is_first = true;
  for (const auto& [number, part] : table.parts) {
    const PartState& state = part.state;
    status.bytes +=
        table.split.elements(number) * state.planes() * static_cast<std::int64_t>(sizeof(float));
    status.pushes =
        is_first ? state.counts().pushes : std::min(status.pushes, state.counts().pushes);
    status.updates =
        is_first ? state.counts().updates : std::min(status.updates, state.counts().updates);
    for (std::size_t m = 0; m < clocks.size(); ++m) {
      clocks[m] = is_first ? part.clocks[m] : std::min(clocks[m], part.clocks[m]);
    }
    for (const Part::Waiting& each : part.waiting) wait(each.member, each.pull.least);
    is_first = false;
  }
  for (std::size_t m = 0; m < clocks.size(); ++m) {
    const Seat* seat = table.members[m];
    status.members.push_back({seat != nullptr ? seat->worker : -1, presence_of(seat), clocks[m]});
  }
  for (const auto& [member, one] : waiting) status.waiting.push_back(one);
  return status;
}

ServerStatus Store::status(std::int64_t now_us) const {
  ServerStatus status{.server = options_.server,
                      .servers = options_.servers,
                      .received_bytes = received_bytes_,
                      .sent_bytes = sent_bytes_,
                      .dropped = dropped_,
                      .clients = {},
                      .tables_in_all = static_cast<std::int64_t>(tables_.size()),
                      .tables = {}};
  for (const Presence told : {Presence::Connected, Presence::Dead, Presence::Left}) {
    for (const auto& [session, seat] : seats_) {
      if (presence_of(seat.get()) != told) continue;
      ++status.count[static_cast<std::size_t>(told)];
      if (status.clients.size() == kMostClients) continue;
      status.clients.push_back({seat->worker, told,
                                std::max<std::int64_t>(0, now_us - seat->heard_us), seat->pushes,
                                seat->death.substr(0, 256)});
    }
  }
  return status;
}

// The page of tables from number `first` on.
void Store::tell_status(Peer to, std::uint32_t attempt, const Status& asked, std::int64_t now_us) {
  if (now_us - status_second_us_ >= kSecond_us) {
    status_second_us_ = now_us;
    statuses_told_ = 0;
  }
  if (++statuses_told_ > kAnswersPerSecond)
    return drop("more questions for the status than 100 a second");
  ServerStatus page = status(now_us);
  std::size_t bytes = 0;
  std::int64_t number = 0;
  for (const auto& [name, table] : tables_) {
    if (number++ < asked.first) continue;
    constexpr std::size_t kOfTable = 400;
    constexpr std::size_t kOfMember = 13 + 16;  // and its pull
    if (bytes >= kPageBytes) break;
    page.tables.push_back(status_of(*table));
    bytes += kOfTable + kOfMember * table->members.size();
  }
  const auto whole = std::make_shared<const Bytes>(encode_status(page));
  outgoing_.push_back(
      {to, encode(attempt, StatusIs{asked.first}), {whole->data(), whole->size(), whole}});
}

}  // namespace hetu::ps::server
