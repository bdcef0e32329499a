#include <algorithm>

#include "base/error.h"
#include "pipeline/generate/choose.h"
#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"
#include "pipeline/generate/row.h"
#include "pipeline/generate/stage_times.h"

namespace hetu {
namespace {

// Small decisions that no order of magnitude settles; all of them are tried.
struct Choice {
  bool wait_for_first;  // warm-up forwards end before the first I arrives, though a gap be left
  bool overfill;        // a W that does not fit a short wait stands in it all the same
  bool hold_back;       // a forward that the next stage can do without waits for a later round
};

class Greedy {
 public:
  Greedy(const StageTimes& times, const std::vector<double>& limits, int micros, Choice choice)
      : times_(times), micros_(micros), choice_(choice), stages_(limits.size()) {
    for (std::size_t s = 0; s < limits.size(); ++s) {
      const double halves = std::min(2 * limits[s] + 1e-9, 4.0 * micros);
      stages_[s].limit = static_cast<int>(halves);
      stages_[s].forward_end.reserve(micros);
      stages_[s].input_end.reserve(micros);
    }
  }

  // The rows; nothing if memory does not suffice on this way.
  std::vector<std::vector<Instr>> run() {
    const int last = static_cast<int>(stages_.size()) - 1;
    for (int s = 0; s <= last; ++s) forward(s);
    warm_up();
    for (int s = last; s >= 0; --s) input_grad(s);
    for (int i = 1; i < micros_; ++i) {
      const int held_back = choice_.hold_back ? stages_held_back() : 0;
      for (int s = held_back; s <= last; ++s) {
        if (stages_[s].forwards() == micros_) continue;
        while (stages_[s].held() + 2 > stages_[s].limit) {
          if (!weight_grad(s)) return {};
        }
        fill_until(s, forward_arrival(s));
        forward(s);
      }
      for (int s = last; s >= 0; --s) {
        fill_until(s, input_arrival(s));
        // After its last forward nobody waits for the first stage.
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
    int limit = 0;  // in halves of a micro-batch's activations
    int weights = 0;
    double end = 0, bubble = 0;
    std::vector<double> forward_end, input_end;
    std::vector<Instr> row;

    int forwards() const { return static_cast<int>(forward_end.size()); }
    int inputs() const { return static_cast<int>(input_end.size()); }
    int held() const { return 2 * forwards() - inputs() - weights; }
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

  // Forwards beyond the first before the first I: as memory and time allow, fewer from stage to
  // stage.
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
      while (1 + more[s] < micros_ && stage.held() + 2 * (more[s] + 1) <= stage.limit && fits()) {
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

  // How many first stages run no forward in this round: all before the last one that would rather
  // wait for its I. Such a stage is ahead of the next, so nobody waits for its forward.
  int stages_held_back() const {
    int count = 0;
    for (int s = 0; s + 1 < static_cast<int>(stages_.size()); ++s)
      if (stages_[s].forwards() < micros_ && rather_waits(s)) count = s + 1;
    return count;
  }

  // Whether the next I is there before another forward (and the W's that make room for it) would
  // end, at a wait that does not make this stage the worst.
  bool rather_waits(int s) const {
    const Stage &stage = stages_[s], &next = stages_[s + 1];
    if (stage.forwards() < next.forwards() + 2) return false;
    const double input =
        next.end + times_.forward[s + 1] + times_.input_grad[s + 1] + times_.backward_hop[s];
    const int room =
        std::min(std::max(0, stage.held() + 2 - stage.limit), stage.inputs() - stage.weights);
    const double end = stage.end + times_.forward[s] + room * times_.weight_grad[s];
    return stage.end >= input ||
           (end > input && input - stage.end <= worst_bubble() - stage.bubble);
  }

  double worst_bubble() const {
    double worst = 0;
    for (const Stage& stage : stages_) worst = std::max(worst, stage.bubble);
    return worst;
  }

  // W's that fit into the wait, and one more where the wait is longer than what this stage may
  // still lose without being the worst.
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
  const std::vector<double> limits = activation_limits(placed, sizes, usual);
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
