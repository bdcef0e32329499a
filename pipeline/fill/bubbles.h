// The bubbles of a step by prediction, and work placed in those of as many steps as it needs. Part
// of curvature.h; nobody else includes it.
#pragma once
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "pipeline/cost/cost.h"
#include "pipeline/ir/reduction.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

class Bubbles {
 public:
  /// By worker: before the instruction of that number of its row, in order.
  using Extra = std::vector<std::map<std::size_t, std::vector<Instr>>>;

  struct Work {
    std::vector<Instr> pieces;      ///< CURVATURE, in the order in which they are to be placed
    std::vector<Instr> inversions;  ///< INVERT_A of each layer, which stands for INVERT_B too
    std::vector<std::pair<int, int>> summed;  ///< stage and layer, whose factors need SYNC
  };

  /// `step`: the rows with what each step does besides; `rows`: without it. All must outlive it.
  Bubbles(const Schedule& step, const std::vector<std::vector<Instr>>& rows, const Costs& costs,
          double slack);

  /// Per step, what stands in it.
  std::vector<Extra> fill(const std::vector<Work>& work);

 private:
  struct Gap {
    std::size_t before = 0;  // index in the row
    double at = 0, end = 0;  // at: where what is placed next begins
  };
  struct Place {
    int step = -1;
    double end = 0;  // in the step
  };
  using Gaps = std::vector<Gap>;  // of a worker, in order

  // Start and end by kind, stage and micro-batch, of one worker.
  using Times = std::map<std::tuple<std::string, int, int>, std::pair<double, double>>;
  void find_gaps(std::size_t worker, const Times& times);
  double time_of(const Instr& instr) const;
  void begin_step();
  bool place(std::size_t worker, int step, const Instr& instr, double ready, double* end);
  bool is_made(std::size_t worker, const Gap& gap, const Instr& piece) const;
  void force(std::size_t worker, const Instr& instr);
  void place_pieces(const std::vector<Work>& work);
  void place_sums(const std::vector<Work>& work);
  void place_inversions(const std::vector<Work>& work);
  bool invert(std::size_t worker, int step, const Instr& a, double ready);

  const Schedule& step_;
  const std::vector<std::vector<Instr>>& rows_;
  const Costs& costs_;
  const double slack_;
  std::vector<Gaps> bubbles_;  // by worker, of every step
  // By worker: where in the row a stage's forward (true) or input gradient of a micro-batch stands.
  std::vector<std::map<std::tuple<bool, int, int>, std::size_t>> made_at_;
  std::vector<std::vector<Gaps>> left_;  // by step and worker: what is left of them
  std::vector<Extra> steps_;
  std::map<std::pair<int, int>, Place> whole_;  // by placement and layer: where both factors are
};

}  // namespace hetu
