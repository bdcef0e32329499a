#include "pipeline/planner/planner.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "pipeline/choose/rank.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/plan/proved_plan.h"
#include "pipeline/planner/space.h"

namespace hetu {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::int64_t kMostAssignments = 5040;

// A configuration, and what is known about it.
struct Candidate {
  PlanConfiguration configuration;
  double bound = 0;      // none of its plans is faster
  double guess = 0;      // of its step time
  double step_time = 0;  // of a plan that was the best one when it was found; 0: none
  bool sharp = false;    // the bound takes its plan into account
  bool searched = false;
  bool refused = false;
  std::string why;  // it was refused
  LeastExcess excess;
  int of_excess = -1;  // the worker with the excess; -1: nothing was refused for its memory
};

std::string first_line(const Error& e) {
  const std::string text = e.what();
  return text.substr(0, text.find('\n'));
}

// The costs of each size, and what is derived from them.
class Sizing {
 public:
  explicit Sizing(const CostsOfSize& costs) : costs_(costs) {}

  struct OfSize {
    Costs costs;
    BlockSums sums;
    // Times of a micro-batch on one worker of speed 1; `work` is all of it without recompute.
    double work = 0, forward = 0, input_grad = 0;
  };

  const OfSize& of(int size) {
    std::unique_ptr<OfSize>& known = known_[size];
    if (known != nullptr) return *known;
    Costs costs = costs_(size);
    require(!costs.blocks.empty(),
            "a plan needs the costs of the model's blocks; give --costs FILE with 'blocks', such "
            "as a profile or the trace of a run");
    guessed_ = guess_recompute(costs) || guessed_;
    costs.per_worker = false;
    costs.cuts.clear();
    costs.stages.assign(1, StageCost());
    BlockSums sums(costs);
    const StageCost all = sums.stage(0, sums.blocks());
    known = std::make_unique<OfSize>(OfSize{std::move(costs), std::move(sums),
                                            all.forward + all.input_grad + all.weight_grad,
                                            all.forward, all.input_grad});
    return *known;
  }

  bool guessed() const { return guessed_; }

 private:
  const CostsOfSize& costs_;
  bool guessed_ = false;  // costs have no time of recompute
  std::map<int, std::unique_ptr<OfSize>> known_;
};

// Inputs of a search over the cuts of a configuration.
struct Prepared {
  Schedule compute, lowered;
  PlanShape shape;
  Assignments assignments;
};

class Planner {
 public:
  Planner(const PlanRequest& request, const CostsOfSize& costs) : r_(request), sizing_(costs) {
    budget_.instructions = request.budget;
  }

  PlanAnswer run() {
    check_machines(r_.machines);
    const std::vector<int> classes = classes_of(r_.machines);
    alike_ = r_.machines.pairs.empty() &&
             std::all_of(classes.begin(), classes.end(), [](int c) { return c == 0; });
    collect();
    find_first_plans();
    prove();
    finish();
    return std::move(answer_);
  }

 private:
  void collect() {
    const auto blocks = [&](int size) { return sizing_.of(size).sums.blocks(); };
    for (const PlanConfiguration& one : planner_space(r_, blocks)) collect_one(one);
  }

  // Bounds and guesses the step time of a configuration by its work alone.
  void collect_one(const PlanConfiguration& one) {
    const Sizing::OfSize& costs = sizing_.of(one.micro_batch_size);
    const Sizes& sizes = one.sizes;
    const Method& m = *find_method(one.method);
    Candidate c;
    c.configuration = one;
    const double busy =
        costs.work * sizes.micro_batches / most_speed(r_.machines, one.pipelines, sizes.stages);
    // A micro-batch's way through the model and back, on the fastest worker.
    const double back = costs.input_grad * (sizes.concat == "halving" ? 0.5 : 1);
    const double way = (costs.forward + back) /
                       *std::max_element(r_.machines.speed.begin(), r_.machines.speed.end());
    c.bound = std::max(busy, way) * (1 - 1e-9);
    // A guess that orders the first tries: with the idle time of the fill and the drain.
    const double ramp = (sizes.stages - 1.0) / (sizes.micro_batches * sizes.chunks);
    c.guess = busy * (1 + (m.chunks > 1 || takes(m, "pairs") ? ramp / 2 : ramp)) *
              (sizes.with_recompute ? 1.25 : 1.0);
    candidates_.push_back(std::move(c));
  }

  // ---- the search ----

  double best_time() const { return answer_.best ? answer_.best->cut.step_time : kNever; }

