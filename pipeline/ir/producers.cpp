// Builds the graph of placements. With whole replicas, the edges of a placement are the same for
// all micro-batches. With cyclic replicas, micro-batch g uses replica g mod D of each stage, so the
// edges repeat after the least common multiple of all D (cycle()). For replica counts 1, 2, 1, for
// example, the first stage sends even micro-batches to replica 0 of the second stage and odd ones
// to replica 1; the cycle is 2.
#include "pipeline/ir/producers.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace hetu {
namespace {

template <class... Args>
void plan_require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) fail(Code::Plan, format, std::forward<Args>(args)...);
}

constexpr int kMostCycle = 4096;

// Placement ids by model stage and replica.
using Grid = std::vector<std::vector<int>>;

Grid grid_of(const Schedule& s) {
  int stages = 0, replicas = 0;
  for (const Placement& p : s.placements) {
    plan_require(p.model_stage >= 0 && p.replica >= 0,
                 "model stage {}, replica {}: both must be at least 0", p.model_stage, p.replica);
    stages = std::max(stages, p.model_stage + 1);
    replicas = std::max(replicas, p.replica + 1);
  }
  const bool whole = s.replica_rule == ReplicaRule::Whole;
  // Every placement is one cell of the grid and no cell stays empty. The grid is therefore at most
  // as large as the list of placements, whatever numbers a file contains.
  plan_require(!whole || static_cast<std::int64_t>(stages) * replicas ==
                             static_cast<std::int64_t>(s.placements.size()),
               "{} placements do not make {} replicas of {} model stages", s.placements.size(),
               replicas, stages);
  const auto count = static_cast<int>(s.placements.size());
  plan_require(stages <= count && replicas <= count,
               "{} placements do not make {} model stages, one of them with {} replicas", count,
               stages, replicas);
  Grid grid(stages);
  for (std::size_t i = 0; i < s.placements.size(); ++i) {
    const Placement& p = s.placements[i];
    std::vector<int>& ids = grid[p.model_stage];
    if (static_cast<int>(ids.size()) <= p.replica) ids.resize(p.replica + 1, -1);
    int& id = ids[p.replica];
    plan_require(id < 0, "placements {} and {} are both model stage {}, replica {}", id, i,
                 p.model_stage, p.replica);
    id = static_cast<int>(i);
  }
  for (int stage = 0; stage < stages; ++stage) {
    const auto gap = std::find(grid[stage].begin(), grid[stage].end(), -1);
    plan_require(!grid[stage].empty() && gap == grid[stage].end(),
                 "model stage {} has no replica {}, although it has {} replica(s)", stage,
                 gap - grid[stage].begin(), grid[stage].size());
  }
  return grid;
}

// Returns the number of micro-batches after which all stages are at their first replica again.
int cycle_of(const Schedule& s, const Grid& grid) {
  if (s.replica_rule == ReplicaRule::Whole) return 1;
  plan_require(!s.half_micros, "half micro-batches can't be combined with cyclic replicas");
  std::int64_t cycle = 1;
  for (const std::vector<int>& ids : grid) {
    cycle = std::lcm(cycle, static_cast<std::int64_t>(ids.size()));
    plan_require(cycle <= kMostCycle,
                 "the replicas of the stages repeat only after {} micro-batches; the limit is {}",
                 cycle, kMostCycle);
  }
  return static_cast<int>(cycle);
}

void check_pair(const StagePair& pair, int stages, const char* what) {
  plan_require(pair.first >= 0 && pair.first < pair.second && pair.second < stages,
               "{} ({}, {}): expected first < second, both below the number of model stages, {}",
               what, pair.first, pair.second, stages);
}

}  // namespace

StageGraph::StageGraph(const Schedule& schedule, bool lowered)
    : half_micros_(schedule.half_micros), lowered_(lowered) {
  const int workers = static_cast<int>(schedule.workers.size());
  for (std::size_t i = 0; i < schedule.placements.size(); ++i) {
    const auto& at = schedule.placements[i].workers;
    plan_require(at.size() == 1,
                 "placement {} has {} workers; a stage must be on exactly one worker", i,
                 at.size());
    plan_require(at[0] >= 0 && at[0] < workers,
                 "placement {} is on worker {}, but the plan has {} worker(s)", i, at[0], workers);
    worker_.push_back(at[0]);
  }
  const Grid grid = grid_of(schedule);
  const auto stages = static_cast<int>(grid.size());
  for (const Placement& p : schedule.placements)
    replicas_.push_back(static_cast<int>(grid[p.model_stage].size()));
  cycle_ = cycle_of(schedule, grid);
  inputs_.resize(worker_.size() * cycle_);
  outputs_.resize(worker_.size() * cycle_);
  for (const StagePair& e : schedule.lowering.extra_edges) check_pair(e, stages, "extra edge");
  for (const StagePair& t : schedule.lowering.tied) check_pair(t, stages, "tied stages");
  const auto add = [&](int from, int to, int part, int micro) {
    const StageEdge edge{from, to, part, worker_[from] != worker_[to]};
    outputs_[cell(from, micro)].push_back(edge);
    inputs_[cell(to, micro)].push_back(edge);
  };
  const auto add_all = [&](int micro, const auto& at) {
    for (int s = 0; s + 1 < stages; ++s) add(at(s), at(s + 1), 0, micro);
    int part = 0;
    for (const StagePair& e : schedule.lowering.extra_edges)
      add(at(e.first), at(e.second), ++part, micro);
  };
  if (schedule.replica_rule == ReplicaRule::Cyclic) {
    for (int m = 0; m < cycle_; ++m) add_all(m, [&](int s) { return grid[s][m % grid[s].size()]; });
  } else {
    const std::size_t replicas = grid.empty() ? 0 : grid[0].size();
    for (std::size_t r = 0; r < replicas; ++r) add_all(0, [&](int s) { return grid[s][r]; });
  }
}

int StageGraph::peer(const Instr& i) const {
  const bool to_next = i.kind == Kind::SendForward || i.kind == Kind::RecvBackward;
  for (const StageEdge& e : to_next ? outputs(i.stage, i.micro) : inputs(i.stage, i.micro))
    if (e.part == i.part) return to_next ? e.to : e.from;
  return -1;
}

std::vector<Producer> producers(const Instr& instr, const Schedule& schedule) {
  std::vector<Producer> list;
  StageGraph(schedule, is_lowered(schedule)).producers(instr, [&](const Producer& p) {
    list.push_back(p);
  });
  return list;
}

}  // namespace hetu
