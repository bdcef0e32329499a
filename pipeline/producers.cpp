#include "pipeline/producers.h"

#include "graph/base/error.h"

namespace hetu {
namespace {

template <class... Args>
void plan_require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) fail(Code::Plan, format, std::forward<Args>(args)...);
}

// Placement ids by (replica, model stage), -1 where there is none.
struct Grid {
  int stages = 0;
  std::vector<int> ids;
  int at(int replica, int model_stage) const { return ids[replica * stages + model_stage]; }
};

Grid grid_of(const Schedule& s) {
  Grid grid;
  int replicas = 0;
  for (const Placement& p : s.placements) {
    plan_require(p.model_stage >= 0 && p.replica >= 0,
                 "model stage {}, replica {}: both start at 0", p.model_stage, p.replica);
    grid.stages = std::max(grid.stages, p.model_stage + 1);
    replicas = std::max(replicas, p.replica + 1);
  }
  // Every placement is one cell, and no cell is left free: so the grid is as large as the table.
  plan_require(static_cast<std::int64_t>(grid.stages) * replicas ==
                   static_cast<std::int64_t>(s.placements.size()),
               "{} placements do not make {} replicas of {} model stages", s.placements.size(),
               replicas, grid.stages);
  grid.ids.assign(s.placements.size(), -1);
  for (std::size_t i = 0; i < s.placements.size(); ++i) {
    const Placement& p = s.placements[i];
    int& id = grid.ids[p.replica * grid.stages + p.model_stage];
    plan_require(id < 0, "placements {} and {} are both model stage {}, replica {}", id, i,
                 p.model_stage, p.replica);
    id = static_cast<int>(i);
  }
  return grid;
}

void check_pair(const StagePair& pair, int stages, const char* what) {
  plan_require(pair.first >= 0 && pair.first < pair.second && pair.second < stages,
               "{} ({}, {}): wanted first < second below {} model stages", what, pair.first,
               pair.second, stages);
}

}  // namespace

StageGraph::StageGraph(const Schedule& schedule, bool lowered)
    : half_micros_(schedule.half_micros), lowered_(lowered) {
  const int workers = static_cast<int>(schedule.workers.size());
  for (std::size_t i = 0; i < schedule.placements.size(); ++i) {
    const auto& at = schedule.placements[i].workers;
    plan_require(at.size() == 1, "placement {} has {} workers; a stage stands on exactly one", i,
                 at.size());
    plan_require(at[0] >= 0 && at[0] < workers, "placement {} is on worker {}, but there are {}", i,
                 at[0], workers);
    worker_.push_back(at[0]);
  }
  const Grid grid = grid_of(schedule);
  const int replicas = grid.stages == 0 ? 0 : static_cast<int>(grid.ids.size()) / grid.stages;
  inputs_.resize(worker_.size());
  outputs_.resize(worker_.size());
  const auto add = [&](int replica, int first, int second, int part) {
    const int from = grid.at(replica, first), to = grid.at(replica, second);
    const StageEdge edge{from, to, part, worker_[from] != worker_[to]};
    outputs_[from].push_back(edge);
    inputs_[to].push_back(edge);
  };
  for (const StagePair& e : schedule.lowering.extra_edges) check_pair(e, grid.stages, "extra edge");
  for (const StagePair& t : schedule.lowering.tied) check_pair(t, grid.stages, "tied stages");
  for (int r = 0; r < replicas; ++r) {
    for (int s = 0; s + 1 < grid.stages; ++s) add(r, s, s + 1, 0);
    int part = 0;
    for (const StagePair& e : schedule.lowering.extra_edges) add(r, e.first, e.second, ++part);
  }
}

int StageGraph::peer(const Instr& i) const {
  const bool to_next = i.kind == Kind::SendForward || i.kind == Kind::RecvBackward;
  for (const StageEdge& e : to_next ? outputs_[i.stage] : inputs_[i.stage])
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
