// The automatic method searches the rules of list_order() on one or two placements:
// 1. All other methods with the same sizes that fit memory are simulated. The best makespan becomes
//    the bound of the goal.
// 2. A grid of rules is tried: depths of the warm-up, W's that may delay the next instruction, and
//    preferences of forwards.
// 3. From the best rules, a coordinate descent changes the depth of one stage, or the delay by W's,
//    at a time.
// 4. Random changes of several rules follow, with a fixed seed, so that the result is reproducible.
//
// The search ends after a number of tries that depends only on the sizes, after many random changes
// without an improvement, or when makespan and span are at their lower bounds. The best plan of all
// steps is the result.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "pipeline/generate/choose.h"
#include "pipeline/generate/families.h"
#include "pipeline/generate/list_order.h"
#include "pipeline/generate/placements.h"
#include "pipeline/generate/row.h"

namespace hetu {
namespace {

// The measure of a plan: first the excess of its makespan over the best other method, then makespan
// and span together. A step followed by a flush takes the makespan. A step in a row of steps
// without a flush takes the span.
struct Goal {
  double makespan = std::numeric_limits<double>::infinity();  // makespan of the best other method

  std::pair<double, double> loss(double plan_makespan, double plan_span) const {
    const double over = plan_makespan - makespan;
    return {over > 1e-9 * makespan ? over : 0, plan_makespan + plan_span};
  }
};

bool is_plain(const Schedule& s) {
  return s.most_versions == 1 && s.run_policy == RunPolicy::AsPlanned &&
         model_stages(s) == static_cast<int>(s.placements.size());
}

// Returns the plan without its R's, with changed rows unrolled. The caller decides about
// recomputing.
Schedule without_recompute(Schedule s) {
  for (Program& p : s.workers) {
    std::vector<Instr> row = unroll(p);
    row.erase(std::remove_if(row.begin(), row.end(),
                             [](const Instr& i) { return i.kind == Kind::Recompute; }),
              row.end());
    if (row.size() < unroll(p).size()) p = {std::move(row), {}, 0, 0, {}};
  }
  return s;
}

using Found = std::vector<Candidate>;

// Returns the plans of the other methods with one replica and the same number of chunks that fit
// memory.
Found other_methods(const Sizes& sizes) {
  Found found;
  for (const Method& m : methods()) {
    if (m.generate == automatic || !is_legal(m, sizes)) continue;
    Schedule plan = without_recompute(m.generate(sizes));
    if (!is_plain(plan)) continue;
    if (auto fits = candidate(std::move(plan), sizes, kNoLimit)) found.push_back(std::move(*fits));
  }
  return found;
}

// A search over the rules of list_order on one placement.
class Search {
 public:
  Search(const Schedule& placed, const Sizes& sizes, const Goal& goal)
      : placed_(placed),
        goal_(goal),
        sizes_(sizes),
        limits_(activation_limits(placed, sizes, kNoLimit)),
        times_(stage_times(placed, sizes)) {
    // Enough tries for good orders of usual sizes in about a second, and fewer if each takes
    // longer.
    const double work = 3.0 * sizes.micro_batches * placed.placements.size() * sizes.stages;
    find_least();
    tries_ = static_cast<int>(std::clamp(2e7 / work, 100.0, 1000.0));
  }

  std::optional<Candidate> run() {
    for (const double hops : {1.0, 2.0, hops_to_limit(), 1e6, 0.67, 0.5, 1.5, 3.0, 0.33})
      for (const double overfill : {0.0, 0.5, 1.0})
        for (const bool forward_first : {false, true})
          for (const bool deep_first : {true, false})
            if (best_.rows.empty() || (tries_ > 0 && (deep_first || placed_.chunks > 1)))
              improve({depths(hops), overfill, forward_first, deep_first});
    descend();
    wander();
    Schedule plan = placed_;
    for (std::size_t w = 0; w < best_.rows.size(); ++w)
      plan.workers[w] = folded(best_.rows[w], 3 * placed_.chunks, 1);
    return candidate(std::move(plan), sizes_, kNoLimit);
  }

 private:
  // Computes lower bounds. No worker begins before the first micro-batch can arrive, and each
  // worker has to do all its work.
  void find_least() {
    std::vector<double> work(sizes_.stages, 0), begin(sizes_.stages, kNoLimit);
    double elapsed = 0;
    for (std::size_t s = 0; s < placed_.placements.size(); ++s) {
      const int w = placed_.placements[s].workers[0];
      elapsed += times_.forward_hop[s];
      begin[w] = std::min(begin[w], elapsed);
      elapsed += times_.forward[s];
      work[w] +=
          sizes_.micro_batches * (times_.forward[s] + times_.input_grad[s] + times_.weight_grad[s]);
    }
    for (int w = 0; w < sizes_.stages; ++w) {
      least_makespan_ = std::max(least_makespan_, (begin[w] + work[w]) * (1 + 1e-9));
      least_span_ = std::max(least_span_, work[w] * (1 + 1e-9));
    }
  }