  Standing standing() const {
    if (!answer_.best) return {};
    const FoundCut& cut = answer_.best->cut;
    return {cut.step_time, *std::max_element(cut.peak_bytes.begin(), cut.peak_bytes.end())};
  }

  // Returns the configuration's plan, or nullopt with the reason in `why`.
  std::optional<Prepared> prepared(const PlanConfiguration& one, std::string& why) const {
    try {
      Schedule compute = computations({.method = one.method, .sizes = one.sizes});
      require(!is_asynchronous(compute), "the method updates within a step");
      Schedule lowered = lowered_of(compute, alike_ ? std::min(2, one.pipelines) : one.pipelines);
      PlanShape shape(lowered);
      Assignments assignments = assignments_of(r_.machines, one.pipelines, shape.workers(),
                                               alike_ ? 1 : kMostAssignments);
      return Prepared{std::move(compute), std::move(lowered), std::move(shape),
                      std::move(assignments)};
    } catch (const Error& e) {
      if (e.code() != Code::InvalidArgument && e.code() != Code::Plan) throw;
      why = first_line(e);
      return std::nullopt;
    }
  }

  Schedule lowered_of(const Schedule& compute, int pipelines) const {
    Lowering how;
    how.pipelines = pipelines;
    how.sync = r_.sync;
    return proved_plan(compute, how).lowered;
  }

  CutProblem problem_of(const PlanConfiguration& one, const Prepared& p,
                        const Assignment& assignment) {
    const Sizing::OfSize& costs = sizing_.of(one.micro_batch_size);
    const std::size_t places =
        static_cast<std::size_t>(p.shape.workers()) * p.lowered.lowering.pipelines;
    const Assignment simulated(assignment.begin(), assignment.begin() + places);
    return {p.lowered,     p.shape, costs.sums, placed(costs.costs, r_.machines, simulated),
            one.pipelines, alike_};
  }

  StepBound bound_of(const CutProblem& p) const {
    return {p.shape, p.sums, p.costs, p.pipelines, p.alike};
  }

  // Tries one cut of each configuration, the most promising ones first, so that the proof begins
  // with a good plan.
  void find_first_plans() {
    std::vector<Candidate*> order;
    for (Candidate& c : candidates_) order.push_back(&c);
    std::stable_sort(order.begin(), order.end(),
                     [](const Candidate* a, const Candidate* b) { return a->guess < b->guess; });
    const std::int64_t reserve = r_.budget / 2;
    std::int64_t done = 0;
    for (Candidate* c : order) {
      if (r_.progress) r_.progress(done++, 2 * static_cast<std::int64_t>(order.size()));
      if (budget_.instructions < reserve) break;
      if (c->bound >= best_time() || c->guess > 1.5 * best_time()) continue;
      const std::optional<Prepared> p = prepared(c->configuration, c->why);
      if (!p) {
        c->refused = true;
        continue;
      }
      for (const Assignment& a : p->assignments.list) {
        const CutProblem problem = problem_of(c->configuration, *p, a);
        take(*c, a, try_balanced_cut(problem, bound_of(problem), standing(), budget_));
        if (budget_.instructions < reserve) break;
      }
    }
  }

  // Notes a result, and keeps its plan if it is the best one.
  void take(Candidate& c, const Assignment& assignment, CutSearch found) {
    if (found.excess.place >= 0 && (c.of_excess < 0 || found.excess.over() < c.excess.over())) {
      c.excess = found.excess;
      c.of_excess = assignment[found.excess.place];
    }
    if (!found.best) return;
    c.step_time = found.best->step_time;
    best_ = &c;
    answer_.best = PlanChoice{c.configuration, assignment, *std::move(found.best), {}, {}};
  }

  // Searches the configurations in the order of their bounds, until none can be faster.
  void prove() {
    std::vector<Candidate*> heap;
    for (Candidate& c : candidates_) heap.push_back(&c);
    const auto later = [](const Candidate* a, const Candidate* b) { return a->bound > b->bound; };
    std::make_heap(heap.begin(), heap.end(), later);
    const auto all = static_cast<std::int64_t>(heap.size());
    while (!heap.empty() && heap.front()->bound < best_time() && budget_.instructions > 0) {
      if (r_.progress) r_.progress(2 * all - static_cast<std::int64_t>(heap.size()), 2 * all);
      std::pop_heap(heap.begin(), heap.end(), later);
      Candidate& c = *heap.back();
      heap.pop_back();
      if (c.refused) continue;
      std::optional<Prepared> p = prepared(c.configuration, c.why);
      if (!p) {
        c.refused = true;
        continue;
      }
      const bool sharper = !c.sharp && sharpen(c, *p);
      c.sharp = true;
      if (sharper && !heap.empty() && c.bound > heap.front()->bound) {
        heap.push_back(&c);
        std::push_heap(heap.begin(), heap.end(), later);
        continue;
      }
      if (c.bound < best_time()) search(c, *p);
    }
  }

