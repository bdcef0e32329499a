// Counts slots along a row. For example, on "F0 F1 B0 F2 B1 B2" the saved slots in use are 1, 2, 1,
// 2, 1, 0, so the stage needs two.
#include "executor/compile/row_needs.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "pipeline/ir/producers.h"
#include "pipeline/verify/run_policy.h"

namespace hetu {
namespace {

using StageMicro = std::pair<int, int>;  // placement and micro-batch

struct Level {
  int now = 0;
  int most = 0;
  void raise() { most = std::max(most, ++now); }
};

// Walks through a worker's row instruction by instruction. With half micro-batches, the ids of a
// backward are those of halves, and the forward's values are released with the second half.
class RowWalk {
 public:
  RowWalk(const Schedule& lowered, int worker, std::vector<std::int64_t> saved_bytes)
      : plan_(lowered),
        graph_(lowered, /*lowered=*/true),
        row_(fullest_row(lowered, worker)),
        saved_bytes_(std::move(saved_bytes)),
        saved_(lowered.placements.size()),
        halves_(lowered.half_micros ? 2 : 1) {
    saved_bytes_.resize(saved_.size(), 0);
    for (const Instr& i : row_) {
      if (i.kind == Kind::Recompute) recomputed_.insert({i.stage, graph_.forward_micro(i.micro)});
    }
    for (const Instr& i : row_) step(i);
  }

  std::vector<StageSlots> slots() const {
    std::vector<StageSlots> out(saved_.size());
    for (std::size_t p = 0; p < saved_.size(); ++p) out[p].saved = saved_[p].most;
    for (const auto& [stage, micro] : recomputed_) out[stage].recompute = true;
    for (const auto& [ends, level] : boundaries_) {
      const auto [from, to] = ends;
      const LocalBoundary boundary{plan_.placements[from].model_stage,
                                   plan_.placements[to].model_stage, level.most};
      out[from].local.push_back(boundary);
      out[to].local.push_back(boundary);
    }
    return out;
  }

  ActivationPeak peak() const { return {most_halves_ / (2.0 * plan_.chunks), most_bytes_}; }

 private:
  void step(const Instr& i) {
    switch (i.kind) {
      case Kind::Forward:
        return forward(i);
      case Kind::Recompute:
        if (kept_.insert({i.stage, graph_.forward_micro(i.micro)}).second) save(i.stage);
        return;
      case Kind::Backward:
        input_gradient(i);
        return finish(i, weights_done_);
      case Kind::InputGrad:
        return input_gradient(i);
      case Kind::WeightGrad:
        return finish(i, weights_done_);
      default:
        return;
    }
  }

  void save(int stage) {
    saved_[stage].raise();
    bytes_ += saved_bytes_[stage];
    most_bytes_ = std::max(most_bytes_, bytes_);
  }

  void drop(int stage) {
    --saved_[stage].now;
    bytes_ -= saved_bytes_[stage];
  }

  void forward(const Instr& i) {
    for (const StageEdge& e : graph_.outputs(i.stage, i.micro))
      if (!e.crosses) boundaries_[{e.from, e.to}].raise();
    save(i.stage);
    most_halves_ = std::max(most_halves_, live_halves_ += 2);
    if (recomputed_.count({i.stage, i.micro}) != 0)
      drop(i.stage);
    else
      kept_.insert({i.stage, i.micro});
  }

  void input_gradient(const Instr& i) {
    for (const StageEdge& e : graph_.inputs(i.stage, graph_.forward_micro(i.micro)))
      if (!e.crosses) boundaries_[{e.to, e.from}].raise();
    finish(i, inputs_done_);
  }

  // Completes a part of a backward: the input or weight gradient of a micro-batch or half.
  void finish(const Instr& i, std::map<StageMicro, int>& done) {
    const int micro = graph_.forward_micro(i.micro);
    const StageMicro at{i.stage, micro};
    if (++done[at] == halves_) --live_halves_;
    if (++parts_done_[{i.stage, i.micro}] == 2) {
      for (const StageEdge& e : graph_.outputs(i.stage, micro))
        if (!e.crosses) --boundaries_[{e.to, e.from}].now;
    }
    if (inputs_done_[at] < halves_ || weights_done_[at] < halves_) return;
    drop(i.stage);
    for (const StageEdge& e : graph_.inputs(i.stage, micro))
      if (!e.crosses) --boundaries_[{e.from, e.to}].now;
  }

  const Schedule& plan_;
  const StageGraph graph_;
  const std::vector<Instr> row_;
  std::vector<std::int64_t> saved_bytes_;
  std::vector<Level> saved_;
  std::map<std::pair<int, int>, Level> boundaries_;  // by placements (from, to)
  std::map<StageMicro, int> inputs_done_, weights_done_, parts_done_;
  std::set<StageMicro> recomputed_, kept_;
  std::int64_t bytes_ = 0, most_bytes_ = 0;
  // Outstanding input and weight gradients of micro-batches whose forward has run.
  int live_halves_ = 0, most_halves_ = 0;
  int halves_;
};

}  // namespace

std::vector<StageSlots> stage_slots(const Schedule& lowered, int worker) {
  return RowWalk(lowered, worker, {}).slots();
}

ActivationPeak planned_peak(const Schedule& lowered, int worker,
                            const std::vector<std::int64_t>& saved_bytes) {
  return RowWalk(lowered, worker, saved_bytes).peak();
}

}  // namespace hetu
