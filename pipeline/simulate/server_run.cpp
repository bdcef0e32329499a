#include "pipeline/simulate/server_run.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "pipeline/simulate/row_run.h"
#include "pipeline/simulate/simulate_figures.h"
#include "pipeline/verify/verify.h"

namespace hetu {
namespace {

class ServerRun : RowRun {
 public:
  ServerRun(const Progress& progress, const Costs& costs, const SimulateOptions& options)
      : RowRun(progress, costs, options),
        latency_(costs.link.latency),
        servers_(options.servers),
        staleness_(index_.schedule().lowering.staleness()),
        waits_(static_cast<std::size_t>(workers_) * pipelines_, kNowhere),
        copies_(static_cast<std::size_t>(index_.graph().stages()) * pipelines_),
        pulls_(index_.graph().stages()),
        pull_of_(pulls_.size()),
        met_(copies_.size()),
        middle_(pipelines_, MiddleHalf(total_micros(index_.schedule()))) {
    find_meetings(costs.cuts);
  }

  // Returns true if every row has ended.
  bool operator()() {
    run_rows();
    for (std::size_t r = 0; r < waits_.size(); ++r)
      if (!has_ended(static_cast<int>(r)) || waits_[r] != kNowhere) return false;
    return true;
  }

  Simulation finish() {
    add_figures(result_);
    add_rates(result_, middle_);
    sort_events(result_);
    return std::move(result_);
  }

 private:
  // Kinds of events. The value of an event is the placement.
  enum EventKind { kPushArrives = 1, kPushIsServed, kPullArrives, kPullIsServed, kAnswerArrives };

  static constexpr int kNowhere = -1;

  // State of a pipeline's copy of a stage, in its row and at the servers. At most one push and its
  // pull are in transit, because the forwards after them need the pull.
  struct Copy {
    int pushes = 0, pulls = 0;  // pushes and pulls that the row has come to
    int served = 0;             // clock: waves that the servers have applied
    int answers = 0;            // answers that have arrived
    double push_at = 0, pull_at = 0;
  };

  Copy& copy(int stage, int pipeline) {
    return copies_[static_cast<std::size_t>(stage) * pipelines_ + pipeline];
  }
  Copy& copy(const Event& e) { return copy(static_cast<int>(e.value), e.row / workers_); }

  bool is_held_up(int r, const Instr& /*instr*/) override { return waits_[r] != kNowhere; }

  void computed(int r, const Instr& i, double at, double time) override {
    if (worker(r) == 0) middle_[r / workers_].note(i, at, time);
  }

  void on_instruction(int r, const Instr& i) override {
    Copy& c = copy(i.stage, r / workers_);
    if (i.kind == Kind::Push) {
      ++c.pushes;
      c.push_at = now_;
      push(now_ + latency_, r, kPullArrives, i.stage);
      push(now_ + latency_, r, kPushArrives, i.stage);
    } else {
      c.pull_at = now_;
      waits_[r] = i.stage;
      go_on(r, c);
    }
  }

  void on_event(const Event& e) override {
    const int stage = static_cast<int>(e.value);
    switch (e.what) {
      case kPushArrives:
        return serve(e, kPushIsServed, timing_.applied(stage, servers_, e.row / workers_));
      case kPushIsServed:
        note(e.row, Kind::Push, stage, copy(e).served++, copy(e).push_at);
        for (const int other : pull_of_[stage]) answer(other);
        return;
      case kPullArrives:
        pulls_[stage].push_back(e);
        return answer(stage);
      case kPullIsServed:
        return push(now_ + latency_, e.row, kAnswerArrives, e.value);
      default:
        ++copy(e).answers;
        if (waits_[e.row] != stage) return;
        go_on(e.row, copy(e));
        if (waits_[e.row] == kNowhere) advance(e.row);
    }
  }

  // Lets a row continue after a pull if the answer has arrived.
  void go_on(int r, Copy& c) {
    if (c.answers == c.pulls) return;
    note(r, Kind::Pull, waits_[r], c.pulls++, c.pull_at);
    waits_[r] = kNowhere;
  }

