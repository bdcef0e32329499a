// Builds zero-bubble plans for given costs by the heuristic of Qi et al. 2024, section 3.1:
// 1. Warm-up: each stage runs as many forwards before its first I as memory and time allow.
// 2. Steady state: rounds of one F and one I per stage. If a stage would wait for its next F or I,
//    W's that fit fill the wait. One more W runs if the remaining wait would give this stage the
//    largest bubble. If memory is full before a forward, W's run first.
// 3. End: the W's that are left.
//
// The effect of three decisions on the result is hard to predict (Choice). All eight combinations
// are tried, and the plan with the shortest span wins.
#include <algorithm>

#include "base/error.h"
#include "pipeline/generate/choose.h"
#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"
#include "pipeline/generate/row.h"
#include "pipeline/generate/stage_times.h"

namespace hetu {
namespace {

// Decisions for which no simple rule is always best. All combinations are tried.
struct Choice {
  bool wait_for_first;  // warm-up forwards end before the first I arrives, even if a gap is left
  bool overfill;        // a W goes into a wait that is too short for it
  bool hold_back;       // a forward that the next stage does not need yet moves to a later round
};

class Greedy {
 public:
  Greedy(const StageTimes& times, const std::vector<ActivationLimit>& limits, int micros,
         Choice choice)
      : times_(times), micros_(micros), choice_(choice), stages_(limits.size()) {
    for (std::size_t s = 0; s < limits.size(); ++s) {
      const double halves = std::min(2 * limits[s].counted + 1e-9, 4.0 * micros);
      stages_[s].limit = static_cast<int>(halves);
      stages_[s].most_live = static_cast<int>(std::min(limits[s].live + 1e-9, 2.0 * micros));
      stages_[s].forward_end.reserve(micros);
      stages_[s].input_end.reserve(micros);
    }
  }

  // Returns the rows, or an empty list if memory does not suffice with this choice.
  std::vector<std::vector<Instr>> run() {
    const int last = static_cast<int>(stages_.size()) - 1;
    for (int s = 0; s <= last; ++s) forward(s);
    warm_up();
    for (int s = last; s >= 0; --s) input_grad(s);
    for (int i = 1; i < micros_; ++i) {
      const int held_back = choice_.hold_back ? stages_held_back() : 0;
      for (int s = held_back; s <= last; ++s) {
        if (stages_[s].forwards() == micros_) continue;
        while (!stages_[s].holds_more(1)) {
          if (!weight_grad(s)) return {};
        }
        fill_until(s, forward_arrival(s));
        forward(s);
      }
      for (int s = last; s >= 0; --s) {
        fill_until(s, input_arrival(s));
        // After the last forward of the first stage, no other worker waits for this stage.
        while (s == 0 && stages_[s].forwards() == micros_ && weight_grad(s)) {
        }
        input_grad(s);
      }
    }
    std::vector<std::vector<Instr>> rows;
    for (int s = 0; s <= last; ++s) {
      while (weight_grad(s)) {
      }
      rows.push_back(std::move(stages_[s].row));
    }
    return rows;
  }

 private:
  struct Stage {
    int limit = 0;      // in halves of a micro-batch's activations
    int most_live = 0;  // micro-batches between F and W
    int weights = 0;
    double end = 0, bubble = 0;
    std::vector<double> forward_end, input_end;
    std::vector<Instr> row;

    int forwards() const { return static_cast<int>(forward_end.size()); }
    int inputs() const { return static_cast<int>(input_end.size()); }
    int held() const { return 2 * forwards() - inputs() - weights; }
    // Returns the number of W's that must run before `more` further forwards.
    int excess(int more) const {
      return std::max({0, held() + 2 * more - limit, forwards() - weights + more - most_live});
    }
    bool holds_more(int forwards) const { return excess(forwards) == 0; }
  };

  double forward_arrival(int s) const {
    if (s == 0) return 0;
    return stages_[s - 1].forward_end[stages_[s].forwards()] + times_.forward_hop[s];
  }

  double input_arrival(int s) const {
    if (s + 1 == static_cast<int>(stages_.size())) return 0;
    return stages_[s + 1].input_end[stages_[s].inputs()] + times_.backward_hop[s];
  }

  void forward(int s) {
    Stage& stage = stages_[s];
    stage.row.push_back(forward_of(s, stage.forwards()));
    advance(stage, forward_arrival(s), times_.forward[s]);
    stage.forward_end.push_back(stage.end);
  }

  void input_grad(int s) {
    Stage& stage = stages_[s];
    stage.row.push_back(input_grad_of(s, stage.inputs()));
    advance(stage, input_arrival(s), times_.input_grad[s]);
    stage.input_end.push_back(stage.end);
  }

