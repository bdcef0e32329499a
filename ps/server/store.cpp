#include "ps/server/store.h"

#include <algorithm>

#include "ps/server/dense_tables.h"
#include "ps/server/sparse_tables.h"

namespace hetu::ps::server {

Store::Store(StoreOptions options)
    : options_(std::move(options)),
      answers_(options_.server),
      state_(std::make_unique<StoreState>()),
      dense_(std::make_unique<DenseTables>(answers_, options_)),
      sparse_(std::make_unique<SparseTables>(answers_, options_)) {}
Store::~Store() = default;

void Store::note(Change::Of of, std::uint64_t who, const Payload& words, const Payload& values) {
  if (options_.on_change) options_.on_change({of, who, words, values});
}

void Store::receive(Peer from, const Bytes& header, const Payload& payload, std::int64_t now_us) {
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
  if (framed.attempt != seat.attempt) return;  // from before the line was lost
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
  // All that is missing comes again, in order: a pull before the push whose values it asks for.
  if (seat.received.missed) return;
  if (seat.left && !std::holds_alternative<Leave>(framed.message)) return;
  // Here alone a message is recorded: every kind, unless it is known to have changed nothing.
  answers_.changes = !std::holds_alternative<Who>(framed.message);
  take_message(seat, framed.message, payload);
  if (answers_.changes) {
    note(Change::Of::Message, seat.session, {header.data(), header.size()}, payload);
  }
}

Seat& Store::seat_for(const Hello& hello) {
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

void Store::take_join(Seat& seat, const Join& join) {
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
  std::shared_ptr<TableState>& table = state_->tables[join.name];
  if (!table) table = make_table(join, options_.server, options_.servers);
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

// Its table is still that of the training before.
void Store::hold_early(Seat& seat, const Join& join) {
  const bool is_held = std::any_of(
      state_->early.begin(), state_->early.end(),
      [&](const auto& held) { return held.first == &seat && held.second.table == join.table; });
  if (is_held) answers_.changes = false;
  if (!is_held) state_->early.emplace_back(&seat, join);
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

void Store::take_leave(Seat& seat, const Leave& leave) {
  answers_.changes = leave.pushes == seat.pushes && !seat.left;
  if (leave.pushes != seat.pushes) return;  // an update is on its way again
  answers_.send(seat, Left{});
  if (!answers_.changes) return;
  seat.left = true;
  answer_all(seat);
  forget_tables_that_ended();
}

}  // namespace hetu::ps::server
