// Schedules by repeatedly placing the instruction that starts first over all workers. Each worker
// proposes one instruction: its earliest F or I, by the rules, or a W if it would otherwise wait
// long enough. After an instruction is placed, only the workers of its stage and of the
// neighbouring stages decide again. No later placement can start earlier than an earlier one, so
// times are final once placed.
#include "pipeline/generate/list_order.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "pipeline/generate/row.h"

namespace hetu {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kTiny = 1e-9;

struct Next {
  double start = kNever;
  Kind kind = Kind::Forward;
  int stage = -1;
};

class Scheduler {
 public:
  Scheduler(const Schedule& placed, const StageTimes& times,
            const std::vector<ActivationLimit>& limits, int micros, const ListRules& rules)
      : times_(times),
        rules_(rules),
        micros_(micros),
        last_(static_cast<int>(placed.placements.size()) - 1),
        stages_(placed.placements.size()),
        workers_(limits.size()) {
    for (int s = 0; s <= last_; ++s) {
      stages_[s].worker = placed.placements[s].workers[0];
      stages_[s].forward_end.reserve(micros);
      stages_[s].input_end.reserve(micros);
      workers_[stages_[s].worker].stages.push_back(s);
    }
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      Worker& worker = workers_[w];
      const double halves = 2 * limits[w].counted * placed.chunks + kTiny;
      const double live = limits[w].live * placed.chunks + kTiny;
      worker.limit = static_cast<int>(std::min(halves, 4.0 * micros * placed.chunks));
      worker.most_live = static_cast<int>(std::min(live, 2.0 * micros * placed.chunks));
      worker.row.reserve(3 * static_cast<std::size_t>(micros) * worker.stages.size());
    }
  }

  ListOrder run() {
    std::vector<Next> next;
    for (std::size_t w = 0; w < workers_.size(); ++w) next.push_back(decide(static_cast<int>(w)));
    for (;;) {
      const auto first = std::min_element(
          next.begin(), next.end(), [](const Next& a, const Next& b) { return a.start < b.start; });
      if (first->start == kNever) break;
      const Next now = *first;
      place(now);
      // Only the stage and its neighbours depend on the new result.
      for (int s = std::max(0, now.stage - 1); s <= std::min(last_, now.stage + 1); ++s)
        next[stages_[s].worker] = decide(stages_[s].worker);
    }
    ListOrder order;
    for (Worker& w : workers_) {
      HETU_ASSERT(w.row.size() == 3 * static_cast<std::size_t>(micros_) * w.stages.size());
      order.makespan = std::max(order.makespan, w.free);
      order.span = std::max(order.span, w.free - w.begin);
      order.rows.push_back(std::move(w.row));
    }
    return order;
  }

 private:
  struct Stage {
    int worker = 0;
    int weights = 0;
    std::vector<double> forward_end, input_end;
    int forwards() const { return static_cast<int>(forward_end.size()); }
    int inputs() const { return static_cast<int>(input_end.size()); }
  };
  struct Worker {
    std::vector<int> stages;      // in ascending order
    int limit = 0, held = 0;      // in halves of a chunk's activations
    int most_live = 0, live = 0;  // micro-batches of chunks between F and W
    double begin = -1, free = 0;
    std::vector<Instr> row;
  };

  // Returns the time at which the input of the stage's next forward arrives, or kNever if its
  // producer has not been placed.
  double forward_at(int s) const {
    const int m = stages_[s].forwards();
    if (m == micros_) return kNever;
    if (s == 0) return 0;
    return m < stages_[s - 1].forwards() ? stages_[s - 1].forward_end[m] + times_.forward_hop[s]
                                         : kNever;
  }

  double input_at(int s) const {
    const int m = stages_[s].inputs();
    if (m >= stages_[s].forwards()) return kNever;
    if (s == last_) return stages_[s].forward_end[m];
    return m < stages_[s + 1].inputs() ? stages_[s + 1].input_end[m] + times_.backward_hop[s]
                                       : kNever;
  }

  bool may_forward(const Worker& worker, std::size_t chunk) const {
    const int to_come = static_cast<int>(worker.stages.size() - chunk);  // including this chunk
    const int s = worker.stages[chunk];
    return worker.held + 2 * to_come <= worker.limit && worker.live + to_come <= worker.most_live &&
           stages_[s].forwards() - stages_[s].inputs() < rules_.depth[s];
  }

  Next decide(int w) const {
    const Worker& worker = workers_[w];
    Next forward, input, weight;
    for (std::size_t c = 0; c < worker.stages.size(); ++c) {
      const int s = worker.stages[c];
      if (stages_[s].weights < stages_[s].inputs() && weight.stage < 0)
        weight = {worker.free, Kind::WeightGrad, s};
      const double in = std::max(worker.free, input_at(s));
      if (in <= input.start) input = {in, Kind::InputGrad, s};  // the deepest stage wins ties
      if (!may_forward(worker, c)) continue;
      const double at = std::max(worker.free, forward_at(s));
      if (at < forward.start || (at == forward.start && rules_.deep_first))
        forward = {at, Kind::Forward, s};
    }
    const bool to_forward = rules_.forward_first ? forward.start <= input.start + kTiny
                                                 : forward.start < input.start - kTiny;
    const Next& main = to_forward ? forward : input;
    if (weight.stage < 0 || main.start <= worker.free) return main;
    const double time = times_.weight_grad[weight.stage];
    return worker.free + time * (1 - rules_.overfill) <= main.start + kTiny ? weight : main;
  }

  void place(const Next& next) {
    Stage& stage = stages_[next.stage];
    Worker& worker = workers_[stage.worker];
    if (worker.begin < 0) worker.begin = next.start;
    switch (next.kind) {
      case Kind::Forward:
        worker.free = next.start + times_.forward[next.stage];
        worker.row.push_back(forward_of(next.stage, stage.forwards()));
        stage.forward_end.push_back(worker.free);
        worker.held += 2;
        ++worker.live;
        return;
      case Kind::InputGrad:
        worker.free = next.start + times_.input_grad[next.stage];
        worker.row.push_back(input_grad_of(next.stage, stage.inputs()));
        stage.input_end.push_back(worker.free);
        --worker.held;
        return;
      default:
        worker.free = next.start + times_.weight_grad[next.stage];
        worker.row.push_back(weight_grad_of(next.stage, stage.weights++));
        --worker.held;
        --worker.live;
    }
  }

  const StageTimes& times_;
  const ListRules& rules_;
  const int micros_, last_;
  std::vector<Stage> stages_;
  std::vector<Worker> workers_;
};

}  // namespace

ListOrder list_order(const Schedule& placed, const StageTimes& times,
                     const std::vector<ActivationLimit>& limits, int micros,
                     const ListRules& rules) {
  return Scheduler(placed, times, limits, micros, rules).run();
}

}  // namespace hetu
