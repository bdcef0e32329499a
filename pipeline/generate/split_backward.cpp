// Splits the backwards of any plan with a flush and moves the weight gradients into its bubbles.
// The plan's rows run in order of time, with each backward reduced to its input gradient. Weight
// gradients collect in a queue per worker. When the worker would wait for its next instruction, it
// takes W's that fit into the wait. Before a forward that would exceed the plan's peak of
// activations, it takes W's to free memory. The W's left at the end close the row.
//
// Several settings of how far a W may exceed a wait are tried, and the shortest plan wins.
#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "pipeline/cost/timing.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/producers.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {
namespace {

using Row = std::vector<Instr>;

void check(const Schedule& plan) {
  const auto pairs = [](const Instr& i) { return i.with_next; };
  const char* found = is_asynchronous(plan) ? "updates without a flush"
                      : plan.half_micros    ? "splits backwards into half micro-batches"
                      : plan.run_policy != RunPolicy::AsPlanned ? "is reordered at run time"
                      : any_instr(plan, pairs)                  ? "has pairs that run as one"
                      : !holds(plan, Kind::Backward)            ? "has no whole backward"
                                                                : nullptr;
  require(found == nullptr,
          "--split-backward needs a plan with a flush and whole backwards, such as 1f1b or "
          "chimera; '{}' {}",
          plan.method, found);
}

// Returns the activations that a kind frees, in halves. A forward makes two halves, and each
// gradient frees one.
int freed_by(Kind kind) {
  return kind == Kind::Backward ? 2 : kind == Kind::InputGrad || kind == Kind::WeightGrad ? 1 : 0;
}

int peak_of(const Row& row) {
  int kept = 0, most = 0;
  for (const Instr& i : row) {
    kept += (i.kind == Kind::Forward ? 2 : 0) - freed_by(i.kind);
    most = std::max(most, kept);
  }
  return most;
}

// One run of the algorithm above, with one setting of `overfill`.
class Splitting {
 public:
  // `overfill` is the share of a W by which it may delay the next instruction.
  Splitting(const Schedule& plan, const Costs& costs, double overfill)
      : plan_(plan),
        overfill_(overfill),
        graph_(plan, /*lowered=*/false),
        timing_(plan, costs, none_),
        workers_(plan.workers.size()) {
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      workers_[w].row = unroll(plan.workers[w]);
      most_kept_ = std::max(most_kept_, peak_of(workers_[w].row));
    }
  }

  Schedule split() {
    for (std::optional<Next> next = earliest(); next; next = earliest()) take(*next);
    Schedule made = plan_;
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      while (!workers_[w].late.empty()) take_late(workers_[w], w);
      made.workers[w] = {{}, {}, 0, 0, std::move(workers_[w].made)};
    }
    return made;
  }

 private:
  struct Worker {
    Row row, made;
    std::deque<Instr> late;  // W's whose input gradients are done
    std::size_t at = 0;
    double free = 0;
    int kept = 0;  // halves of activations
  };
  struct Next {
    std::size_t worker;
    double ready, start;
  };

  // Returns the time at which everything that the instruction needs has arrived, or nullopt if a
  // producer has not been planned yet.
  std::optional<double> ready_at(const Instr& instr, std::size_t w) const {
    double at = 0;
    bool known = true;
    graph_.producers(instr, [&](const Producer& p) {
      const auto end = ends_.find({p.instr.kind, p.instr.stage, p.instr.micro});
      if (end == ends_.end()) {
        known = known && p.if_present;  // an R stands before its B in the same row
        return;
      }
      const int from = graph_.worker(p.instr.stage), to = static_cast<int>(w);
      const double transit = from == to ? 0 : timing_.message(p.instr, instr.stage, from, to);
      at = std::max(at, end->second + transit);
    });
    return known ? std::optional(at) : std::nullopt;
  }

  std::optional<Next> earliest() const {
    std::optional<Next> first;
    bool done = true;
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      const Worker& worker = workers_[w];
      if (worker.at == worker.row.size()) continue;
      done = false;
      const std::optional<double> ready = ready_at(worker.row[worker.at], w);
      if (!ready) continue;
      const double start = std::max(*ready, worker.free);
      if (!first || start < first->start) first = {w, *ready, start};
    }
    if (!done && !first)
      fail(Code::Plan, "'{}' cannot run: its rows wait for each other", plan_.method);
    return first;
  }

  double time_of(const Instr& i, std::size_t w) const {
    return timing_.compute(i, static_cast<int>(w), 0, 0);
  }

  void take_late(Worker& worker, std::size_t w) {
    worker.made.push_back(worker.late.front());
    worker.free += time_of(worker.late.front(), w);
    worker.kept -= 1;
    worker.late.pop_front();
  }

  void take(const Next& next) {
    const std::size_t w = next.worker;
    Worker& worker = workers_[w];
    Instr instr = worker.row[worker.at++];
    const bool forward = instr.kind == Kind::Forward;
    while (!worker.late.empty() && forward && worker.kept + 2 > most_kept_) take_late(worker, w);
    while (!worker.late.empty() && worker.free < next.ready) {
      const double time = time_of(worker.late.front(), w);
      if (worker.free + time > next.ready * (1 + kRounding) + overfill_ * time) break;
      take_late(worker, w);
    }
    const bool whole = instr.kind == Kind::Backward;
    if (whole) instr.kind = Kind::InputGrad;
    worker.free = std::max(worker.free, next.ready) + time_of(instr, w);
    worker.kept += (forward ? 2 : 0) - freed_by(instr.kind);
    worker.made.push_back(instr);
    ends_[{instr.kind, instr.stage, instr.micro}] = worker.free;
    if (!whole) return;
    instr.kind = Kind::WeightGrad;
    worker.late.push_back(instr);
  }

  static constexpr double kRounding = 1e-9;

  const Schedule& plan_;
  const double overfill_;
  const StageGraph graph_;
  const Stragglers none_ = {};
  const Timing timing_;
  std::vector<Worker> workers_;
  int most_kept_ = 0;  // in halves of activations: the peak of the worker that keeps the most
  std::map<std::tuple<Kind, int, int>, double> ends_;
};

}  // namespace

Schedule with_split_backward(const Schedule& plan, const Costs& costs) {
  check(plan);
  check_costs(costs, plan, 1);
  Schedule best;
  double least = std::numeric_limits<double>::infinity();
  for (const double overfill : {0.0, 0.5, 1.0}) {
    Schedule made = Splitting(plan, costs, overfill).split();
    const double makespan = simulate(made, costs).makespan;
    if (makespan >= least * (1 - 1e-9)) continue;
    least = makespan;
    best = std::move(made);
  }
  return best;
}

}  // namespace hetu
