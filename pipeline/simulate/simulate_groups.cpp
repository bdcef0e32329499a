#include "pipeline/simulate/simulate_groups.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "graph/base/error.h"
#include "pipeline/cost/timing.h"
#include "pipeline/simulate/simulate_figures.h"

namespace hetu {
namespace {

// All pipelines in order of time. A row is pipeline * workers + worker; it holds one stage.
class GroupRun {
 public:
  GroupRun(const Progress& progress, const Costs& costs, const SimulateOptions& options,
           const groups::Options& policy, std::int64_t updates)
      : progress_(progress),
        index_(progress.index()),
        costs_(costs),
        options_(options),
        workers_(index_.workers()),
        pipelines_(progress.pipelines()),
        unit_us_(unit_us(costs)),
        timing_(index_.schedule(), costs, options),
        policy_(policy),
        rows_(static_cast<std::size_t>(workers_) * pipelines_),
        end_(static_cast<std::size_t>(index_.size()) * pipelines_, kOpen) {
    policy_.begin_run(0, updates);
    const std::int64_t known = groups::known_stop(policy_.options(), updates);
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      rows_[r].next = index_.row_begin(worker(static_cast<int>(r)));
      rows_[r].stop = known;
    }
    result_.run.workers.resize(rows_.size());
    for (WorkerTiming& w : result_.run.workers) w.start = -1;
    finished_.resize(pipelines_);
  }

  // False if the plan has too few micro-batches for the fastest pipeline, fill and drain apart.
  bool operator()() {
    for (std::size_t r = 0; r < rows_.size(); ++r) advance(static_cast<int>(r));
    while (step()) {
    }
    bool enough = true, ended = true;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const Row& row = rows_[r];
      const bool out = row.next == index_.row_end(worker(static_cast<int>(r)));
      enough =
          enough && row.stop != groups::kRunsOn && row.stop + workers_ < index_.forward_micros();
      ended = ended && (row.averaged == row.stop || out);
    }
    HETU_ASSERT(ended || !enough);
    return enough;
  }

  GroupSimulation finish() {
    add_figures(result_.run);
    sort_events(result_.run);
    result_.run.asynchronous = true;
    result_.run.throughput = steady_rate(finished_, workers_, result_.run.makespan);
    return std::move(result_);
  }

 private:
  static constexpr double kOpen = -1;

  struct Row {
    int next = 0;               // position
    bool busy = false;          // until an event says otherwise
    double free = 0;            // when its last instruction ended
    double network_free = 0;    // when its last average ended
    std::int64_t computed = 0;  // instructions
    std::int64_t asked = 0, averaged = 0;
    std::int64_t stop = groups::kRunsOn;  // as its answers say
  };

  struct Event {
    double at;
    std::int64_t order;  // of equal times
    int row;
    bool average;
    std::int64_t stop;  // that an average's answer told
    bool operator>(const Event& e) const { return at != e.at ? at > e.at : order > e.order; }
  };

  int worker(int row) const { return row % workers_; }
  double& end(int pipeline, int position) {
    return end_[static_cast<std::size_t>(pipeline) * index_.size() + position];
  }
  std::int64_t us(double at) const { return std::llround(at * unit_us_); }

  void push(double at, int row, bool average, std::int64_t stop = groups::kRunsOn) {
    events_.push({at, order_++, row, average, stop});
  }

  bool step() {
    const auto wake = policy_.wakes_at_us();
    if (wake && (events_.empty() || static_cast<double>(*wake) <= events_.top().at * unit_us_)) {
      now_ = std::max(now_, static_cast<double>(*wake) / unit_us_);
      policy_.tick(*wake);
      read_decisions();
      return true;
    }
    if (events_.empty()) return false;
    const Event e = events_.top();
    events_.pop();
    now_ = e.at;
    Row& row = rows_[e.row];
    if (e.average) {
      ++row.averaged;
      row.stop = std::min(row.stop, e.stop);
    } else {
      row.busy = false;
    }
    advance(e.row);
    return true;
  }

  // Runs what the row can start now. Messages take no time of a worker's.
  void advance(int r) {
    Row& row = rows_[r];
    const int last = index_.row_end(worker(r));
    while (!row.busy && row.next < last) {
      const Instr& i = index_.at(row.next);
      if (i.micro >= row.stop || (i.micro < 0 && row.asked == row.stop)) {
        ++row.next;  // of a micro-batch that this pipeline does not begin
        continue;
      }
      if (!may_start(r, i)) return;
      const int position = row.next++;
      if (is_compute(i.kind) || i.kind == Kind::Update) {
        run(r, position);
        continue;
      }
      finish(r, position);
      if (i.kind == Kind::PartialReduce) ask(r, i);
    }
  }