  void serve(const Event& e, int then, double more = 0) {
    free_ = std::max(free_, now_) +
            timing_.served(static_cast<int>(e.value), servers_, e.row / workers_) + more;
    push(free_, e.row, then, e.value);
  }

  // Returns true if stage s of a pipeline with cuts `a` and stage t of a pipeline with cuts `b`
  // have blocks in common.
  static bool meet(const std::vector<int>& a, int s, const std::vector<int>& b, int t) {
    const auto begins_before_end = [](const std::vector<int>& x, int i, const std::vector<int>& y,
                                      int j) {
      return j + 1 == static_cast<int>(y.size()) || x[i] < y[j + 1];
    };
    return begins_before_end(a, s, b, t) && begins_before_end(b, t, a, s);
  }

  // Fills met_ and pull_of_: the stages of any two pipelines that share weights, and the copies
  // that a pull waits for.
  void find_meetings(const std::vector<std::vector<int>>& cuts) {
    const int stages = index_.graph().stages();
    for (int s = 0; s < stages; ++s) {
      std::set<int> any;
      for (int d = 0; d < pipelines_; ++d) {
        for (int e = 0; e < pipelines_; ++e) {
          for (int t = 0; t < stages; ++t) {
            if (cuts.empty() ? s != t : !meet(cuts[d], s, cuts[e], t)) continue;
            met_[static_cast<std::size_t>(s) * pipelines_ + d].push_back({t, e});
            any.insert(t);
          }
        }
      }
      pull_of_[s].assign(any.begin(), any.end());
    }
  }

  // Returns the number of waves that all pipelines have pushed of the weights in the stage of a
  // pull.
  int slowest(const Event& pull) {
    int least = copy(pull).served;
    const auto stage = static_cast<std::size_t>(pull.value);
    for (const auto& [t, d] : met_[stage * pipelines_ + pull.row / workers_])
      least = std::min(least, copy(t, d).served);
    return least;
  }

  // Answers the pulls of a stage that can be answered, in the order of their arrival. A pull of
  // wave c needs its own pipeline's waves up to c, and the waves up to c - D of all pipelines.
  void answer(int stage) {
    std::vector<Event> waiting;
    waiting.swap(pulls_[stage]);
    for (const Event& e : waiting) {
      const int waves = copy(e).pushes;
      if (copy(e).served >= waves && slowest(e) >= least_clock(staleness_, waves))
        serve(e, kPullIsServed);
      else
        pulls_[stage].push_back(e);
    }
  }

  void note(int r, Kind kind, int stage, int wave, double from) {
    add_event(r, {.kind = kind, .stage = stage}, from, now_ - from, wave);
    result_.step_time = std::max(result_.step_time, now_);
  }

  const double latency_;
  const int servers_, staleness_;
  std::vector<int> waits_;    // per row: stage of the pull at which the row waits, or kNowhere
  std::vector<Copy> copies_;  // by stage and pipeline
  std::vector<std::vector<Event>> pulls_;  // per stage: pulls not answered yet
  // per stage: stages with pulls that may wait for its pushes
  std::vector<std::vector<int>> pull_of_;
  std::vector<std::vector<std::pair<int, int>>>
      met_;          // indexed as copies_: the copies that a pull waits for
  double free_ = 0;  // time at which the servers have processed everything that has arrived
  std::vector<MiddleHalf> middle_;  // per pipeline
};

}  // namespace

Simulation simulate_servers(const Schedule& schedule, const Costs& costs,
                            const SimulateOptions& options) {
  require(options.servers >= 1, "servers must be at least 1, got {}", options.servers);
  const PlanIndex index(schedule);
  Progress progress(index, options.send_slots, schedule.lowering.pipelines);
  ServerRun run(progress, costs, options);
  const bool whole = run();
  if (options.partly) return run.finish();
  if (!whole) verify(schedule);  // throws with the reason
  HETU_ASSERT(whole);
  Simulation result = run.finish();
  describe(result, index, costs);
  return result;
}

}  // namespace hetu
