#include "pipeline/lower/run_order.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "pipeline/cost/timing.h"
#include "pipeline/ir/plan_index.h"
#include "pipeline/lower/lower.h"
#include "pipeline/verify/run_policy.h"
#include "pipeline/verify/verify.h"

namespace hetu {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Runs a plan in order of time: always starts the instruction that can start first. All arrivals up
// to that time are then known, so the policy decides as a real worker would.
class Runner {
 public:
  Runner(const PlanIndex& index, const Costs& costs, const Stragglers& stragglers)
      : index_(index),
        timing_(index.schedule(), costs, stragglers),
        end_(index.size(), kNever),
        left_(index.workers()),
        free_(index.workers(), 0),
        order_(index.workers()) {
    for (int w = 0; w < index.workers(); ++w)
      for (int p = index.row_end(w); p-- > index.row_begin(w);) left_[w].push_back(p);
  }

  std::vector<std::vector<int>> run() {
    for (;;) {
      int first = -1;
      double start = kNever;
      for (int w = 0; w < index_.workers(); ++w) {
        const double at = left_[w].empty() ? kNever : start_of(w);
        if (at < start) {
          start = at;
          first = w;
        }
      }
      if (first < 0) return order_;
      begin(first, start);
    }
  }

 private:
  // Returns the time at which the last result from another worker arrives for an instruction.
  double arrival(int position) const {
    const Instr& user = index_.at(position);
    const int to = index_.graph().worker(user.stage);
    double latest = 0;
    index_.graph().producers(user, [&](const Producer& p) {
      const int made = index_.find(p.instr);
      if (made < 0 || index_.worker_of(made) == to) return;
      latest = std::max(latest, end_[made] + timing_.message(index_.at(made), user.stage,
                                                             index_.worker_of(made), to));
    });
    return latest;
  }

  double start_of(int worker) const {
    return std::max(free_[worker], arrival(left_[worker].back()));
  }

  // Starts the next instruction of a worker. The row is stored in reverse. A recompute yields to
  // the next forward of the row if the gradient for its backward has not arrived and the input of
  // that forward has.
  void begin(int worker, double start) {
    std::vector<int>& row = left_[worker];
    auto next = row.end() - 1;
    if (index_.at(*next).kind == Kind::Recompute && arrival(*(next - 1)) > start) {
      const auto forward = std::find_if(row.rbegin(), row.rend(),
                                        [&](int p) { return index_.at(p).kind == Kind::Forward; });
      if (forward != row.rend() && arrival(*forward) <= start) next = forward.base() - 1;
    }
    const int position = *next;
    const auto done = static_cast<std::int64_t>(order_[worker].size());
    end_[position] = start + timing_.compute(index_.at(position), worker, done, start);
    free_[worker] = end_[position];
    order_[worker].push_back(position);
    row.erase(next);
  }

  const PlanIndex& index_;
  const Timing timing_;
  std::vector<double> end_;             // end per position; kNever: not started
  std::vector<std::vector<int>> left_;  // per worker: remaining positions, the next one last
  std::vector<double> free_;
  std::vector<std::vector<int>> order_;
};

}  // namespace

Schedule run_order(const Schedule& plan, const Costs& costs, const Stragglers& stragglers) {
  check_costs(costs, plan, plan.lowering.pipelines);
  if (plan.run_policy == RunPolicy::AsPlanned) return plan;
  check_run_policy(plan);
  if (is_lowered(plan))
    return lower(run_order(without_lowering(plan), costs, stragglers), plan.lowering);
  const PlanIndex index(plan);
  const auto order = Runner(index, costs, stragglers).run();
  Schedule s = plan;
  for (std::size_t w = 0; w < order.size(); ++w) {
    Program& row = s.workers[w];
    row = {};
    for (const int position : order[w]) row.prologue.push_back(index.at(position));
  }
  // If a row could not finish, verify() throws for the original plan and names what its rows wait
  // for.
  for (std::size_t w = 0; w < order.size(); ++w) {
    const int worker = static_cast<int>(w);
    if (static_cast<int>(order[w].size()) < index.row_end(worker) - index.row_begin(worker))
      verify(plan);
  }
  return s;
}

}  // namespace hetu
