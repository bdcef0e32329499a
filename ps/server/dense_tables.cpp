#include "ps/server/dense_tables.h"

#include <algorithm>

namespace hetu::ps::server {

TableMembership* DenseTables::membership_of(ClientSlot& client, int table, int part,
                                            const Payload* payload) {
  const auto found = client.memberships.find(table);
  if (found == client.memberships.end()) {
    answers_.drop(fmt::format("worker {} has not joined its table {}", client.worker, table));
    return nullptr;
  }
  const TableState& state = *found->second.table;
  const Split& split = state.split;
  if (state.rows != nullptr) {
    answers_.drop(
        fmt::format("it names part {} of table \"{}\", but the table is sparse and has no parts",
                    part, state.name));
    return nullptr;
  }
  if (part >= split.parts() || split.server(part) != options_.server) {
    answers_.drop(fmt::format("part {} of table \"{}\" is not on this server", part, state.name));
    return nullptr;
  }
  if (payload != nullptr && static_cast<std::int64_t>(payload->bytes) !=
                                split.elements(part) * static_cast<std::int64_t>(sizeof(float))) {
    answers_.drop(fmt::format("{} bytes for part {} of table \"{}\", which has {} elements",
                              payload->bytes, part, state.name, split.elements(part)));
    return nullptr;
  }
  return &found->second;
}

void DenseTables::take(ClientSlot& client, const Init& init, const Payload& payload) {
  const TableMembership* membership = membership_of(client, init.table, init.part, &payload);
  if (membership == nullptr) return;
  TableState& table = *membership->table;
  if (init.plane >= init.planes || init.planes > table.rule.planes()) {
    return answers_.drop(fmt::format("tensor {} of {} for a part of table \"{}\", which has {}",
                                     init.plane, init.planes, table.name, table.rule.planes()));
  }
  const bool is_new = table.parts.count(init.part) == 0;
  const auto arriving = table.arriving.find(init.part);
  const bool is_first = is_new && arriving == table.arriving.end();
  if (is_new && !is_first && init.planes != arriving->second.expected) {
    return answers_.drop(fmt::format("tensor {} of {} for a part of table \"{}\" that expects {}",
                                     init.plane, init.planes, table.name,
                                     arriving->second.expected));
  }
  if (is_first) {
    const auto members = static_cast<int>(table.members.size());
    const std::int64_t all = static_cast<std::int64_t>(payload.bytes) * table.rule.planes();
    const std::string full =
        pool_->budget()->refusal(client.worker, all + PartState::overhead(members), table.name);
    if (!full.empty()) return answers_.refuse(client, Code::Io, full);
  }
  answers_.changes = is_new && take_first(table, init, payload);
  answers_.send(client, Initialised{init.table, init.part, init.plane});
}

// Takes a plane of a part that has no values yet. Returns false if the plane is there already.
bool DenseTables::take_first(TableState& table, const Init& init, const Payload& payload) const {
  FirstPlanes& first = table.arriving[init.part];
  if (first.planes.empty()) {
    first.expected = init.planes;
    first.updates = init.updates;
  }
  const std::int64_t elements = table.split.elements(init.part);
  if (!first.planes.try_emplace(init.plane, values_of(payload, elements)).second) return false;
  if (first.is_whole()) {
    make_part(table, init.part, std::move(first));
    table.arriving.erase(init.part);
  }
  return true;
}

Part& DenseTables::make_part(TableState& table, int part, FirstPlanes first) const {
  const std::size_t members = table.members.size();
  PartState state(table.rule, table.split.begin(part), std::move(first), static_cast<int>(members),
                  pool_);
  return table.parts
      .emplace(part, Part{.state = std::move(state),
                          .clocks = std::vector<std::int64_t>(members),
                          .waiting = {},
                          .answered = {}})
      .first->second;
}

// Exactly-once rule: only the number after the member's clock is applied. Any other number is
// answered with the clock: that acknowledges a repeat, but not an update that came too early.
void DenseTables::take(ClientSlot& client, const Push& push, const Payload& payload) {
  const TableMembership* membership = membership_of(client, push.table, push.part, &payload);
  if (membership == nullptr) return;
  TableState& table = *membership->table;
  const auto found = table.parts.find(push.part);
  if (found == table.parts.end()) return answers_.drop("an update of a part without values");
  Part& part = found->second;
  std::int64_t& clock = part.clocks[static_cast<std::size_t>(membership->member)];
  const bool is_next = push.number == clock + 1;
  answers_.changes = is_next;
  if (is_next) {
    const std::string far = table.too_far(client, part.state.kept(membership->member).size());
    if (!far.empty()) return answers_.refuse(client, Code::InvalidArgument, far);
    if (table.rule.rule != Rule::Each) {
      const std::string full = pool_->budget()->refusal(
          client.worker, static_cast<std::int64_t>(payload.bytes), table.name);
      if (!full.empty()) return answers_.refuse(client, Code::Io, full);
    }
    part.state.take(membership->member, push.rate, payload.data);
    ++clock;
    ++client.pushes;
    if (options_.on_applied && table.rule.rule == Rule::Each) {
      options_.on_applied({table.name, push.part, membership->member, push.number});
    }
  }
  answers_.send(client, Pushed{push.table, push.part, clock});
  if (is_next) answer(table, push.part);
}

// A pull whose number is not above the answered one is a repeat: it gets the kept answer, so that
// lost answers don't change results. A higher number shows that the client has the old answer.
void DenseTables::take(ClientSlot& client, const Pull& pull) {
  const TableMembership* membership = membership_of(client, pull.table, pull.part);
  if (membership == nullptr) return;
  const auto found = membership->table->parts.find(pull.part);
  if (found == membership->table->parts.end())
    return answers_.drop("a pull of a part without values");
  if (pull.plane >= membership->table->rule.planes())
    return answers_.drop("a pull of a tensor that does not exist");
  std::vector<Answered>& answered = found->second.answered;
  const auto old = std::find_if(answered.begin(), answered.end(), [&](const Answered& other) {
    return other.member == membership->member;
  });
  if (old != answered.end() && pull.number <= old->number) {
    answers_.changes = false;
    if (pull.number == old->number) send_values(client, pull, *old);
    return;
  }
  if (old != answered.end()) answered.erase(old);
  std::vector<Part::Waiting>& waiting = found->second.waiting;
  const auto same = std::find_if(waiting.begin(), waiting.end(), [&](const Part::Waiting& other) {
    return other.member == membership->member;
  });
  if (same == waiting.end()) {
    waiting.push_back({membership->member, pull});
  } else if (same->pull.number < pull.number) {
    same->pull = pull;
  }
  answer(*membership->table, pull.part);
}

void DenseTables::send_values(ClientSlot& client, const Pull& pull, const Answered& answer) {
  const Values values{pull.table, pull.part, pull.number, answer.pushes, answer.updates};
  answers_.send(client, values, answer.values);
}

void DenseTables::take(ClientSlot& client, const Got& got) {
  const TableMembership* membership = membership_of(client, got.table, got.part);
  if (membership == nullptr) return;
  const auto found = membership->table->parts.find(got.part);
  if (found == membership->table->parts.end())
    return answers_.drop("an acknowledgement for a part without values");
  answers_.changes = std::erase_if(found->second.answered, [&](const Answered& one) {
                       return one.member == membership->member && one.number == got.number;
                     }) > 0;
}

// Called after every event that may complete a round or satisfy a pull: a push, a pull, a leave or
// a death.
void DenseTables::answer(TableState& table, int number) {
  const auto found = table.parts.find(number);
  if (found == table.parts.end()) return;
  Part& part = found->second;
  const Horizon horizon = table.horizon(part.clocks);
  part.state.apply_rounds(horizon.slowest, [&](int member, std::int64_t round) {
    if (options_.on_applied) options_.on_applied({table.name, number, member, round});
  });
  std::vector<Part::Waiting> waiting;
  waiting.swap(part.waiting);
  for (const Part::Waiting& each : waiting) {
    const Pull& pull = each.pull;
    ClientSlot& client = *table.members[static_cast<std::size_t>(each.member)];
    if (client.gone()) continue;
    if (pull.least > horizon.dead_clock) {
      answers_.send(client, NoValues{pull.table, number, pull.number,
                                     table.death(client, horizon, pull.least)});
    } else if (pull.least > horizon.slowest ||
               pull.after > part.clocks[static_cast<std::size_t>(each.member)]) {
      part.waiting.push_back(each);
    } else {
      part.answered.push_back({each.member, pull.number, pull.plane, part.state.counts().pushes,
                               part.state.counts().updates, part.state.lend(pull.plane)});
      send_values(client, pull, part.answered.back());
    }
  }
}

}  // namespace hetu::ps::server
