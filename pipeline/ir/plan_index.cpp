// The index is one flat table. where_[cell(slot, stage, micro)] is the position that makes a
// result, where a slot is a kind of result: output, input gradient, weight gradient, recomputed
// activations, and for lowered plans the sends and receives of each edge. A lookup is one
// multiplication and one access. A repeated instruction shows as a cell that is already filled.
#include "pipeline/ir/plan_index.h"

#include <algorithm>

#include "base/error.h"

namespace hetu {
namespace {

// Results of one stage and micro-batch. A B makes both gradients. A lowered plan has four more
// results per part of an edge: the two sends and the two receives.
enum Slot { kOutput, kInputGrad, kWeightGrad, kRecomputed, kMessages };

std::int64_t row_length(const Program& p) {
  return static_cast<std::int64_t>(p.prologue.size()) + p.drain.size() +
         static_cast<std::int64_t>(p.body.size()) * std::max(p.repeat, 0);
}

[[noreturn]] void fail_too_short(const Schedule& schedule, std::int64_t micros,
                                 std::int64_t length) {
  const auto& rows = schedule.workers;
  const auto shortest = std::min_element(
      rows.begin(), rows.end(),
      [](const Program& a, const Program& b) { return row_length(a) < row_length(b); });
  std::string line;
  if (shortest != rows.end())
    line = fmt::format("\n  worker {} has {}, the fewest", shortest - rows.begin(),
                       row_length(*shortest));
  fail(Code::Plan,
       "plan is incomplete: {} micro-batches on {} model stages need more than {} instructions:{}",
       micros, model_stages(schedule), length, line);
}

}  // namespace

PlanIndex::PlanIndex(const Schedule& schedule)
    : schedule_(schedule), lowered_(is_lowered(schedule)), graph_(schedule, lowered_) {
  std::int64_t length = 0;
  for (const Program& p : schedule.workers) length += row_length(p);
  require(schedule.micro_batches >= 1 && schedule.steps >= 1,
          "a plan needs at least 1 micro-batch and 1 step, got {} and {}", schedule.micro_batches,
          schedule.steps);
  const std::int64_t total = static_cast<std::int64_t>(schedule.micro_batches) * schedule.steps;
  require(length < (std::int64_t{1} << 28), "a plan of {} instructions is too large", length);
  // Each micro-batch needs an F on each model stage. Plans with fewer instructions are refused
  // here, before the tables are allocated.
  if (total > length || total * model_stages(schedule) > length)
    fail_too_short(schedule, total, length);
  total_ = static_cast<int>(total);
  micros_ = backward_micros();
  slots_ =
      kMessages + (lowered_ ? 4 * (1 + static_cast<int>(schedule.lowering.extra_edges.size())) : 0);
  const double cells = 1.0 * graph_.stages() * micros_ * slots_;
  require(cells < (std::int64_t{1} << 31), "a plan of {} stages x {} micro-batches is too large",
          graph_.stages(), micros_);
  where_.assign(static_cast<std::size_t>(cells), -1);
  instrs_.reserve(length);
  row_begin_.push_back(0);
  for (const Program& p : schedule.workers) {
    append_unrolled(p, instrs_);
    row_begin_.push_back(size());
  }
  for (int w = 0; w < workers(); ++w) {
    for (int p = row_begin(w); p < row_end(w); ++p) {
      const Instr& i = instrs_[p];
      if (i.stage < 0 ? i.kind != Kind::ReduceScalars
                      : i.stage >= graph_.stages() || graph_.worker(i.stage) != w) {
        const bool known = i.stage >= 0 && i.stage < graph_.stages();
        fail(Code::Plan, "{} is misplaced:\n  worker {} at {}: {}{}", to_string(i), w, cell_text(p),
             to_string(i),
             known ? fmt::format(", but stage {} is on worker {}", i.stage, graph_.worker(i.stage))
                   : fmt::format(", but the stages are 0…{}", graph_.stages() - 1));
      }
      if (i.with_next) check_pair(p, row_end(w));
      check(p);
      enter(p);
    }
  }
}

int PlanIndex::row_of(int position) const {
  return static_cast<int>(std::upper_bound(row_begin_.begin(), row_begin_.end(), position) -
                          row_begin_.begin()) -
         1;
}

int PlanIndex::cell_of(int position) const {
  int cell = 1;
  for (int p = row_begin(row_of(position)); p < position; ++p) cell += instrs_[p].with_next ? 0 : 1;
  return cell;
}

std::string PlanIndex::cell_text(int position) const {
  return fmt::format("cell {}{}", cell_of(position), lowered_ ? " with messages" : "");
}

std::string PlanIndex::describe(int position) const {
  return fmt::format("worker {} at {}: {}", worker_of(position), cell_text(position),
                     to_string(instrs_[position]));
}

void PlanIndex::check_pair(int position, int end) const {
  const Instr& first = instrs_[position];
  if (position + 1 == end)
    fail(Code::Plan,
         "{} is marked to run as one with the next instruction, but none follows:\n  {}",
         to_string(first), describe(position));
  const Instr& second = instrs_[position + 1];
  if (!is_compute(first.kind) || !is_compute(second.kind) || second.with_next)
    fail(Code::Plan,
         "{} and {} can't run as one; a pair consists of two compute instructions:\n  {}",
         to_string(first), to_string(second), describe(position));
}

void PlanIndex::check(int position) const {
  const Instr& i = instrs_[position];
  const bool step_level = is_collective(i.kind) || i.kind >= Kind::Update;
  if (step_level && !is_curvature(i.kind)) return;
  const bool forward = i.kind == Kind::Forward || i.kind == Kind::SendForward ||
                       i.kind == Kind::RecvForward || is_curvature(i.kind);
  const int ids = forward ? forward_micros() : backward_micros();
  if (i.micro < 0 || i.micro >= ids)
    fail(Code::Plan, "{} has an unknown micro-batch:\n  {}, but the ids are 0…{}", to_string(i),
         describe(position), ids - 1);
  if (is_compute(i.kind) || is_curvature(i.kind)) return;
  const bool out = i.kind == Kind::SendForward || i.kind == Kind::RecvBackward;
  const auto& edges = out ? graph_.outputs(i.stage, i.micro) : graph_.inputs(i.stage, i.micro);
  const auto needed = std::any_of(edges.begin(), edges.end(), [&](const StageEdge& e) {
    return e.part == i.part && e.crosses;
  });
  if (!needed)
    fail(Code::Plan, "{} is a message that nothing needs:\n  {}", to_string(i), describe(position));
}

std::int64_t PlanIndex::cell(int slot, int stage, int micro) const {
  return (static_cast<std::int64_t>(stage) * micros_ + micro) * slots_ + slot;
}

std::int64_t PlanIndex::message_cell(const Instr& i) const {
  const int kind = static_cast<int>(i.kind) - static_cast<int>(Kind::SendForward);
  return cell(kMessages + 4 * i.part + kind, i.stage, i.micro);
}

void PlanIndex::enter_at(std::int64_t cell, int position) {
  std::int32_t& known = where_[cell];
  if (known >= 0) fail_twice(known, position);
  known = position;
}

// A B is an I and a W in one, so it can double an I or a W that is written beside it.
void PlanIndex::fail_twice(int first, int second) const {
  const Instr &a = instrs_[first], &b = instrs_[second];
  const bool is_within = a.kind != b.kind;
  const Instr& part = a.kind == Kind::Backward ? b : a;
  const Instr& whole = a.kind == Kind::Backward ? a : b;
  fail(Code::Plan, "{} occurs twice{}:\n  {}\n  {}", to_string(part),
       is_within ? fmt::format(", because {} contains it", to_string(whole)) : "", describe(first),
       describe(second));
}

void PlanIndex::enter(int position) {
  const Instr& i = instrs_[position];
  switch (i.kind) {
    case Kind::Forward:
      return enter_at(cell(kOutput, i.stage, i.micro), position);
    case Kind::Recompute:
      return enter_at(cell(kRecomputed, i.stage, i.micro), position);
    case Kind::InputGrad:
      return enter_at(cell(kInputGrad, i.stage, i.micro), position);
    case Kind::WeightGrad:
      return enter_at(cell(kWeightGrad, i.stage, i.micro), position);
    case Kind::Backward:
      enter_at(cell(kInputGrad, i.stage, i.micro), position);
      return enter_at(cell(kWeightGrad, i.stage, i.micro), position);
    case Kind::ReduceGrad:
    case Kind::ReduceScalars:
    case Kind::Update:
    case Kind::SyncA:
    case Kind::SyncB:
    case Kind::InvertA:
    case Kind::InvertB:
    case Kind::Gather:
    case Kind::Precondition:
      return step_level_.push_back(position);
    case Kind::CurvatureA:  // one per layer, in any order
    case Kind::CurvatureB:
    case Kind::PartialReduce:  // the members are known at run time only
    case Kind::Push:
    case Kind::Pull:
      return;
    default:
      return enter_at(message_cell(i), position);
  }
}

int PlanIndex::find(const Instr& i) const {
  switch (i.kind) {
    case Kind::Forward:
      return where_[cell(kOutput, i.stage, i.micro)];
    case Kind::Recompute:
      return where_[cell(kRecomputed, i.stage, i.micro)];
    case Kind::Backward:
    case Kind::InputGrad:
      return where_[cell(kInputGrad, i.stage, i.micro)];
    case Kind::WeightGrad:
      return where_[cell(kWeightGrad, i.stage, i.micro)];
    default:
      return is_send(i.kind) || is_recv(i.kind) ? where_[message_cell(i)] : -1;
  }
}

}  // namespace hetu
