#include "ps/server/store.h"

#include <algorithm>

#include "graph/base/log.h"
#include "ps/server/store_impl.h"

namespace hetu::ps::server {

namespace {
constexpr int kDropsLogged = 5;

}  // namespace

Store::Store(StoreOptions options) : options_(std::move(options)) {}
Store::~Store() = default;

void Store::send(Seat& seat, const FromServer& message, const Payload& payload) {
  const bool has_place = !std::holds_alternative<Welcome>(message) &&
                         !std::holds_alternative<BeatBack>(message) &&
                         !std::holds_alternative<Refusal>(message);
  const std::int64_t serial = has_place ? ++seat.sent : 0;
  outgoing_.push_back({seat.peer, encode(seat.attempt, message, serial), payload});
}

void Store::drop(const std::string& why) {
  if (++dropped_ <= kDropsLogged) {
    log(Level::Warning, "parameter server {}: a message was dropped: {}", options_.server, why);
  }
}

std::vector<Store::Outgoing> Store::take() { return std::exchange(outgoing_, {}); }

void Store::receive(Peer from, const Bytes& header, const Payload& payload, std::int64_t now_us) {
  Framed<FromClient> framed;
  try {
    framed = decode_from_client(header.data(), header.size());
  } catch (const Error& error) {
    return drop(error.what());
  }
  if (const auto* hello = std::get_if<Hello>(&framed.message)) {
    return take_hello(from, framed.attempt, *hello, now_us);
  }
  const auto found = seat_of_.find(from);
  if (found == seat_of_.end()) return drop("its sender has not said hello");
  Seat& seat = *found->second;
  if (framed.attempt != seat.attempt) return;  // from before the line was lost
  seat.heard_us = now_us;
  if (!seat.death.empty()) {
    return send(
        seat, Refusal{Code::Comm, fmt::format("parameter server {} takes worker {} for dead: it {}",
                                              options_.server, seat.worker, seat.death)});
  }
  if (const auto* beat = std::get_if<Beat>(&framed.message)) {
    return send(seat, BeatBack{seat.received.all(beat->sent), seat.sent});
  }
  seat.received.take(framed.serial);
  if (seat.left && !std::holds_alternative<Leave>(framed.message)) return;
  take_message(seat, framed.message, payload);
}

void Store::take_hello(Peer from, std::uint32_t attempt, const Hello& hello, std::int64_t now_us) {
  const auto refuse = [&](Code code, const std::string& text) {
    outgoing_.push_back({from, encode(attempt, Refusal{code, text}), {}});
  };
  if (hello.server != options_.server || hello.servers != options_.servers) {
    return refuse(
        Code::Config,
        fmt::format("worker {} looks for parameter server {} of {}; this is "
                    "{} of {}: give every worker the same HETU_SERVERS",
                    hello.worker, hello.server, hello.servers, options_.server, options_.servers));
  }
  std::unique_ptr<Seat>& seat = seats_[hello.session];
  if (!seat) {
    if (const auto dead = died_before_.find(hello.worker); dead != died_before_.end()) {
      seats_.erase(hello.session);
      return refuse(Code::Comm, fmt::format("parameter server {} takes worker {} for dead: it {}",
                                            options_.server, hello.worker, dead->second));
    }
    if (hello.known) {
      seats_.erase(hello.session);
      return refuse(Code::Comm, fmt::format("parameter server {} was started anew and holds "
                                            "nothing of this training any more",
                                            options_.server));
    }
    seat = std::make_unique<Seat>();
    seat->worker = hello.worker;
  }
  if (attempt < seat->attempt || (attempt == seat->attempt && from != seat->peer)) return;
  if (attempt > seat->attempt) {
    seat_of_.erase(seat->peer);
    seat->peer = from;
    seat->attempt = attempt;
    seat->received = {};
    seat->sent = 0;
    seat_of_[from] = seat.get();
  }
  seat->heard_us = now_us;
  send(*seat, Welcome{});
}

void Store::take_message(Seat& seat, const FromClient& message, const Payload& payload) {
  if (const auto* init = std::get_if<Init>(&message)) return take_init(seat, *init, payload);
  if (const auto* push = std::get_if<Push>(&message)) return take_push(seat, *push, payload);
  if (const auto* rows = std::get_if<PushRows>(&message)) {
    return take_push_rows(seat, *rows, payload);
  }
  if (const auto* rows = std::get_if<SetRows>(&message)) return take_set_rows(seat, *rows, payload);
  if (const auto* rows = std::get_if<PullRows>(&message)) {
    return take_pull_rows(seat, *rows, payload);
  }
  if (payload.bytes != 0) return drop("values in a message that has none");
  if (const auto* join = std::get_if<Join>(&message)) take_join(seat, *join);
  if (const auto* pull = std::get_if<Pull>(&message)) take_pull(seat, *pull);
  if (const auto* who = std::get_if<Who>(&message)) take_who(seat, *who);
  if (const auto* leave = std::get_if<Leave>(&message)) take_leave(seat, *leave);
}

void Store::take_join(Seat& seat, const Join& join) {
  const auto refuse = [&](const std::string& text) { send(seat, NotJoined{join.table, text}); };
  if (const auto placed = seat.places.find(join.table); placed != seat.places.end()) {
    return send(seat, Joined{join.table, !placed->second.table->has_values(options_.server)});
  }
  std::string fault = fault_of(join.rule, join.elements);
  if (fault.empty() && join.width > 0) fault = fault_of_rows(join.elements, join.width, join.rule);
  if (!fault.empty()) {
    return refuse(fmt::format("table \"{}\" of worker {}: {}", join.name, seat.worker, fault));
  }
  std::shared_ptr<TableState>& table = tables_[join.name];
  if (!table) {
    table = std::make_shared<TableState>(
        TableState{.name = join.name,
                   .elements = join.elements,
                   .split = Split(join.elements, options_.servers),
                   .rule = join.rule,
                   .members = std::vector<Seat*>(static_cast<std::size_t>(join.members)),
                   .arriving = {},
                   .parts = {},
                   .width = join.width,
                   .first = join.first,
                   .rows = nullptr});
    if (join.width > 0) make_rows(*table);
  }
  Seat* holder = static_cast<std::size_t>(join.member) < table->members.size()
                     ? table->members[static_cast<std::size_t>(join.member)]
                     : nullptr;
  if (holder != nullptr && holder->gone()) {  // of the training before
    const bool is_held = std::any_of(early_.begin(), early_.end(), [&](const auto& held) {
      return held.first == &seat && held.second.table == join.table;
    });
    if (!is_held) early_.emplace_back(&seat, join);
    return;
  }
  if (join.elements != table->elements ||
      static_cast<std::size_t>(join.members) != table->members.size()) {
    return refuse(
        fmt::format("worker {} opens table \"{}\" with {} elements for {} members; it has "
                    "{} for {}: open it alike everywhere",
                    seat.worker, join.name, join.elements, join.members, table->elements,
                    table->members.size()));
  }
  if (join.width != table->width || !(join.first == table->first)) {
    return refuse(
        fmt::format("worker {} opens table \"{}\" with rows of {}; it has rows of {}{}: open it "
                    "alike everywhere",
                    seat.worker, join.name, join.width, table->width,
                    join.width == table->width ? " that begin otherwise" : ""));
  }
  if (!(join.rule == table->rule)) {
    const bool alike = describe(join.rule) == describe(table->rule);
    return refuse(fmt::format(
        "worker {} opens table \"{}\" with {}; it has {}{}: open it alike everywhere", seat.worker,
        join.name, describe(join.rule), describe(table->rule), alike ? " of other settings" : ""));
  }
  if (holder != nullptr) {
    return refuse(
        fmt::format("worker {} opens table \"{}\" as member {}, which is worker {}; each "
                    "member opens it once",
                    seat.worker, join.name, join.member, holder->worker));
  }
  let_in(seat, join, table);
}

void Store::let_in(Seat& seat, const Join& join, const std::shared_ptr<TableState>& table) {
  table->members[static_cast<std::size_t>(join.member)] = &seat;
  seat.places[join.table] = {table, join.member};
  send(seat, Joined{join.table, !table->has_values(options_.server)});
}

// Where a message about a part leads; nullptr, and the message dropped, if no worker of ours sends
// it. `full`: it carries as many values as the part has; else the part must have some.
Store::Place* Store::place_of(Seat& seat, int table, int part, const Payload& payload, bool full) {
  const auto found = seat.places.find(table);
  if (found == seat.places.end()) {
    drop(fmt::format("worker {} has not joined its table {}", seat.worker, table));
    return nullptr;
  }
  const TableState& state = *found->second.table;
  const Split& split = state.split;
  if (state.rows != nullptr) {
    drop(fmt::format("a message about part {} of table \"{}\", which is sparse", part, state.name));
    return nullptr;
  }
  if (part >= split.parts() || split.server(part) != options_.server) {
    drop(fmt::format("part {} of table \"{}\" is not on this server", part, state.name));
    return nullptr;
  }
  if (full && static_cast<std::int64_t>(payload.bytes) !=
                  split.elements(part) * static_cast<std::int64_t>(sizeof(float))) {
    drop(fmt::format("{} bytes for part {} of table \"{}\", which has {} elements", payload.bytes,
                     part, state.name, split.elements(part)));
    return nullptr;
  }
  return &found->second;
}

void Store::take_init(Seat& seat, const Init& init, const Payload& payload) {
  const Place* place = place_of(seat, init.table, init.part, payload, true);
  if (place == nullptr) return;
  TableState& table = *place->table;
  if (init.plane >= init.planes || init.planes > table.rule.planes()) {
    return drop(fmt::format("tensor {} of {} for a part of table \"{}\", which has {}", init.plane,
                            init.planes, table.name, table.rule.planes()));
  }
  if (table.parts.count(init.part) == 0) {
    const std::int64_t begin = table.split.begin(init.part);
    const std::int64_t elements = table.split.elements(init.part);
    FirstPlanes& first = table.arriving.try_emplace(init.part).first->second;
    if (first.planes.empty()) {
      first.expected = init.planes;
      first.updates = init.updates;
    }
    first.planes.try_emplace(init.plane, payload.data, elements, pool_);
    if (first.is_whole()) {
      const int members = static_cast<int>(table.members.size());
      table.parts.emplace(
          init.part, Part{.state = PartState(table.rule, begin, std::move(first), members, pool_),
                          .clocks = std::vector<std::int64_t>(table.members.size()),
                          .waiting = {}});
      table.arriving.erase(init.part);
    }
  }
  send(seat, Initialised{init.table, init.part, init.plane});
}

void Store::take_push(Seat& seat, const Push& push, const Payload& payload) {
  const Place* place = place_of(seat, push.table, push.part, payload, true);
  if (place == nullptr) return;
  TableState& table = *place->table;
  const auto found = table.parts.find(push.part);
  if (found == table.parts.end()) return drop("an update of a part without values");
  Part& part = found->second;
  std::int64_t& clock = part.clocks[static_cast<std::size_t>(place->member)];
  const bool is_next = push.number == clock + 1;
  if (is_next) {
    if (part.state.kept(place->member) >= kMostKept) {
      return send(seat, Refusal{Code::InvalidArgument,
                                fmt::format("worker {} is {} rounds of table \"{}\" ahead of the "
                                            "slowest; pull at least so near",
                                            seat.worker, kMostKept, table.name)});
    }
    part.state.take(place->member, push.rate, payload.data);
    ++clock;
    ++seat.pushes;
    if (options_.on_applied && table.rule.rule == Rule::Each) {
      options_.on_applied({table.name, push.part, place->member, push.number});
    }
  }
  send(seat, Pushed{push.table, push.part, clock});
  if (is_next) answer(table, push.part);
}

void Store::take_pull(Seat& seat, const Pull& pull) {
  const Place* place = place_of(seat, pull.table, pull.part, {}, false);
  if (place == nullptr) return;
  const auto found = place->table->parts.find(pull.part);
  if (found == place->table->parts.end()) return drop("a pull of a part without values");
  if (pull.plane >= place->table->rule.planes()) return drop("a pull of a tensor that is none");
  std::vector<Part::Waiting>& waiting = found->second.waiting;
  const auto same = std::find_if(waiting.begin(), waiting.end(), [&](const Part::Waiting& other) {
    return other.member == place->member;
  });
  if (same == waiting.end()) {
    waiting.push_back({place->member, pull});
  } else if (same->pull.number < pull.number) {
    same->pull = pull;
  }
  answer(*place->table, pull.part);
}

void Store::take_who(Seat& seat, const Who& who) {
  constexpr int kNamed = 4;
  const auto placed = seat.places.find(who.table);
  const bool is_sparse = placed != seat.places.end() && placed->second.table->rows != nullptr;
  const Place* place = is_sparse ? &placed->second : place_of(seat, who.table, who.part, {}, false);
  if (place == nullptr) return;
  const TableState& table = *place->table;
  const auto found = table.parts.find(who.part);
  if (table.rows == nullptr && found == table.parts.end()) return;
  const std::vector<std::int64_t>& clocks =
      table.rows != nullptr ? table.rows->clocks : found->second.clocks;
  std::string text;
  int named = 0;
  for (std::size_t m = 0; m < table.members.size(); ++m) {
    const Seat* member = table.members[m];
    const std::int64_t clock = clocks[m];
    if (clock >= who.least || (member != nullptr && member->left)) continue;
    if (++named > kNamed) continue;
    if (named > 1) text += ", ";
    text += member == nullptr
                ? fmt::format("member {}, which has not come", m)
                : fmt::format("worker {} ({} updates of {})", member->worker, clock, who.least);
  }
  if (named > kNamed) text += fmt::format(" and {} more", named - kNamed);
  send(seat, Waits{who.table, who.part, text});
}

void Store::take_leave(Seat& seat, const Leave& leave) {
  if (leave.pushes != seat.pushes) return;  // an update is on its way again
  send(seat, Left{});
  if (seat.left) return;
  seat.left = true;
  answer_all(seat);
  forget_tables_that_ended();
}

void Store::apply_rounds(TableState& table, int number, std::int64_t slowest) {
  table.parts.at(number).state.apply_rounds(slowest, [&](int member, std::int64_t round) {
    if (options_.on_applied) options_.on_applied({table.name, number, member, round});
  });
}

Store::Horizon Store::horizon_of(const TableState& table, const std::vector<std::int64_t>& clocks) {
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  Horizon horizon{kFar, kFar, nullptr};
  for (std::size_t m = 0; m < table.members.size(); ++m) {
    const Seat* member = table.members[m];
    if (member != nullptr && member->left) continue;
    horizon.slowest = std::min(horizon.slowest, clocks[m]);
    if (member == nullptr || member->death.empty() || clocks[m] >= horizon.dead_clock) continue;
    horizon.dead = member;
    horizon.dead_clock = clocks[m];
  }
  return horizon;
}

std::string Store::death_of(const TableState& table, const Seat& waits, const Horizon& horizon,
                            std::int64_t least) {
  return fmt::format("worker {}, for whose update {} of table \"{}\" worker {} waits, {}",
                     horizon.dead->worker, least, table.name, waits.worker, horizon.dead->death);
}

// Applies the rounds of a part that are whole, and answers the pulls that need wait no longer.
void Store::answer(TableState& table, int number) {
  const auto found = table.parts.find(number);
  if (found == table.parts.end()) return;
  Part& part = found->second;
  const Horizon horizon = horizon_of(table, part.clocks);
  apply_rounds(table, number, horizon.slowest);
  std::vector<Part::Waiting> waiting;
  waiting.swap(part.waiting);
  for (const Part::Waiting& each : waiting) {
    const Pull& pull = each.pull;
    Seat& seat = *table.members[static_cast<std::size_t>(each.member)];
    if (seat.gone()) continue;
    if (pull.least > horizon.dead_clock) {
      send(seat,
           NoValues{pull.table, number, pull.number, death_of(table, seat, horizon, pull.least)});
    } else if (pull.least > horizon.slowest ||
               pull.after > part.clocks[static_cast<std::size_t>(each.member)]) {
      part.waiting.push_back(each);
    } else {
      const Values values{pull.table, number, pull.number, part.state.pushes(),
                          part.state.updates()};
      send(seat, values, part.state.lend(pull.plane));
    }
  }
}

}  // namespace hetu::ps::server
