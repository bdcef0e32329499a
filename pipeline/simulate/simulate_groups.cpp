// Groups form in the order in which pipelines arrive at their PARTIAL_REDUCEs. The simulation
// therefore runs in order of time (RowRun). It asks groups::Policy for decisions, as a coordinator
// does. A pipeline stops at the update that its answers name. The fastest pipeline runs more
// micro-batches than the plan has. The simulation therefore runs a longer plan, and repeats with
// twice the length if that was too short.
#include "pipeline/simulate/simulate_groups.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "pipeline/simulate/row_run.h"
#include "pipeline/simulate/simulate_figures.h"

namespace hetu {
namespace {

// A run of pipelines in groups. A row holds one stage, and the stage's next update waits for its
// average.
class GroupRun : RowRun {
 public:
  GroupRun(const Progress& progress, const Costs& costs, const SimulateOptions& options,
           const groups::Options& policy, std::int64_t updates)
      : RowRun(progress, costs, options),
        policy_(policy),
        averages_(static_cast<std::size_t>(workers_) * pipelines_),
        finished_(pipelines_) {
    policy_.begin_run(0, updates);
    for (Averages& a : averages_) a.stop = groups::known_stop(policy_.options(), updates);
  }

  // Returns false if the plan has too few micro-batches for the fastest pipeline, not counting fill
  // and drain.
  bool operator()() {
    run_rows();
    bool enough = true, ended = true;
    for (std::size_t r = 0; r < averages_.size(); ++r) {
      const Averages& a = averages_[r];
      enough = enough && a.stop != groups::kRunsOn && a.stop + workers_ < index_.forward_micros();
      ended = ended && (a.done == a.stop || has_ended(static_cast<int>(r)));
    }
    HETU_ASSERT(ended || !enough);
    return enough;
  }

  GroupSimulation finish() {
    add_figures(result_);
    sort_events(result_);
    result_.asynchronous = true;
    result_.throughput = steady_rate(finished_, workers_, result_.makespan);
    return {std::move(result_), std::move(groups_)};
  }

 private:
  static constexpr int kAverage = 1;  // the value of the event is the stop that the answer names

  struct Averages {
    std::int64_t asked = 0, done = 0;
    std::int64_t stop = groups::kRunsOn;  // last update, as far as the answers have named it
  };

  std::int64_t us(double at) const { return std::llround(at * unit_us_); }

  bool goes_before(double next) override {
    const auto wake = policy_.wakes_at_us();
    if (!wake || static_cast<double>(*wake) > next * unit_us_) return false;
    now_ = std::max(now_, static_cast<double>(*wake) / unit_us_);
    policy_.tick(*wake);
    read_decisions();
    return true;
  }

  void on_event(const Event& e) override {
    Averages& a = averages_[e.row];
    ++a.done;
    a.stop = std::min(a.stop, e.value);
    advance(e.row);
  }

  // Instructions after the pipeline's stop are skipped.
  bool is_skipped(int r, const Instr& i) override {
    const Averages& a = averages_[r];
    return i.micro >= a.stop || (i.micro < 0 && a.asked == a.stop);
  }

  bool is_held_up(int r, const Instr& i) override {
    const bool behind = averages_[r].done < averages_[r].asked;
    return behind && (i.kind == Kind::Update || !policy_.options().overlapped);
  }

  void computed(int r, const Instr& i, double at, double time) override {
    if (i.kind == Kind::Backward && worker(r) == workers_ - 1)
      finished_[r / workers_].push_back(at + time);
  }

  void on_instruction(int r, const Instr& i) override {
    policy_.arrive({i.stage, r / workers_, ++averages_[r].asked}, us(now_));
    read_decisions();
  }

  void read_decisions() {
    for (groups::Decision& d : policy_.take()) {
      double start = now_;
      for (const int p : d.members) start = std::max(start, network_free_[row_of(p, d.stage)]);
      const bool alone = d.members.size() == 1;
      const double takes = timing_.over_copies(d.stage);
      const double done = alone ? now_ : start + takes;
      for (std::size_t k = 0; k < d.members.size(); ++k) {
        const int r = row_of(d.members[k], d.stage);
        if (!alone) network_free_[r] = done;
        if (!alone) add_event(r, {.kind = Kind::PartialReduce, .stage = d.stage}, start, takes, 0);
        if (d.initiator < 0 || d.initiator == d.members[k])
          push(done, r, kAverage, d.stop_after[k]);
      }
      result_.step_time = std::max(result_.step_time, done);
      groups_.push_back(std::move(d));
    }
  }

  groups::Policy policy_;
  std::vector<Averages> averages_;             // per row
  std::vector<std::vector<double>> finished_;  // per pipeline: ends of the last stage's backwards
  std::vector<groups::Decision> groups_;
};

void check_plan(const PlanIndex& index) {
  const Schedule& schedule = index.schedule();
  require(schedule.lowering.pipelines >= 2,
          "groups need at least 2 pipelines, got {}; set --pipelines", schedule.lowering.pipelines);
  std::vector<int> averages(index.workers(), 0);
  for (int p = 0; p < index.size(); ++p)
    if (index.at(p).kind == Kind::PartialReduce) ++averages[index.worker_of(p)];
  const int micros = total_micros(schedule);
  for (const int n : averages) {
    require(n == micros && schedule.version_rule == VersionRule::Newest,
            "groups need an average after every backward of every stage, as pipedream updates; "
            "'{}' averages {} times in {} micro-batches",
            schedule.method, n, micros);
  }
}

}  // namespace

double steady_rate(const std::vector<std::vector<double>>& ends, int fill, double until) {
  double from = 0, to = until, rate = 0;
  for (const std::vector<double>& at : ends) {
    if (at.empty()) return 0;
    from = std::max(from, at[std::min<std::size_t>(at.size() - 1, fill)]);
    to = std::min(to, at.back());
  }
  for (const std::vector<double>& at : ends) {
    const auto first = std::lower_bound(at.begin(), at.end(), from);
    const auto last = std::upper_bound(first, at.end(), to);
    if (last - first > 1)
      rate += static_cast<double>(last - first - 1) / (*std::prev(last) - *first);
  }
  return rate;
}

GroupSimulation simulate_groups(const Schedule& schedule, const Costs& costs,
                                const SimulateOptions& options, const groups::Options& policy) {
  const int pipelines = schedule.lowering.pipelines;
  check_costs(costs, schedule, pipelines);
  check_stragglers(options, pipelines, static_cast<int>(schedule.workers.size()) * pipelines);
  const PlanIndex index(schedule);
  check_plan(index);
  groups::Options sized = policy;
  sized.stages = index.workers();
  sized.pipelines = pipelines;
  sized.seed = options.seed;
  const std::int64_t updates = total_micros(schedule);
  // Twice the updates, plus fill and drain, suffice unless a few fast pipelines run among many slow
  // ones.
  for (std::int64_t micros = 2 * (updates + 2 * index.workers());; micros *= 2) {
    const std::int64_t steps = (micros + schedule.micro_batches - 1) / schedule.micro_batches;
    const Schedule longer = with_steps(schedule, static_cast<int>(steps));
    const PlanIndex longer_index(longer);
    const Progress progress(longer_index, kUnboundedSlots, pipelines);
    GroupRun run(progress, costs, options, sized, updates);
    if (!run()) continue;
    GroupSimulation result = run.finish();
    describe(result.run, index, costs);
    return result;
  }
}

}  // namespace hetu