  // Replaces the bound of a configuration by that of its plan over all assignments. Returns true if
  // it grew.
  bool sharpen(Candidate& c, const Prepared& p) {
    budget_.instructions -= 1000;
    if (!p.assignments.all) return false;
    double least = kNever;
    for (const Assignment& a : p.assignments.list) {
      const CutProblem problem = problem_of(c.configuration, p, a);
      const StepBound bound = bound_of(problem);
      const double here = bound({}) * (1 - 1e-9);
      if (here == kNever) {
        CutSearch none;
        none.excess = bound.least_excess();
        take(c, a, none);
      }
      least = std::min(least, here);
      if (least <= c.bound) return false;
    }
    c.bound = least;
    return true;
  }

  void search(Candidate& c, const Prepared& p) {
    double bound = kNever;
    bool complete = p.assignments.all;
    for (const Assignment& a : p.assignments.list) {
      const CutProblem problem = problem_of(c.configuration, p, a);
      CutSearch found = search_cuts(problem, bound_of(problem), standing(), budget_);
      bound = std::min(bound, found.bound);
      complete = complete && found.complete;
      take(c, a, std::move(found));
    }
    if (p.assignments.all) c.bound = std::max(c.bound, bound);
    c.searched = complete;
  }

  // ---- the answer ----

  void finish() {
    answer_.bound = best_time();
    for (const Candidate& c : candidates_) {
      answer_.verdicts.push_back(verdict_of(c));
      if (!c.refused) answer_.bound = std::min(answer_.bound, c.bound);
    }
    if (answer_.bound == kNever) answer_.bound = 0;
    answer_.simulations = budget_.simulations;
    answer_.recompute_guessed = sizing_.guessed();
    if (!answer_.best) return;
    PlanChoice& best = *answer_.best;
    const Sizing::OfSize& of = sizing_.of(best.configuration.micro_batch_size);
    answer_.time_unit = of.costs.unit;
    std::string why;
    const std::optional<Prepared> p = prepared(best.configuration, why);
    const CutProblem problem = problem_of(best.configuration, *p, best.assignment);
    best.costs = cut_costs(problem, bound_of(problem), best.cut.first_block);
    best.costs = placed(best.costs, r_.machines, best.assignment);
    best.lowered = lowered_of(p->compute, best.configuration.pipelines);
    // Only two of the pipelines that are alike were simulated.
    const std::size_t places = best.assignment.size(), simulated = best.cut.busy.size();
    for (std::size_t i = simulated; i < places; ++i) {
      best.cut.busy.push_back(best.cut.busy[i - simulated]);
      best.cut.peak_bytes.push_back(best.cut.peak_bytes[i - simulated]);
    }
  }

  PlanVerdict verdict_of(const Candidate& c) const {
    using Kind = PlanVerdict::Kind;
    PlanVerdict v;
    v.configuration = c.configuration;
    v.step_time = c.step_time;
    v.bound = c.bound == kNever ? 0 : c.bound;
    if (c.refused) {
      v.kind = Kind::Refused;
      v.why = c.why;
      return v;
    }
    if (c.of_excess >= 0)
      v.why = fmt::format("worker {} would need {:.1f} MiB, and its limit is {:.1f} MiB",
                          c.of_excess, c.excess.needed / (1 << 20), c.excess.limit / (1 << 20));
    const bool settled = c.bound >= best_time();
    if (c.bound == kNever || (!answer_.best && c.searched))
      v.kind = Kind::DoesNotFit;
    else if (!settled)
      v.kind = Kind::Unfinished;
    else
      v.kind = c.step_time > 0 && &c == best_ ? Kind::Searched : Kind::RuledOut;
    return v;
  }

  const PlanRequest& r_;
  Sizing sizing_;
  SearchBudget budget_;
  bool alike_ = false;  // all workers and links are
  std::vector<Candidate> candidates_;
  const Candidate* best_ = nullptr;
  PlanAnswer answer_;
};

}  // namespace

bool PlanAnswer::unfinished() const {
  return !best && std::any_of(verdicts.begin(), verdicts.end(), [](const PlanVerdict& v) {
    return v.kind == PlanVerdict::Kind::Unfinished;
  });
}

PlanAnswer find_plan(const PlanRequest& request, const CostsOfSize& costs) {
  return Planner(request, costs).run();
}

}  // namespace hetu
