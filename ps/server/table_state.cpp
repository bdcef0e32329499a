#include "ps/server/table_state.h"

#include <algorithm>
#include <limits>

namespace hetu::ps::server {

namespace {
constexpr std::size_t kMostKept = 32;  // most updates of a member that wait for their rounds
}  // namespace

// A member that has not joined counts with its clock 0, so that pulls with least > 0 wait for it.
Horizon TableState::horizon(const std::vector<std::int64_t>& clocks) const {
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  Horizon horizon{kFar, kFar, nullptr};
  for (std::size_t m = 0; m < members.size(); ++m) {
    const ClientSlot* member = members[m];
    if (member != nullptr && member->left) continue;
    horizon.slowest = std::min(horizon.slowest, clocks[m]);
    if (member == nullptr || member->death.empty() || clocks[m] >= horizon.dead_clock) continue;
    horizon.dead = member;
    horizon.dead_clock = clocks[m];
  }
  return horizon;
}

std::string TableState::death(const ClientSlot& waits, const Horizon& horizon,
                              std::int64_t least) const {
  return fmt::format("worker {}, for whose update {} of table \"{}\" worker {} waits, {}",
                     horizon.dead->worker, least, name, waits.worker, horizon.dead->death);
}

std::string TableState::missing(const std::vector<std::int64_t>& clocks, std::int64_t least) const {
  constexpr int kNamed = 4;
  std::string text;
  int named = 0;
  for (std::size_t m = 0; m < members.size(); ++m) {
    const ClientSlot* member = members[m];
    if (clocks[m] >= least || (member != nullptr && member->left)) continue;
    if (++named > kNamed) continue;
    if (named > 1) text += ", ";
    text += member == nullptr
                ? fmt::format("member {}, which has not connected", m)
                : fmt::format("worker {} ({} updates of {})", member->worker, clocks[m], least);
  }
  if (named > kNamed) text += fmt::format(" and {} more", named - kNamed);
  return text;
}

std::string TableState::too_far(const ClientSlot& member, std::size_t kept) const {
  if (kept < kMostKept) return "";
  return fmt::format(
      "worker {} is {} rounds of table \"{}\" ahead of the slowest member; "
      "wait for it with a pull",
      member.worker, kMostKept, name);
}

std::string TableState::disagreement(const Join& join) const {
  if (join.elements != elements || static_cast<std::size_t>(join.members) != members.size()) {
    return fmt::format("{} elements for {} members; it has {} for {}", join.elements, join.members,
                       elements, members.size());
  }
  if (join.width != width || !(join.first == first)) {
    return fmt::format("rows of width {}; it has rows of width {}{}", join.width, width,
                       join.width == width ? " with other initial values" : "");
  }
  if (!(join.rule == rule)) {
    const bool alike = describe(join.rule) == describe(rule);
    return fmt::format("{}; it has {}{}", describe(join.rule), describe(rule),
                       alike ? " with other settings" : "");
  }
  return "";
}

// A dense table's progress is that of the part that is furthest behind.
TableStatus TableState::status() const {
  TableStatus status{.name = name,
                     .rule = describe(rule),
                     .elements = elements,
                     .width = width,
                     .members = {},
                     .waiting = {}};
  std::vector<std::int64_t> clocks(members.size());
  std::map<int, WaitStatus> waiting;
  const auto wait = [&](int member, std::int64_t least) {
    WaitStatus& one = waiting.try_emplace(member, WaitStatus{member, least, 0}).first->second;
    one.least = std::max(one.least, least);
    ++one.parts;
  };
  if (rows != nullptr) {
    clocks = rows->clocks;
    status.bytes = rows->state.bytes();
    status.pushes = rows->state.counts().pushes;
    status.updates = rows->state.counts().updates;
    for (const RowsState::Waiting& each : rows->waiting) wait(each.member, each.pull.least);
  }
  bool is_first = true;
  for (const auto& [number, part] : parts) {
    const PartState& state = part.state;
    status.bytes +=
        split.elements(number) * state.planes() * static_cast<std::int64_t>(sizeof(float));
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
    const ClientSlot* client = members[m];
    if (client == nullptr) {
      status.members.push_back({-1, Presence::NotCome, clocks[m]});
    } else {
      status.members.push_back({client->worker, client->presence(), clocks[m]});
    }
  }
  for (const auto& [member, one] : waiting) status.waiting.push_back(one);
  return status;
}

namespace {

RowTable::About about_rows(const Join& join, int server, int servers) {
  return {.name = join.name,
          .split = {join.elements / join.width, servers},
          .server = server,
          .width = join.width,
          .first = join.first};
}

// Returns the bytes of a table besides its parts and rows.
std::int64_t own_bytes(const Join& join) {
  constexpr std::size_t kMember = 64;
  const std::size_t spans = join.rule.optimizer ? join.rule.optimizer->undecayed.size() : 0;
  return static_cast<std::int64_t>(sizeof(TableState) + join.name.size() + spans * sizeof(Span) +
                                   static_cast<std::size_t>(join.members) * kMember);
}

}  // namespace

std::int64_t table_bytes(const Join& join, int server, int servers) {
  if (join.width == 0) return own_bytes(join);
  return own_bytes(join) +
         RowTable::overhead(join.rule, about_rows(join, server, servers), join.members);
}

std::shared_ptr<TableState> make_table(const Join& join, int server, int servers,
                                       const std::shared_ptr<MemoryBudget>& budget) {
  const auto members = static_cast<std::size_t>(join.members);
  auto table = std::make_shared<TableState>(TableState{.name = join.name,
                                                       .elements = join.elements,
                                                       .split = Split(join.elements, servers),
                                                       .rule = join.rule,
                                                       .members = std::vector<ClientSlot*>(members),
                                                       .arriving = {},
                                                       .parts = {},
                                                       .width = join.width,
                                                       .first = join.first,
                                                       .rows = nullptr,
                                                       .share = {budget, own_bytes(join)}});
  if (join.width == 0) return table;
  RowTable state(table->rule, about_rows(join, server, servers), join.members, budget);
  table->rows = std::make_unique<RowsState>(RowsState{.state = std::move(state),
                                                      .taken = std::vector<std::int64_t>(members),
                                                      .clocks = std::vector<std::int64_t>(members),
                                                      .waiting = {}});
  return table;
}

}  // namespace hetu::ps::server