  bool weight_grad(int s) {
    Stage& stage = stages_[s];
    if (stage.weights == stage.inputs()) return false;
    stage.row.push_back(weight_grad_of(s, stage.weights++));
    stage.end += times_.weight_grad[s];
    return true;
  }

  static void advance(Stage& stage, double arrival, double time) {
    const double wait = std::max(0.0, arrival - stage.end);
    if (stage.forwards() > 0) stage.bubble += wait;
    stage.end += wait + time;
  }

  // Runs further forwards before the first I, as memory and time allow. Each stage runs fewer than
  // the previous one.
  void warm_up() {
    const int last = static_cast<int>(stages_.size()) - 1;
    std::vector<int> more(stages_.size(), 0);
    double done = stages_[last].end + times_.input_grad[last];
    for (int s = last - 1; s >= 0; --s) {
      const Stage& stage = stages_[s];
      const double arrival = done + times_.backward_hop[s];
      double end = stage.end;
      const auto fits = [&] {
        return choice_.wait_for_first ? end + times_.forward[s] <= arrival : end < arrival;
      };
      while (1 + more[s] < micros_ && stage.holds_more(more[s] + 1) && fits()) {
        ++more[s];
        end += times_.forward[s];
      }
      done = std::max(end, arrival) + times_.input_grad[s];
    }
    for (int s = 0; s <= last; ++s) {
      if (s > 0) more[s] = std::min(more[s], std::max(0, more[s - 1] - 1));
      for (int k = 0; k < more[s]; ++k) forward(s);
    }
  }

  // Returns the number of first stages that run no forward in this round: all up to the last one
  // that prefers to wait for its I. Such a stage is ahead of the next stage, so no other stage
  // waits for its forward.
  int stages_held_back() const {
    int count = 0;
    for (int s = 0; s + 1 < static_cast<int>(stages_.size()); ++s)
      if (stages_[s].forwards() < micros_ && rather_waits(s)) count = s + 1;
    return count;
  }

  // Returns true if the next I arrives before another forward, with the W's that make room for it,
  // would end. The wait must not make this stage the one with the largest bubble.
  bool rather_waits(int s) const {
    const Stage &stage = stages_[s], &next = stages_[s + 1];
    if (stage.forwards() < next.forwards() + 2) return false;
    const double input =
        next.end + times_.forward[s + 1] + times_.input_grad[s + 1] + times_.backward_hop[s];
    const int room = std::min(stage.excess(1), stage.inputs() - stage.weights);
    const double end = stage.end + times_.forward[s] + room * times_.weight_grad[s];
    return stage.end >= input ||
           (end > input && input - stage.end <= worst_bubble() - stage.bubble);
  }

  double worst_bubble() const {
    double worst = 0;
    for (const Stage& stage : stages_) worst = std::max(worst, stage.bubble);
    return worst;
  }

  // Runs the W's that fit into the wait. Runs one more if the wait is longer than this stage may
  // still idle without having the largest bubble.
  void fill_until(int s, double arrival) {
    Stage& stage = stages_[s];
    while (stage.weights < stage.inputs() && stage.end + times_.weight_grad[s] <= arrival)
      weight_grad(s);
    if (stage.end >= arrival) return;
    if (choice_.overfill || arrival - stage.end > worst_bubble() - stage.bubble) weight_grad(s);
  }

  const StageTimes& times_;
  const int micros_;
  const Choice choice_;
  std::vector<Stage> stages_;
};

Schedule greedy(const char* method, const Sizes& sizes, int multiple) {
  const Schedule placed = one_stage_per_worker(method, sizes);
  const double usual = multiple * sizes.stages;
  const std::vector<ActivationLimit> limits = activation_limits(placed, sizes, usual);
  const StageTimes times = stage_times(placed, sizes);
  std::optional<Candidate> best;
  for (const bool wait : {false, true}) {
    for (const bool overfill : {true, false}) {
      for (const bool hold_back : {false, true}) {
        const Choice choice{wait, overfill, hold_back};
        const auto rows = Greedy(times, limits, sizes.micro_batches, choice).run();
        if (rows.empty()) continue;
        Schedule plan = placed;
        for (int w = 0; w < sizes.stages; ++w) plan.workers[w] = folded(rows[w], 3, 1);
        std::optional<Candidate> found = candidate(std::move(plan), sizes, usual);
        const auto worth = [](const Candidate& c) { return std::pair(c.span, c.makespan); };
        if (found && (!best || worth(*found) < worth(*best))) best = std::move(found);
      }
    }
  }
  HETU_ASSERT(best.has_value());  // one micro-batch at a time always fits
  return std::move(best->plan);
}

}  // namespace

Schedule zb_1p(const Sizes& sizes) { return greedy("zb-1p", sizes, 1); }

Schedule zb_2p(const Sizes& sizes) { return greedy("zb-2p", sizes, 2); }

}  // namespace hetu
