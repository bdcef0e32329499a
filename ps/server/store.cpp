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
constexpr std::size_t kMostSeats = std::size_t{1} << 16;
}  // namespace

Store::Store(StoreOptions options)
    : options_(std::move(options)),
      answers_(options_.server, options_.most_unread),
      room_(std::make_shared<Room>(options_.server, options_.memory)),
      state_(std::make_unique<StoreState>(StoreState{.room = room_})),
      dense_(std::make_unique<DenseTables>(answers_, options_, room_)),
      sparse_(std::make_unique<SparseTables>(answers_, options_, room_)) {}
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
    return tell_status(from, framed.attempt, *status, now_us);
  }
  const auto found = seat_of_.find(from);
  if (found == seat_of_.end()) return answers_.drop("its sender has not said hello");
  Seat& seat = *found->second;
  if (framed.attempt != seat.attempt) return;  // from an earlier attempt of the line
  seat.heard_us = now_us;
  if (!seat.death.empty()) {
    return answers_.send(
        seat, Refusal{Code::Comm, fmt::format("parameter server {} takes worker {} for dead: it {}",
                                              options_.server, seat.worker, seat.death)});
  }
  if (const auto* beat = std::get_if<Beat>(&framed.message)) {
    return answers_.send(seat, BeatBack{seat.received.all(beat->sent), seat.sent});
  }
  seat.received.take(framed.serial);
  // After a gap everything comes again, in order. Taking later messages now could answer a pull
  // before the push that it depends on.
  if (seat.received.missed) return;
  if (seat.left && !std::holds_alternative<Leave>(framed.message)) return;
  // Only here is a message recorded: every kind, unless it is known to have changed nothing.
  answers_.changes = !std::holds_alternative<Who>(framed.message);
  take_message(seat, framed.message, payload);
  if (answers_.changes) {
    note(Change::Of::Message, seat.session, {header.data(), header.size()}, payload);
  }
}

Seat& Store::seat_for(const Hello& hello) {
  if (state_->seats.size() >= kMostSeats && state_->seats.count(hello.session) == 0) {
    forget_seats_that_ended();
  }
  std::unique_ptr<Seat>& seat = state_->seats[hello.session];
  if (!seat) {
    seat = std::make_unique<Seat>();
    seat->session = hello.session;
    seat->worker = hello.worker;
    answers_.changes = true;
  }
  return *seat;
}

void Store::take_hello(Peer from, std::uint32_t attempt, const Hello& hello, std::int64_t now_us) {
  const auto refuse = [&](Code code, const std::string& text) {
    answers_.send_to(from, encode(attempt, Refusal{code, text}));
  };
  if (hello.server != options_.server || hello.servers != options_.servers) {
    return refuse(
        Code::Config,
        fmt::format("worker {} looks for parameter server {} of {}; this is "
                    "{} of {}: give every worker the same HETU_SERVERS",
                    hello.worker, hello.server, hello.servers, options_.server, options_.servers));
  }
  const auto sits = seat_of_.find(from);
  // A connection belongs to one session for its whole life.
  if (sits != seat_of_.end() && sits->second->session != hello.session) {
    return answers_.drop(fmt::format("worker {} says hello again as another one on one connection",
                                     sits->second->worker));
  }
  if (state_->seats.count(hello.session) == 0) {
    if (const auto dead = state_->died_before.find(hello.worker);
        dead != state_->died_before.end()) {
      return refuse(Code::Comm, fmt::format("parameter server {} takes worker {} for dead: it {}",
                                            options_.server, hello.worker, dead->second));
    }
    if (hello.known) {
      return refuse(Code::Comm, fmt::format("parameter server {} was started anew and holds "
                                            "nothing of this training any more",
                                            options_.server));
    }
  }
  Seat& seat = seat_for(hello);
  if (state_->seats.size() > kMostSeats) {
    answers_.changes = false;
    state_->seats.erase(hello.session);
    return refuse(Code::Comm,
                  fmt::format("parameter server {} has {} clients, and worker {} would be one "
                              "more; end some",
                              options_.server, kMostSeats, hello.worker));
  }
  // Ignores a delayed Hello of an earlier attempt, and an equal attempt from another connection.
  if (attempt < seat.attempt || (attempt == seat.attempt && from != seat.peer)) return;
  if (attempt > seat.attempt) {
    seat_of_.erase(seat.peer);
    seat.peer = from;
    seat.attempt = attempt;
    seat.received = {};
    seat.sent = 0;
    seat_of_[from] = &seat;
  }
  seat.heard_us = now_us;
  answers_.send(seat, Welcome{});
}