  // Returns the hops with which the first stage has as many micro-batches in progress as its worker
  // may hold.
  double hops_to_limit() const {
    const double further = placed_.placements.size() - 1.0;
    const double most =
        std::min<double>({limits_[0].counted, limits_[0].live, 1.0 * sizes_.micro_batches});
    return (most - 1) * placed_.chunks / std::max(1.0, further);
  }

  // Returns depths with `hops` more micro-batches in progress for each worker further from the end.
  std::vector<int> depths(double hops) const {
    std::vector<int> depth;
    const int stages = static_cast<int>(placed_.placements.size());
    for (int s = 0; s < stages; ++s) {
      const double behind = hops * (stages - 1 - s) / placed_.chunks;
      depth.push_back(1 +
                      static_cast<int>(std::min(std::round(behind), sizes_.micro_batches - 1.0)));
    }
    return depth;
  }

  bool improve(const ListRules& rules) {
    --tries_;
    ListOrder found = list_order(placed_, times_, limits_, sizes_.micro_batches, rules);
    const auto loss = goal_.loss(found.makespan, found.span);
    if (!best_.rows.empty() && loss >= loss_) return false;
    // This plan meets the lower bounds; ends the search.
    if (found.makespan <= least_makespan_ && found.span <= least_span_) tries_ = 0;
    best_ = std::move(found);
    loss_ = loss;
    rules_ = rules;
    return true;
  }

  // Changes one rule of one stage at a time until nothing improves.
  void descend() {
    for (bool better = true; better && tries_ > 0;) {
      better = false;
      for (std::size_t s = 0; s < rules_.depth.size() && tries_ > 0; ++s) {
        for (const int step : {1, -1, 3, -3}) {
          ListRules rules = rules_;
          change(rules, s, step);
          if (rules.depth != rules_.depth) better |= improve(rules);
        }
      }
      for (const double overfill : {0.0, 0.25, 0.5, 0.75, 1.0}) {
        ListRules rules = rules_;
        rules.overfill = overfill;
        better |= improve(rules);
      }
    }
  }

  // Changes several rules at once at random. The seed is fixed, so the result is reproducible.
  void wander() {
    std::mt19937 random(1);
    const int patience = 30 * static_cast<int>(rules_.depth.size());
    for (int failures = 0; tries_ > 0 && failures < patience; ++failures) {
      ListRules rules = rules_;
      for (unsigned changes = 1 + random() % 4; changes > 0; --changes)
        change(rules, random() % rules.depth.size(), random() % 2 == 0 ? 1 : -1);
      if (random() % 4 == 0) rules.overfill = random() % 101 / 100.0;
      if (improve(rules)) failures = 0;
    }
  }

  void change(ListRules& rules, std::size_t stage, int step) const {
    rules.depth[stage] = std::clamp(rules.depth[stage] + step, 1, sizes_.micro_batches);
  }

  const Schedule placed_;
  const Goal& goal_;
  const Sizes& sizes_;
  const std::vector<ActivationLimit> limits_;
  const StageTimes times_;
  double least_makespan_ = 0, least_span_ = 0;  // lower bounds for any plan
  int tries_ = 0;
  ListRules rules_;
  ListOrder best_;
  std::pair<double, double> loss_;  // loss of best_
};

}  // namespace

Schedule automatic(const Sizes& sizes) {
  Found found = other_methods(sizes);
  Goal goal;
  for (const Candidate& c : found) goal.makespan = std::min(goal.makespan, c.makespan);
  std::vector<Schedule> placements = {looped("auto", sizes)};
  if (sizes.chunks % 2 == 0) placements.push_back(waves("auto", sizes));
  for (const Schedule& placed : placements)
    if (auto best = Search(placed, sizes, goal).run()) found.push_back(std::move(*best));
  HETU_ASSERT(!found.empty());  // the search respects the limits
  const auto best =
      std::min_element(found.begin(), found.end(), [&](const Candidate& a, const Candidate& b) {
        return goal.loss(a.makespan, a.span) < goal.loss(b.makespan, b.span);
      });
  best->plan.method = "auto";
  return std::move(best->plan);
}

}  // namespace hetu
