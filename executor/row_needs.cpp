#include "executor/row_needs.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "pipeline/producers.h"

namespace hetu {
namespace {

using StageMicro = std::pair<int, int>;  // placement, micro-batch of the forward

struct Level {
  int now = 0;
  int most = 0;
  void raise() { most = std::max(most, ++now); }
  void touch() { most = std::max(most, now + 1); }
};

class RowWalk {
 public:
  RowWalk(const Schedule& lowered, int worker)
      : plan_(lowered),
        graph_(lowered, /*lowered=*/true),
        row_(unroll(lowered.workers[worker])),
        saved_(lowered.placements.size()),
        halves_(lowered.half_micros ? 2 : 1) {
    for (const Instr& i : row_) {
      if (i.kind == Kind::Recompute) recomputed_.insert({i.stage, graph_.forward_micro(i.micro)});
    }
  }

  std::vector<StageSlots> walk() {
    for (const Instr& i : row_) step(i);
    std::vector<StageSlots> out(saved_.size());
    for (std::size_t p = 0; p < saved_.size(); ++p) out[p].saved = saved_[p].most;
    for (const auto& [stage, micro] : recomputed_) out[stage].recompute = true;
    for (const auto& [ends, level] : borders_) {
      const auto [from, to] = ends;
      const LocalBorder border{plan_.placements[from].model_stage, plan_.placements[to].model_stage,
                               level.most};
      out[from].local.push_back(border);
      out[to].local.push_back(border);
    }
    return out;
  }

 private:
  void step(const Instr& i) {
    switch (i.kind) {
      case Kind::Forward:
        for (const StageEdge& e : graph_.outputs(i.stage, i.micro))
          if (!e.crosses) borders_[{e.from, e.to}].raise();
        if (recomputed_.count({i.stage, i.micro}) != 0)
          saved_[i.stage].touch();
        else
          saved_[i.stage].raise();
        return;
      case Kind::Recompute:
        saved_[i.stage].raise();
        return;
      case Kind::Backward:
        input_gradient(i);
        return weight_gradient(i);
      case Kind::InputGrad:
        return input_gradient(i);
      case Kind::WeightGrad:
        return weight_gradient(i);
      default:
        return;
    }
  }

  void input_gradient(const Instr& i) {
    for (const StageEdge& e : graph_.inputs(i.stage, i.micro))
      if (!e.crosses) borders_[{e.to, e.from}].raise();
    finish(i);
  }

  void weight_gradient(const Instr& i) { finish(i); }

  // One of the parts of a backward: input and weight gradient, of each half where there are halves.
  void finish(const Instr& i) {
    const StageMicro at{i.stage, graph_.forward_micro(i.micro)};
    if (++done_[at] < 2 * halves_) return;
    --saved_[i.stage].now;
    for (const StageEdge& e : graph_.inputs(i.stage, i.micro))
      if (!e.crosses) --borders_[{e.from, e.to}].now;
    for (const StageEdge& e : graph_.outputs(i.stage, i.micro))
      if (!e.crosses) --borders_[{e.to, e.from}].now;
  }

  const Schedule& plan_;
  const StageGraph graph_;
  const std::vector<Instr> row_;
  std::vector<Level> saved_;
  std::map<std::pair<int, int>, Level> borders_;  // placements
  std::map<StageMicro, int> done_;
  std::set<StageMicro> recomputed_;
  int halves_;
};

}  // namespace

std::vector<StageSlots> stage_slots(const Schedule& lowered, int worker) {
  return RowWalk(lowered, worker).walk();
}

}  // namespace hetu
