#include "ps/server/sparse_tables.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/words.h"

namespace hetu::ps::server {

namespace {

// Most bytes of a member's waiting pull, and the least that one message counts.
constexpr std::size_t kMostAsked = std::size_t{1} << 28;
constexpr std::size_t kLeastAsked = std::size_t{1} << 16;

}  // namespace

// Returns the client's membership in a sparse table, or nullptr after dropping a message that no
// worker of this job sends.
TableMembership* SparseTables::membership_of(ClientSlot& client, int table) {
  const auto found = client.memberships.find(table);
  if (found == client.memberships.end() || found->second.table->rows == nullptr) {
    answers_.drop(
        fmt::format("worker {} has not joined its sparse table {}", client.worker, table));
    return nullptr;
  }
  return &found->second;
}

std::string SparseTables::refusal(const ClientSlot& client, const TableState& table,
                                  const RowsView& rows, std::size_t message) const {
  const RowTable& state = table.rows->state;
  const auto bytes = static_cast<std::int64_t>(message);
  if (budget_->has(state.most_bytes(rows.count, bytes))) return "";
  return budget_->refusal(client.worker, state.bytes_of_update(rows), table.name);
}

void SparseTables::take(ClientSlot& client, const PushRows& push, const Payload& payload) {
  const TableMembership* membership = membership_of(client, push.table);
  if (membership == nullptr) return;
  TableState& table = *membership->table;
  RowsState& rows = *table.rows;
  const auto member = static_cast<std::size_t>(membership->member);
  const bool is_next = push.number == rows.taken[member] + 1;
  answers_.changes = is_next;
  if (is_next) {
    RowsView view;
    if (!view_rows(payload, table.width, push.counted, view) || !rows.state.fits(view)) {
      return answers_.drop(fmt::format("rows that table \"{}\" does not have", table.name));
    }
    const std::string far = table.too_far(client, rows.state.kept(membership->member));
    if (!far.empty()) return answers_.refuse(client, Code::InvalidArgument, far);
    const std::string full = refusal(client, table, view, payload.bytes);
    if (!full.empty()) return answers_.refuse(client, Code::Io, full);
    try {
      rows.state.take(membership->member, view, push.rate);
    } catch (const std::bad_alloc&) {
      return answers_.refuse(client, Code::Io,
                             fmt::format("parameter server {} has no memory left for the rows of "
                                         "table \"{}\"",
                                         options_.server, table.name));
    }
    ++rows.taken[member];
    ++client.pushes;
    if (push.last) {
      const std::int64_t clock = ++rows.clocks[member];
      rows.state.complete(membership->member);
      if (options_.on_applied && table.rule.rule == Rule::Each) {
        options_.on_applied({table.name, options_.server, membership->member, clock});
      }
    }
  }
  answers_.send(client, PushedRows{push.table, rows.taken[member]});
  if (is_next) answer(table);
}

void SparseTables::take(ClientSlot& client, const SetRows& set, const Payload& payload) {
  const TableMembership* membership = membership_of(client, set.table);
  if (membership == nullptr) return;
  TableState& table = *membership->table;
  RowsState& rows = *table.rows;
  std::int64_t& taken = rows.taken[static_cast<std::size_t>(membership->member)];
  const bool is_next = set.number == taken + 1;
  answers_.changes = is_next;
  if (is_next) {
    RowsView view;
    if (set.plane >= table.rule.planes() || !view_rows(payload, table.width, false, view) ||
        !rows.state.fits(view)) {
      return answers_.drop(fmt::format("rows that table \"{}\" does not have", table.name));
    }
    const std::string full = refusal(client, table, view, payload.bytes);
    if (!full.empty()) return answers_.refuse(client, Code::Io, full);
    rows.state.set(view, set.plane, set.updates);
    ++taken;
    ++client.pushes;
  }
  answers_.send(client, PushedRows{set.table, taken});
  if (is_next) answer(table);
}

// A pull is not a change to be logged: rows that it creates would be created identically again,
// waiting clients ask again after a restart, and an answer is not kept. With rounds, a repeated
// pull gets the same answer until the member pushes again. Without rounds no order is promised, and
// RowValues says which updates it holds.
void SparseTables::take(ClientSlot& client, const PullRows& pull, const Payload& payload) {
  answers_.changes = false;
  const TableMembership* membership = membership_of(client, pull.table);
  if (membership == nullptr) return;
  const TableState& table = *membership->table;
  RowsState& rows = *table.rows;
  const std::size_t each = sizeof(std::int64_t) * (pull.bound >= 0 ? 2 : 1);
  const std::size_t count = payload.bytes / each;
  if (payload.bytes % each != 0 || count > static_cast<std::size_t>(most_rows(table.width)) ||
      pull.plane >= table.rule.planes() || (pull.bound >= 0 && pull.plane > 0)) {
    return answers_.drop(fmt::format("a pull that table \"{}\" cannot answer", table.name));
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t id = 0;
    std::memcpy(&id, payload.data + i * sizeof id, sizeof id);
    if (id < 0 || id >= rows.state.rows()) {
      return answers_.drop(
          fmt::format("a pull of a row that table \"{}\" does not have", table.name));
    }
  }
  // Chunks of one pull wait together, each under its own number. A newer pull replaces them all.
  std::size_t asked = std::max(payload.bytes, kLeastAsked);
  bool is_old = false;
  std::erase_if(rows.waiting, [&](const RowsState::Waiting& other) {
    if (other.member != membership->member) return false;
    is_old = is_old || other.pull.number > pull.number;
    if (other.pull.number == pull.number) {
      asked += std::max(other.asked.size(), kLeastAsked);
    }
    return other.pull.number < pull.number ||
           (other.pull.number == pull.number && other.pull.chunk == pull.chunk);
  });
  if (is_old) return;
  if (asked > kMostAsked) {
    return answers_.refuse(
        client, Code::InvalidArgument,
        fmt::format("worker {} requests more rows of table \"{}\" at once "
                    "than parameter server {} can keep track of ({}); pull fewer rows at a time",
                    client.worker, table.name, options_.server,
                    memory_text(static_cast<std::int64_t>(kMostAsked))));
  }
  Bytes copy(payload.data, payload.data + payload.bytes);
  rows.waiting.push_back({membership->member, pull, std::move(copy)});
  answer(*membership->table);
}

void SparseTables::answer(TableState& table) {
  RowsState& rows = *table.rows;
  const Horizon horizon = table.horizon(rows.clocks);
  rows.state.apply_rounds(horizon.slowest, [&](int member, std::int64_t round) {
    if (options_.on_applied) options_.on_applied({table.name, options_.server, member, round});
  });
  std::vector<RowsState::Waiting> waiting;
  waiting.swap(rows.waiting);
  for (RowsState::Waiting& each : waiting) {
    const PullRows& pull = each.pull;
    ClientSlot& client = *table.members[static_cast<std::size_t>(each.member)];
    if (client.gone()) continue;
    if (pull.least > horizon.dead_clock) {
      answers_.send(client, NoValues{pull.table, options_.server, pull.number,
                                     table.death(client, horizon, pull.least)});
    } else if (pull.least > horizon.slowest ||
               pull.after > rows.taken[static_cast<std::size_t>(each.member)]) {
      rows.waiting.push_back(std::move(each));
      // Backpressure: rows wait until the client has read earlier rows, since they take server
      // memory.
    } else if (answers_.unread(client) > options_.most_unread / 4) {
      answers_.hold_back(client);
      rows.waiting.push_back(std::move(each));
    } else {
      send_rows(client, table, pull, each.asked);
    }
  }
}

void SparseTables::send_rows(ClientSlot& client, TableState& table, const PullRows& pull,
                             const Bytes& asked) {
  RowsState& rows = *table.rows;
  const auto each = static_cast<std::int64_t>(sizeof(std::int64_t)) * (pull.bound >= 0 ? 2 : 1);
  const std::int64_t count = static_cast<std::int64_t>(asked.size()) / each;
  const std::byte* ids = asked.data();
  const std::byte* versions = ids + count * static_cast<std::int64_t>(sizeof(std::int64_t));
  const RowValues values{pull.table, pull.number, pull.chunk, rows.state.counts().pushes,
                         rows.state.counts().updates};
  if (!budget_->has(rows.state.most_bytes(count, 0))) {
    const std::string full =
        budget_->refusal(client.worker, rows.state.bytes_of_read(ids, count), table.name);
    // A pull that waited may be answered while another client's message is processed. That message
    // has changed the store, so only the reader is refused.
    if (!full.empty()) return answers_.send(client, Refusal{Code::Io, full});
  }
  try {
    answers_.send(client, values,
                  pull.bound >= 0 ? rows.state.read_newer(ids, versions, count, pull.bound)
                                  : rows.state.read(ids, count, pull.plane));
  } catch (const std::bad_alloc&) {
    answers_.send(client,
                  Refusal{Code::Io, fmt::format("parameter server {} has no memory left for rows",
                                                options_.server)});
  }
}

}  // namespace hetu::ps::server
