#include "pipeline/ir/schedule.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/error.h"

namespace hetu {
namespace {

struct KindRow {
  Kind kind;
  const char* name;
  bool has_stage;
  bool has_micro;
};

// In the order of Kind, so that a kind is the index of its row.
const KindRow kKinds[] = {
    {Kind::Forward, "F", true, true},
    {Kind::Backward, "B", true, true},
    {Kind::InputGrad, "I", true, true},
    {Kind::WeightGrad, "W", true, true},
    {Kind::Recompute, "R", true, true},
    {Kind::SendForward, "SEND_F", true, true},
    {Kind::RecvForward, "RECV_F", true, true},
    {Kind::SendBackward, "SEND_B", true, true},
    {Kind::RecvBackward, "RECV_B", true, true},
    {Kind::ReduceGrad, "REDUCE_GRAD", true, false},
    {Kind::ReduceScalars, "REDUCE_SCALARS", false, false},
    {Kind::Update, "UPDATE", true, false},
    {Kind::PartialReduce, "PARTIAL_REDUCE", true, false},
    {Kind::Push, "PUSH", true, false},
    {Kind::Pull, "PULL", true, false},
    {Kind::CurvatureA, "CURVATURE_A", true, true},
    {Kind::CurvatureB, "CURVATURE_B", true, true},
    {Kind::SyncA, "SYNC_A", true, false},
    {Kind::SyncB, "SYNC_B", true, false},
    {Kind::InvertA, "INVERT_A", true, false},
    {Kind::InvertB, "INVERT_B", true, false},
    {Kind::Gather, "GATHER", true, false},
    {Kind::Precondition, "PRECONDITION", true, false},
};

const KindRow& row(Kind kind) { return kKinds[static_cast<int>(kind)]; }

std::string known_kinds() {
  std::string names;
  for (const KindRow& k : kKinds) names.append(names.empty() ? "" : " ").append(k.name);
  return names;
}

// Shortens a cell for an error message and puts it on one line. Cells come from files and may be
// long.
std::string shortened(std::string_view cell) {
  constexpr std::size_t kMost = 40;
  std::string text(cell.substr(0, kMost));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return cell.size() <= kMost ? text : text + "…";
}

// Removes the digits at the front of `rest` and returns their number, or -1 if there are no digits.
int take_number(std::string_view& rest, std::string_view cell) {
  int value = -1;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  require(error != std::errc::result_out_of_range, "action '{}': the number is too large",
          shortened(cell));
  if (error != std::errc()) return -1;
  rest.remove_prefix(end - rest.data());
  return value;
}

std::string_view take_name(std::string_view& rest) {
  const auto is_name = [](char c) { return (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto end = std::find_if_not(rest.begin(), rest.end(), is_name);
  const std::string_view name = rest.substr(0, end - rest.begin());
  rest.remove_prefix(name.size());
  return name;
}

}  // namespace

const char* kind_name(Kind kind) { return row(kind).name; }

int model_stages(const Schedule& schedule) {
  int count = 0;
  for (const Placement& p : schedule.placements) count = std::max(count, p.model_stage + 1);
  return count;
}

bool is_lowered(const Schedule& schedule) {
  return any_instr(schedule, [](const Instr& i) { return is_send(i.kind) || is_recv(i.kind); });
}

int total_micros(const Schedule& schedule) { return schedule.micro_batches * schedule.steps; }

int forward_version(const Schedule& schedule, int micro, int updates) {
  const int per_step = schedule.micro_batches;
  switch (schedule.version_rule) {
    case VersionRule::Newest:
      return updates;
    case VersionRule::Lag1:
      return std::max(0, micro / per_step - 1);
    case VersionRule::Wave:
      return std::max(0, micro + 1 - per_step);
  }
  return updates;
}

int micros_per_update(const Schedule& schedule) {
  return schedule.version_rule == VersionRule::Wave ? 1 : schedule.micro_batches;
}

int updates_per_wave(const Schedule& schedule) {
  return schedule.micro_batches / micros_per_update(schedule);
}

bool updates_at_servers(const Schedule& schedule) {
  return schedule.lowering.has_servers() && schedule.version_rule != VersionRule::Wave;
}

std::int64_t least_clock(int staleness, std::int64_t waves) {
  return staleness == kAnyStaleness ? std::numeric_limits<std::int64_t>::min() : waves - staleness;
}

Schedule with_steps(const Schedule& schedule, int steps) {
  Schedule longer = schedule;
  const int more = (steps - schedule.steps) * schedule.micro_batches;
  longer.steps = steps;
  for (std::size_t w = 0; w < longer.workers.size() && more != 0; ++w) {
    Program& p = longer.workers[w];
    if (p.shift <= 0 || more % p.shift != 0 || p.repeat + more / p.shift < 0)
      fail(Code::Plan,
           "a plan of {} step(s) can't be changed to {} steps: the body of worker {} repeats {} "
           "times with {} micro-batch(es) each",
           schedule.steps, steps, w, p.repeat, p.shift);
    p.repeat += more / p.shift;
    for (Instr& i : p.drain)
      if (i.micro >= 0) i.micro += more;
  }
  return longer;
}

int placement_of(const Schedule& schedule, int model_stage, int replica) {
  for (std::size_t i = 0; i < schedule.placements.size(); ++i) {
    const Placement& p = schedule.placements[i];
    if (p.model_stage == model_stage && p.replica == replica) return static_cast<int>(i);
  }
  return -1;
}

std::vector<Instr> unroll(const Program& program) {
  std::vector<Instr> row;
  row.reserve(program.prologue.size() + program.body.size() * std::max(program.repeat, 0) +
              program.drain.size());
  append_unrolled(program, row);
  return row;
}

void append_unrolled(const Program& program, std::vector<Instr>& row) {
  row.insert(row.end(), program.prologue.begin(), program.prologue.end());
  for (int r = 0; r < program.repeat; ++r) {
    for (Instr i : program.body) {
      if (i.micro >= 0) i.micro += r * program.shift;
      row.push_back(i);
    }
  }
  row.insert(row.end(), program.drain.begin(), program.drain.end());
}

std::string to_string(const Instr& instr) {
  const KindRow& k = row(instr.kind);
  std::string text = k.has_stage ? std::to_string(instr.stage) : std::string();
  text += k.name;
  if (k.has_micro) text += std::to_string(instr.micro);
  if (instr.part > 0) text.append(":").append(std::to_string(instr.part));
  return text;
}

Instr parse_instr(std::string_view cell) {
  std::string_view rest = cell;
  Instr instr;
  instr.stage = take_number(rest, cell);
  const std::string_view name = take_name(rest);
  const auto* found =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](auto& k) { return name == k.name; });
  require(found != std::end(kKinds),
          "unknown action '{}': an action is <stage><KIND><micro>, where KIND is one of {}",
          shortened(cell), known_kinds());
  instr.kind = found->kind;
  instr.micro = take_number(rest, cell);
  if (!rest.empty() && rest.front() == ':') {
    rest.remove_prefix(1);
    const int part = take_number(rest, cell);
    require(part >= 0 && part <= INT16_MAX, "action '{}': the part after ':' must be 0…{}",
            shortened(cell), INT16_MAX);
    instr.part = static_cast<std::int16_t>(part);
  }
  require(rest.empty(), "unknown action '{}': unexpected '{}' at the end", shortened(cell),
          shortened(rest));
  require((instr.stage >= 0) == found->has_stage, "action '{}': {} {} a stage before it",
          shortened(cell), found->name, found->has_stage ? "needs" : "has no");
  require((instr.micro >= 0) == found->has_micro, "action '{}': {} {} a micro-batch after it",
          shortened(cell), found->name, found->has_micro ? "needs" : "has no");
  return instr;
}

}  // namespace hetu
