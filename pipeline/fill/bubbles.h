// The bubbles of a step by prediction, and work placed in those of as many steps as it needs. Part
// of curvature.h; nobody else includes it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "pipeline/cost/cost.h"
#include "pipeline/cost/timing.h"
#include "pipeline/ir/reduction.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

class Bubbles {
 public:
  /// By worker: before the instruction of that number of its row, in order.
  using Extra = std::vector<std::map<std::size_t, std::vector<Instr>>>;

  /// `step`: the rows with what each step does besides, and who inverts what; `rows`: without it.
  /// All must outlive it.
  /// Rather than in a step beyond `before_wrapping`, inversions stand in the cycle after, before
  /// its own work.
  Bubbles(const Schedule& step, const std::vector<std::vector<Instr>>& rows, const Costs& costs,
          double slack, std::int64_t before_wrapping);

  static constexpr std::int64_t kNoWrap = std::numeric_limits<std::int64_t>::max();

  /// Per step, what stands in it. `pieces`: by worker, CURVATURE in the order in which they are to
  /// be placed; sums, inversions and gathers follow from them.
  std::vector<Extra> fill(std::vector<std::vector<Instr>> pieces);

 private:
  static constexpr std::size_t kNoGap = std::numeric_limits<std::size_t>::max();
  static constexpr int kNoStage = std::numeric_limits<int>::max();

  // Between two computations of a worker, or at the ends; most have no length.
  struct Gap {
    std::size_t before = 0;             // index in the row
    double begin = 0, at = 0, end = 0;  // at: where what is placed next begins
    int posted = kNoStage, open = -1;   // model stages: the last of those whose gradients' sums
                                        // stand before it, the first of those behind it
  };
  struct Moment {
    int step = -1;
    double at = 0;        // in the step
    std::size_t gap = 0;  // of the worker whose moment it is
    bool operator<(const Moment& other) const {
      return std::tie(step, at, gap) < std::tie(other.step, other.at, other.gap);
    }
  };
  struct Spot {
    std::size_t gap = 0;
    double at = 0;
  };
  struct Placed {
    Spot spot;
    bool lasts = false;
    Instr instr;
  };
  // Collectives of a worker are posted in the order in which they are placed, by all members of
  // each, and sums of gradients in descending model stage: none goes before `spot`, nor before the
  // sums of a stage from `stage` on.
  struct Floor {
    Spot spot;
    int stage = kNoStage;
  };
  // A step: by worker, what is left of its gaps and what is placed.
  struct Step {
    std::vector<std::vector<Gap>> gaps;
    std::vector<std::vector<Placed>> placed;
    std::vector<Floor> floor;
    double network_free = 0;
  };
  // What all copies of a model stage do in one step: a round of inversions, the sums of a layer.
  struct Unit {
    std::vector<Instr> members;      // one per copy in the plan
    std::vector<std::size_t> after;  // of each: the gap that has what it follows in that step
    Moment ready;
    std::vector<std::size_t> end = {};  // the gap that has what follows it; empty: nothing does
  };

  // Start and end by kind, stage and micro-batch, of one worker.
  using Times = std::map<std::tuple<std::string, int, int>, std::pair<double, double>>;
  void find_gaps(std::size_t worker, const Times& times);
  double time_of(const Instr& instr) const { return instr_time(costs_, step_, instr); }
  std::size_t worker_of(const Instr& instr) const {
    return static_cast<std::size_t>(step_.placements[instr.stage].workers[0]);
  }
  void begin_step();
  Step& step_at(int number);
  // Not before `spot`, which becomes where it ends.
  // Nor from gap `end` on.
  bool place(int step, const Instr& instr, Spot& spot, std::size_t end = kNoGap);
  bool is_made(std::size_t worker, const Gap& gap, const Instr& piece) const;
  void force(const Instr& instr);
  std::pair<std::vector<Spot>, int> spots_of(const Unit& unit, const Step& step) const;
  bool post(Unit& unit, const std::vector<Kind>& kinds, bool if_hidden);
  void post_at_end(const Unit& unit, int step);
  void force(const Unit& unit);
  void place_pieces(std::vector<std::vector<Instr>> open);
  std::size_t gap_in(int step, int stage, int layer) const;
  std::vector<Unit> sums() const;
  void place_sums();
  std::vector<Unit> rounds() const;
  void place_inversions();
  bool invert(Unit& unit, int step);
  bool wrap(Unit& unit);
  bool wrap(Unit& unit, int step);
  bool is_shared(const Unit& unit) const { return reductions_.sharers(unit.members[0].stage) > 1; }
  Extra extra_of(const Step& step) const;

  const Schedule& step_;
  const std::vector<std::vector<Instr>>& rows_;
  const Costs& costs_;
  const double slack_;
  const std::int64_t before_wrapping_;
  const Reductions reductions_;
  const Stragglers none_ = {};
  const Timing timing_;
  std::vector<std::vector<Gap>> gaps_;  // by worker, of every step
  // By worker: where in the row a stage's forward (true) or input gradient of a micro-batch stands.
  std::vector<std::map<std::tuple<bool, int, int>, std::size_t>> made_at_;
  std::vector<Step> steps_;
  // By placement and layer, of both factors: the step and gap of the first piece, the last one.
  std::map<std::pair<int, int>, std::pair<int, std::size_t>> begun_;
  std::map<std::pair<int, int>, Moment> whole_;
};

}  // namespace hetu