  bool may_start(int r, const Instr& i) {
    Row& row = rows_[r];
    const bool behind = row.averaged < row.asked;
    if (behind && (i.kind == Kind::Update || !policy_.options().overlapped)) return false;
    double ready = now_;
    const int pipeline = r / workers_, base = pipeline * workers_;
    for (const Progress::Need& need : progress_.needs(row.next)) {
      const double made = end(pipeline, need.done);
      if (made == kOpen) return false;
      const bool message = need.worker != worker(r) && (is_recv(i.kind) || is_compute(i.kind));
      ready = std::max(ready, !message ? made
                                       : made + timing_.message(index_.at(need.done), i.stage,
                                                                base + need.worker, r));
    }
    if (ready > now_) {  // a message is under way
      row.busy = true;
      push(ready, r, false);
      return false;
    }
    return true;
  }

  void run(int r, int position) {
    Row& row = rows_[r];
    const Instr& i = index_.at(position);
    const double time =
        i.kind == Kind::Update ? timing_.update(i, r) : timing_.compute(i, r, row.computed++, now_);
    row.busy = true;
    row.free = now_ + time;
    end(r / workers_, position) = row.free;
    result_.run.step_time = std::max(result_.run.step_time, row.free);
    add_event(r, i, now_, time);
    if (is_compute(i.kind)) {
      WorkerTiming& w = result_.run.workers[r];
      if (w.start < 0) w.start = now_;
      w.busy += time;
      w.end = row.free;
      if (i.kind == Kind::Backward && worker(r) == workers_ - 1)
        finished_[r / workers_].push_back(row.free);
    }
    push(row.free, r, false);
  }

  // Something without duration is done; neighbours may wait for it.
  void finish(int r, int position) {
    end(r / workers_, position) = now_;
    const int peer = is_send(index_.at(position).kind)
                         ? index_.graph().worker(index_.graph().peer(index_.at(position)))
                         : worker(r);
    if (peer != worker(r)) advance(r / workers_ * workers_ + peer);
  }

  void ask(int r, const Instr& i) {
    Row& row = rows_[r];
    policy_.arrive({i.stage, r / workers_, ++row.asked}, us(now_));
    read_decisions();
  }

  void read_decisions() {
    for (groups::Decision& d : policy_.take()) {
      double start = now_;
      for (const int p : d.members) start = std::max(start, rows_[row_of(p, d.stage)].network_free);
      const bool alone = d.members.size() == 1;
      const double takes = timing_.over_copies(d.stage);
      const double done = alone ? now_ : start + takes;
      for (std::size_t k = 0; k < d.members.size(); ++k) {
        const int r = row_of(d.members[k], d.stage);
        if (!alone) rows_[r].network_free = done;
        if (!alone) add_event(r, {.kind = Kind::PartialReduce, .stage = d.stage}, start, takes);
        if (d.initiator < 0 || d.initiator == d.members[k]) push(done, r, true, d.stop_after[k]);
      }
      result_.run.step_time = std::max(result_.run.step_time, done);
      result_.groups.push_back(std::move(d));
    }
  }

  int row_of(int pipeline, int stage) const {
    return pipeline * workers_ + index_.graph().worker(stage);
  }

  void add_event(int r, const Instr& i, double at, double time) {
    if (!options_.events) return;
    const int micros = index_.schedule().micro_batches;
    result_.run.events.push_back({TraceSource::Predicted, r, kind_name(i.kind), i.stage, i.micro,
                                  i.part, i.micro >= 0 ? i.micro / micros : 0, at * unit_us_,
                                  time * unit_us_});
  }

  const Progress& progress_;
  const PlanIndex& index_;
  const Costs& costs_;
  const SimulateOptions& options_;
  const int workers_, pipelines_;
  const double unit_us_;
  const Timing timing_;
  groups::Policy policy_;
  std::vector<Row> rows_;
  std::vector<double> end_;  // per pipeline and position
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::int64_t order_ = 0;
  double now_ = 0;
  std::vector<std::vector<double>> finished_;  // per pipeline: ends of the last stage's backwards
  GroupSimulation result_;
};

void check_plan(const PlanIndex& index, const SimulateOptions& options) {
  const Schedule& schedule = index.schedule();
  require(schedule.lowering.pipelines >= 2,
          "groups need at least 2 pipelines side by side, got {}; see --pipelines",
          schedule.lowering.pipelines);
  require(options.send_slots == kUnboundedSlots,
          "pipelines in groups are simulated with unbounded send slots, got {}",
          options.send_slots);
  std::vector<int> averages(index.workers(), 0);
  for (int p = 0; p < index.size(); ++p)
    if (index.at(p).kind == Kind::PartialReduce) ++averages[index.worker_of(p)];
  const int micros = total_micros(schedule);
  for (const int n : averages) {
    require(n == micros && schedule.version_rule == VersionRule::Newest,
            "groups average after every backward of every stage, as pipedream updates; '{}' does "
            "so {} times in {} micro-batches",
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
  check_plan(index, options);
  groups::Options sized = policy;
  sized.stages = index.workers();
  sized.pipelines = pipelines;
  sized.seed = options.seed;
  const std::int64_t updates = total_micros(schedule);
  // Twice as many, and room for fill and drain, do for all but a few fast pipelines among slow
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