void Store::take_message(Seat& seat, const FromClient& message, const Payload& payload) {
  if (const auto* init = std::get_if<Init>(&message)) return dense_->take(seat, *init, payload);
  if (const auto* push = std::get_if<Push>(&message)) return dense_->take(seat, *push, payload);
  if (const auto* rows = std::get_if<PushRows>(&message)) {
    return sparse_->take(seat, *rows, payload);
  }
  if (const auto* rows = std::get_if<SetRows>(&message)) return sparse_->take(seat, *rows, payload);
  if (const auto* rows = std::get_if<PullRows>(&message)) {
    return sparse_->take(seat, *rows, payload);
  }
  if (payload.bytes != 0) return answers_.drop("values in a message that has none");
  if (const auto* join = std::get_if<Join>(&message)) take_join(seat, *join);
  if (const auto* pull = std::get_if<Pull>(&message)) dense_->take(seat, *pull);
  if (const auto* got = std::get_if<Got>(&message)) dense_->take(seat, *got);
  if (const auto* who = std::get_if<Who>(&message)) take_who(seat, *who);
  if (const auto* leave = std::get_if<Leave>(&message)) take_leave(seat, *leave);
}

// `is_reserved`: the table's memory is granted already, and was when the log was written.
void Store::take_join(Seat& seat, const Join& join, bool is_reserved) {
  const auto refuse = [&](const std::string& text) {
    answers_.changes = false;
    answers_.send(seat, NotJoined{join.table, text});
  };
  if (const auto placed = seat.places.find(join.table); placed != seat.places.end()) {
    answers_.changes = false;
    return answers_.send(seat,
                         Joined{join.table, !placed->second.table->has_values(options_.server)});
  }
  std::string fault = fault_of(join.rule, join.elements);
  if (fault.empty() && join.width > 0) fault = fault_of_rows(join.elements, join.width, join.rule);
  if (!fault.empty()) {
    return refuse(fmt::format("table \"{}\" of worker {}: {}", join.name, seat.worker, fault));
  }
  const auto known = state_->tables.find(join.name);
  if (known == state_->tables.end() && !is_reserved) {
    const std::int64_t bytes = table_bytes(join, options_.server, options_.servers);
    const std::string full = room_->refusal(seat.worker, bytes, join.name);
    if (!full.empty()) return refuse(full);
  }
  const std::shared_ptr<TableState> table =
      known != state_->tables.end() ? known->second
                                    : make_table(join, options_.server, options_.servers, room_);
  if (known == state_->tables.end()) state_->tables[join.name] = table;
  Seat* holder = static_cast<std::size_t>(join.member) < table->members.size()
                     ? table->members[static_cast<std::size_t>(join.member)]
                     : nullptr;
  if (holder != nullptr && holder->gone()) return hold_early(seat, join);
  if (const std::string text = table->disagreement(join); !text.empty()) {
    return refuse(fmt::format("worker {} opens table \"{}\" with {}: open it alike everywhere",
                              seat.worker, join.name, text));
  }
  if (holder != nullptr) {
    return refuse(
        fmt::format("worker {} opens table \"{}\" as member {}, which is worker {}; each "
                    "member opens it once",
                    seat.worker, join.name, join.member, holder->worker));
  }
  table->members[static_cast<std::size_t>(join.member)] = &seat;
  seat.places[join.table] = {table, join.member};
  answers_.send(seat, Joined{join.table, !table->has_values(options_.server)});
}

// Keeps the join until the older table of the same name ends.
void Store::hold_early(Seat& seat, const Join& join) {
  const bool is_held = std::any_of(
      state_->early.begin(), state_->early.end(),
      [&](const EarlyJoin& held) { return held.seat == &seat && held.join.table == join.table; });
  answers_.changes = !is_held;
  if (is_held) return;
  const std::int64_t bytes = table_bytes(join, options_.server, options_.servers);
  const std::string full = room_->refusal(seat.worker, bytes, join.name);
  if (full.empty()) {
    state_->early.push_back({&seat, join, {room_, bytes}});
  } else {
    answers_.changes = false;
    answers_.send(seat, NotJoined{join.table, full});
  }
}

void Store::take_who(Seat& seat, const Who& who) {
  const auto placed = seat.places.find(who.table);
  const bool is_sparse = placed != seat.places.end() && placed->second.table->rows != nullptr;
  const Place* place = is_sparse ? &placed->second : dense_->place_of(seat, who.table, who.part);
  if (place == nullptr) return;
  const TableState& table = *place->table;
  const auto found = table.parts.find(who.part);
  if (table.rows == nullptr && found == table.parts.end()) return;
  const std::vector<std::int64_t>& clocks =
      table.rows != nullptr ? table.rows->clocks : found->second.clocks;
  answers_.send(seat, Waits{who.table, who.part, table.missing(clocks, who.least)});
}

// The client states how many pushes it has made here. If some are missing, they are being sent
// again, and Leave after them.
void Store::take_leave(Seat& seat, const Leave& leave) {
  answers_.changes = leave.pushes == seat.pushes && !seat.left;
  if (leave.pushes != seat.pushes) return;  // an update is being sent again
  answers_.send(seat, Left{});
  if (!answers_.changes) return;
  seat.left = true;
  answer_all(seat);
  forget_tables_that_ended();
}

}  // namespace hetu::ps::server
