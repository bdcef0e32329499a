// The store processes one message at a time, in the order of arrival, and is deterministic: the
// same messages and deaths give the same state. receive() is the only function that records
// messages, so that the log and its replay see the same sequence.
//
// Updates are applied exactly once. A client numbers the messages of a line; an attempt of the line
// ends at the first gap. The client then says Hello again with the next attempt number and repeats
// all that is unacknowledged, in order. A part accepts only a member's next update number, so that
// repeats do no harm. For example, update 3 is lost. The server then ignores update 4, reports the
// gap in BeatBack, and gets 3 and 4 in the next attempt.

#include "ps/server/store.h"

#include <algorithm>

#include "ps/server/dense_tables.h"
#include "ps/server/sparse_tables.h"

namespace hetu::ps::server {

namespace {
constexpr std::size_t kMostClientSlots = std::size_t{1} << 16;
}  // namespace

Store::Store(StoreOptions options)
    : options_(std::move(options)),
      answers_(options_.server, options_.most_unread),
      budget_(std::make_shared<MemoryBudget>(options_.server, options_.memory)),
      state_(std::make_unique<StoreState>(StoreState{.budget = budget_})),
      dense_(std::make_unique<DenseTables>(answers_, options_, budget_)),
      sparse_(std::make_unique<SparseTables>(answers_, options_, budget_)) {}
Store::~Store() = default;

void Store::note(Change::Of of, std::uint64_t who, const Payload& words, const Payload& values) {
  if (options_.on_change) options_.on_change({of, who, words, values});
}

void Store::receive(Peer from, const Bytes& header, const Payload& payload, std::int64_t now_us) {
  take(from, header, payload, now_us);
  end_overfull();
}

void Store::take(Peer from, const Bytes& header, const Payload& payload, std::int64_t now_us) {
  received_bytes_ += static_cast<std::int64_t>(header.size() + payload.bytes);
  Framed<FromClient> framed;
  try {
    framed = decode_from_client(header.data(), header.size());
  } catch (const Error& error) {
    return answers_.drop(error.what());
  }
  if (const auto* hello = std::get_if<Hello>(&framed.message)) {
    answers_.changes = false;
    take_hello(from, framed.attempt, *hello, now_us);
    if (answers_.changes)
      note(Change::Of::Message, hello->session, {header.data(), header.size()}, {});
    return;
  }
  if (const auto* status = std::get_if<Status>(&framed.message)) {
    return send_status(from, framed.attempt, *status, now_us);
  }
  const auto found = client_of_.find(from);
  if (found == client_of_.end()) return answers_.drop("its sender has not said hello");
  ClientSlot& client = *found->second;
  if (framed.attempt != client.attempt) return;  // from an earlier attempt of the line
  client.heard_us = now_us;
  if (!client.death.empty()) {
    return answers_.send(
        client,
        Refusal{Code::Comm, fmt::format("parameter server {} considers worker {} dead: it {}",
                                        options_.server, client.worker, client.death)});
  }
  if (const auto* beat = std::get_if<Beat>(&framed.message)) {
    return answers_.send(client, BeatBack{client.received.all(beat->sent), client.sent});
  }
  client.received.take(framed.serial);
  // After a gap everything comes again, in order. Taking later messages now could answer a pull
  // before the push that it depends on.
  if (client.received.missed) return;
  if (client.left && !std::holds_alternative<Leave>(framed.message)) return;
  // Only here is a message recorded: every kind, unless it is known to have changed nothing.
  answers_.changes = !std::holds_alternative<Who>(framed.message);
  take_message(client, framed.message, payload);
  if (answers_.changes) {
    note(Change::Of::Message, client.session, {header.data(), header.size()}, payload);
  }
}

ClientSlot& Store::client_for(const Hello& hello) {
  if (state_->clients.size() >= kMostClientSlots && state_->clients.count(hello.session) == 0) {
    forget_ended_clients();
  }
  std::unique_ptr<ClientSlot>& client = state_->clients[hello.session];
  if (!client) {
    client = std::make_unique<ClientSlot>();
    client->session = hello.session;
    client->worker = hello.worker;
    answers_.changes = true;
  }
  return *client;
}

void Store::take_hello(Peer from, std::uint32_t attempt, const Hello& hello, std::int64_t now_us) {
  const auto refuse = [&](Code code, const std::string& text) {
    answers_.send_to(from, encode(attempt, Refusal{code, text}));
  };
  if (hello.server != options_.server || hello.servers != options_.servers) {
    return refuse(
        Code::Config,
        fmt::format("worker {} expects parameter server {} of {}, but this is server {} of {}; "
                    "give every worker the same HETU_SERVERS",
                    hello.worker, hello.server, hello.servers, options_.server, options_.servers));
  }
  const auto sits = client_of_.find(from);
  // A connection belongs to one session for its whole life.
  if (sits != client_of_.end() && sits->second->session != hello.session) {
    return answers_.drop(
        fmt::format("worker {} opens a second session on one connection", sits->second->worker));
  }
  if (state_->clients.count(hello.session) == 0) {
    if (const auto dead = state_->died_before.find(hello.worker);
        dead != state_->died_before.end()) {
      return refuse(Code::Comm, fmt::format("parameter server {} considers worker {} dead: it {}",
                                            options_.server, hello.worker, dead->second));
    }
    if (hello.known) {
      return refuse(Code::Comm, fmt::format("parameter server {} was restarted "
                                            "and no longer holds anything of this training",
                                            options_.server));
    }
  }
  ClientSlot& client = client_for(hello);
  if (state_->clients.size() > kMostClientSlots) {
    answers_.changes = false;
    state_->clients.erase(hello.session);
    return refuse(Code::Comm,
                  fmt::format("parameter server {} has {} clients, the most that it accepts, "
                              "so worker {} cannot connect; end some clients",
                              options_.server, kMostClientSlots, hello.worker));
  }
  // Ignores a delayed Hello of an earlier attempt, and an equal attempt from another connection.
  if (attempt < client.attempt || (attempt == client.attempt && from != client.peer)) return;
  if (attempt > client.attempt) {
    client_of_.erase(client.peer);
    client.peer = from;
    client.attempt = attempt;
    client.received = {};
    client.sent = 0;
    client_of_[from] = &client;
  }
  client.heard_us = now_us;
  answers_.send(client, Welcome{});
}

void Store::take_message(ClientSlot& client, const FromClient& message, const Payload& payload) {
  if (const auto* init = std::get_if<Init>(&message)) return dense_->take(client, *init, payload);
  if (const auto* push = std::get_if<Push>(&message)) return dense_->take(client, *push, payload);
  if (const auto* rows = std::get_if<PushRows>(&message)) {
    return sparse_->take(client, *rows, payload);
  }
  if (const auto* rows = std::get_if<SetRows>(&message))
    return sparse_->take(client, *rows, payload);
  if (const auto* rows = std::get_if<PullRows>(&message)) {
    return sparse_->take(client, *rows, payload);
  }
  if (payload.bytes != 0) return answers_.drop("values in a message that must not have any");
  if (const auto* join = std::get_if<Join>(&message)) take_join(client, *join);
  if (const auto* pull = std::get_if<Pull>(&message)) dense_->take(client, *pull);
  if (const auto* got = std::get_if<Got>(&message)) dense_->take(client, *got);
  if (const auto* who = std::get_if<Who>(&message)) take_who(client, *who);
  if (const auto* leave = std::get_if<Leave>(&message)) take_leave(client, *leave);
}

// `is_reserved`: the table's memory is granted already, and was when the log was written.
void Store::take_join(ClientSlot& client, const Join& join, bool is_reserved) {
  const auto refuse = [&](const std::string& text) {
    answers_.changes = false;
    answers_.send(client, NotJoined{join.table, text});
  };
  if (const auto placed = client.memberships.find(join.table); placed != client.memberships.end()) {
    answers_.changes = false;
    return answers_.send(client,
                         Joined{join.table, !placed->second.table->has_values(options_.server)});
  }
  std::string fault = fault_of(join.rule, join.elements);
  if (fault.empty() && join.width > 0) fault = fault_of_rows(join.elements, join.width, join.rule);
  if (!fault.empty()) {
    return refuse(fmt::format("table \"{}\" of worker {}: {}", join.name, client.worker, fault));
  }
  const auto known = state_->tables.find(join.name);
  if (known == state_->tables.end() && !is_reserved) {
    const std::int64_t bytes = table_bytes(join, options_.server, options_.servers);
    const std::string full = budget_->refusal(client.worker, bytes, join.name);
    if (!full.empty()) return refuse(full);
  }
  const std::shared_ptr<TableState> table =
      known != state_->tables.end() ? known->second
                                    : make_table(join, options_.server, options_.servers, budget_);
  if (known == state_->tables.end()) state_->tables[join.name] = table;
  ClientSlot* holder = static_cast<std::size_t>(join.member) < table->members.size()
                           ? table->members[static_cast<std::size_t>(join.member)]
                           : nullptr;
  if (holder != nullptr && holder->gone()) return hold_early(client, join);
  if (const std::string text = table->disagreement(join); !text.empty()) {
    return refuse(
        fmt::format("worker {} opens table \"{}\" with {}; give all members the same arguments",
                    client.worker, join.name, text));
  }
  if (holder != nullptr) {
    return refuse(
        fmt::format("worker {} opens table \"{}\" as member {}, which is worker {}; each "
                    "member opens it once",
                    client.worker, join.name, join.member, holder->worker));
  }
  table->members[static_cast<std::size_t>(join.member)] = &client;
  client.memberships[join.table] = {table, join.member};
  answers_.send(client, Joined{join.table, !table->has_values(options_.server)});
}

// Keeps the join until the older table of the same name ends.
void Store::hold_early(ClientSlot& client, const Join& join) {
  const bool is_held =
      std::any_of(state_->early.begin(), state_->early.end(), [&](const EarlyJoin& held) {
        return held.client == &client && held.join.table == join.table;
      });
  answers_.changes = !is_held;
  if (is_held) return;
  const std::int64_t bytes = table_bytes(join, options_.server, options_.servers);
  const std::string full = budget_->refusal(client.worker, bytes, join.name);
  if (full.empty()) {
    state_->early.push_back({&client, join, {budget_, bytes}});
  } else {
    answers_.changes = false;
    answers_.send(client, NotJoined{join.table, full});
  }
}

void Store::take_who(ClientSlot& client, const Who& who) {
  const auto placed = client.memberships.find(who.table);
  const bool is_sparse =
      placed != client.memberships.end() && placed->second.table->rows != nullptr;
  const TableMembership* membership =
      is_sparse ? &placed->second : dense_->membership_of(client, who.table, who.part);
  if (membership == nullptr) return;
  const TableState& table = *membership->table;
  const auto found = table.parts.find(who.part);
  if (table.rows == nullptr && found == table.parts.end()) return;
  const std::vector<std::int64_t>& clocks =
      table.rows != nullptr ? table.rows->clocks : found->second.clocks;
  answers_.send(client, Waits{who.table, who.part, table.missing(clocks, who.least)});
}

// The client states how many pushes it has made here. If some are missing, they are being sent
// again, and Leave after them.
void Store::take_leave(ClientSlot& client, const Leave& leave) {
  answers_.changes = leave.pushes == client.pushes && !client.left;
  if (leave.pushes != client.pushes) return;  // an update is being sent again
  answers_.send(client, Left{});
  if (!answers_.changes) return;
  client.left = true;
  answer_all(client);
  forget_tables_that_ended();
}

}  // namespace hetu::ps::server
