// The predicted bubbles of a step, and the placement of K-FAC's work in the bubbles of several
// steps. Used only by curvature.cpp.
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

/// Assigns K-FAC's work to the predicted bubbles of as many steps as it needs.
class Bubbles {
 public:
  /// By worker: the instructions to insert before each index of its row, in order.
  using Extra = std::vector<std::map<std::size_t, std::vector<Instr>>>;

  /// Predicts a step and finds its bubbles. `step` has the rows with the work of every step
  /// (preconditioning) and the assignment of inversions; `rows` are the rows without that work.
  /// Both, and `costs`, must outlive this object.
  ///
  /// Inversions for which step `before_wrapping` or a later one would have to be added move to the
  /// next cycle instead, if they fit there before its own work for the same layers.
  Bubbles(const Schedule& step, const std::vector<std::vector<Instr>>& rows, const Costs& costs,
          double slack, std::int64_t before_wrapping);

  static constexpr std::int64_t kNoWrap = std::numeric_limits<std::int64_t>::max();

  /// Returns the work to insert, per step. `pieces` holds, by worker, the CURVATURE instructions in
  /// the order of placement. Sums, inversions and gathers follow from them.
  std::vector<Extra> fill(std::vector<std::vector<Instr>> pieces);

 private:
  static constexpr std::size_t kNoGap = std::numeric_limits<std::size_t>::max();
  static constexpr int kNoStage = std::numeric_limits<int>::max();

  // The time between two computations of a worker, or at the ends of its row. Most gaps have length
  // 0.
  struct Gap {
    std::size_t before = 0;             // index in the row
    double begin = 0, at = 0, end = 0;  // at: begin of the unused remainder
    // model stages: the last one whose gradient sum is before the gap, the first one whose sum is
    // after it
    int posted = kNoStage, open = -1;
  };
  struct Moment {
    int step = -1;
    double at = 0;        // time within the step
    std::size_t gap = 0;  // gap of the worker that the moment belongs to
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
  // All members post K-FAC's collectives in the order of their placement, and gradient sums in
  // descending model stage. A later collective therefore goes neither before `spot` nor before the
  // gradient sums of model stages >= `stage`.
  struct Floor {
    Spot spot;
    int stage = kNoStage;
  };
  // A step: by worker, the unused parts of its gaps, and the work placed in them.
  struct Step {
    std::vector<std::vector<Gap>> gaps;
    std::vector<std::vector<Placed>> placed;
    std::vector<Floor> floor;
    double network_free = 0;
  };
  // Work that all copies of a model stage do in the same step: a round of inversions, or the sums
  // of a layer.
  struct Unit {
    std::vector<Instr> members;      // one per copy in the plan
    std::vector<std::size_t> after;  // per member: the gap in which its inputs are complete
    Moment ready;
    // per member: the gap of the work that must follow; empty: none
    std::vector<std::size_t> end = {};
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
  // Places an instruction in the first gap from `spot` on and before gap `end`. Sets `spot` to its
  // end. Returns false if no gap fits.
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
  bool is_shared(const Unit& unit) const {
    return reductions_.copies_sharing_inversions(unit.members[0].stage) > 1;
  }
  Extra extra_of(const Step& step) const;

  const Schedule& step_;
  const std::vector<std::vector<Instr>>& rows_;
  const Costs& costs_;
  const double slack_;
  const std::int64_t before_wrapping_;
  const Reductions reductions_;
  const Stragglers none_ = {};
  const Timing timing_;
  std::vector<std::vector<Gap>> gaps_;  // by worker, the same for every step
  // By worker: index in the row of a stage's forward (true) or input gradient (false) of a
  // micro-batch.
  std::vector<std::map<std::tuple<bool, int, int>, std::size_t>> made_at_;
  std::vector<Step> steps_;
  // By placement and layer, over both factors: step and gap of the first piece, end of the last
  // one.
  std::map<std::pair<int, int>, std::pair<int, std::size_t>> begun_;
  std::map<std::pair<int, int>, Moment> whole_;
};

}  // namespace hetu
