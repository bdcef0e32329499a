#include "pipeline/planner/cut_search.h"

#include <algorithm>
#include <limits>
#include <queue>

#include "base/error.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {
namespace {

// Bounds are sums in another order than the simulator's.
constexpr double kRounding = 1e-9;
constexpr std::size_t kMostOpen = 200000;
// Messages in flight to a neighbour. A run takes as many as its plan needs to go on without
// waiting, which depends on the cut.
constexpr int kSendSlots = 3;

struct Node {
  double bound = 0;
  std::vector<int> ends;
  bool operator<(const Node& o) const {
    // the lowest bound first; of equal bounds the one with more stages
    return bound != o.bound ? bound > o.bound : ends.size() < o.ends.size();
  }
};

std::int64_t instructions_of(const Schedule& s) {
  std::int64_t all = 0;
  for (const Program& p : s.workers)
    all += static_cast<std::int64_t>(p.prologue.size() + p.drain.size()) +
           static_cast<std::int64_t>(p.body.size()) * p.repeat;
  return all;
}

// Returns the bytes of a worker that the simulator doesn't count: the working memory of its stages,
// the fields of a step, and the slots of their messages, as the stage compiler places them.
double other_bytes(const CutProblem& p, const Costs& costs, std::size_t place) {
  double bytes = 0;
  const auto worker = static_cast<int>(place) % p.shape.workers();
  for (const PlanShape::Copy& copy : p.shape.on(worker)) {
    const StageCost& stage = costs.stages[copy.stage];
    const bool last = copy.stage + 1 == p.shape.stages();
    const double in = copy.stage > 0 ? costs.stages[copy.stage - 1].bytes_out : 0;
    const double out = last ? 0 : stage.bytes_out;
    bytes += stage.working_bytes + stage.feed_bytes * p.lowered.micro_batches +
             in * (copy.live + 1 + kSendSlots) + out * (copy.held + 1 + kSendSlots);
  }
  return bytes;
}

class Search {
 public:
  Search(const CutProblem& problem, const StepBound& bound, const Standing& so_far,
         SearchBudget& budget)
      : p_(problem),
        bound_(bound),
        below_(so_far.time),
        bytes_(so_far.bytes),
        budget_(budget),
        pipelines_(problem.lowered.lowering.pipelines),
        cost_of_one_(instructions_of(problem.lowered) * pipelines_) {}

  CutSearch balanced() {
    result_.bound = bound_({}) * (1 - kRounding);
    const std::vector<int> first = bound_.balanced();
    result_.excess = bound_.least_excess();
    if (first.empty()) return result_;
    std::vector<int> ends(first.begin() + 1, first.end());
    ends.push_back(p_.sums.blocks());
    judge(ends);
    result_.complete = false;
    return result_;
  }

  CutSearch run() {
    std::priority_queue<Node> open;
    const int stages = p_.shape.stages(), blocks = p_.sums.blocks();
    open.push({bound_({}), {}});
    result_.excess = bound_.least_excess();
    while (!open.empty()) {
      const Node node = open.top();
      if (node.bound * (1 - kRounding) >= below_) break;
      if (budget_.instructions <= 0 || open.size() > kMostOpen) {
        result_.complete = false;
        result_.bound = std::min(below_, node.bound * (1 - kRounding));
        return result_;
      }
      open.pop();
      const int cut = static_cast<int>(node.ends.size());
      if (cut == stages) {
        judge(node.ends);
        continue;
      }
      const int first = cut == 0 ? 0 : node.ends.back();
      const bool last = cut + 1 == stages;
      for (int end = last ? blocks : first + 1; end <= blocks - (stages - cut - 1); ++end)
        push(node.ends, end, open);
    }
    result_.bound = below_;
    return result_;
  }

 private:
  double limit(int place) const {
    return p_.costs.memory_limit.empty() ? 0 : p_.costs.memory_limit[place];
  }

  void note_excess(double needed, int place) {
    LeastExcess& e = result_.excess;
    const double most = limit(place);
    if (e.place < 0 || needed - most < e.over()) e = {needed, most, place};
  }

  void push(const std::vector<int>& before, int end, std::priority_queue<Node>& open) {
    Node next{0, before};
    next.ends.push_back(end);
    budget_.instructions -= p_.shape.workers();
    const int places = p_.shape.workers();
    if (!p_.costs.memory_limit.empty()) {
      for (int w = 0; w < places; ++w) {
        const double least = bound_.least_bytes(next.ends, w);
        for (int d = 0; d < pipelines_; ++d) {
          const double most = limit(d * places + w);
          if (most > 0 && least > most) {
            note_excess(least, d * places + w);
            return;
          }
        }
      }
    }
    next.bound = bound_(next.ends);
    if (next.bound * (1 - kRounding) < below_) open.push(std::move(next));
  }

  void judge(const std::vector<int>& ends) {
    std::vector<int> first = {0};
    first.insert(first.end(), ends.begin(), ends.end() - 1);
    FoundCut found = predicted_cut(p_, bound_, first);
    budget_.instructions -= cost_of_one_;
    ++budget_.simulations;
    bool fits = true;
    for (std::size_t place = 0; place < found.peak_bytes.size(); ++place) {
      const double most = limit(static_cast<int>(place));
      if (most > 0 && found.peak_bytes[place] > most) {
        note_excess(found.peak_bytes[place], static_cast<int>(place));
        fits = false;
      }
    }
    const double bytes = *std::max_element(found.peak_bytes.begin(), found.peak_bytes.end());
    const bool faster = found.step_time < below_ * (1 - kRounding);
    const bool smaller = found.step_time <= below_ * (1 + kRounding) && bytes < bytes_;
    if (!fits || !(faster || smaller)) return;
    below_ = std::min(below_, found.step_time);
    bytes_ = bytes;
    result_.best = std::move(found);
  }

  const CutProblem& p_;
  const StepBound& bound_;
  double below_, bytes_;  // of the best plan so far
  SearchBudget& budget_;
  int pipelines_;
  std::int64_t cost_of_one_;
  CutSearch result_;
};

}  // namespace

Costs cut_costs(const CutProblem& p, const StepBound& bound, const std::vector<int>& first_block) {
  Partition partition;
  partition.by = Partition::By::Blocks;
  std::vector<int>& counts = partition.blocks.emplace_back();
  const int blocks = p.sums.blocks();
  for (std::size_t s = 0; s < first_block.size(); ++s)
    counts.push_back((s + 1 < first_block.size() ? first_block[s + 1] : blocks) - first_block[s]);
  Costs costs =
      recut(p.costs, partition, {.stages = static_cast<int>(first_block.size()), .pipelines = 1});
  for (std::size_t s = 0; s < costs.stages.size(); ++s)
    costs.stages[s].reduce_grad = bound.sum_time(static_cast<int>(s), costs.stages[s]);
  costs.allreduce = 0;
  return costs;
}

FoundCut predicted_cut(const CutProblem& problem, const StepBound& bound,
                       const std::vector<int>& first_block) {
  const Costs costs = cut_costs(problem, bound, first_block);
  const Simulation s = simulate(problem.lowered, costs);
  FoundCut found{first_block, s.step_time, {}, {}};
  for (std::size_t place = 0; place < s.workers.size(); ++place) {
    found.peak_bytes.push_back(s.workers[place].peak_bytes + other_bytes(problem, costs, place));
    found.busy.push_back(s.workers[place].busy);
  }
  return found;
}

CutSearch search_cuts(const CutProblem& problem, const StepBound& bound, const Standing& so_far,
                      SearchBudget& budget) {
  return Search(problem, bound, so_far, budget).run();
}

CutSearch try_balanced_cut(const CutProblem& problem, const StepBound& bound,
                           const Standing& so_far, SearchBudget& budget) {
  return Search(problem, bound, so_far, budget).balanced();
}

}  // namespace hetu
