#include "executor/rehearse/rehearse.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>

#include "base/error.h"
#include "executor/compile/segments.h"
#include "executor/rehearse/precedence.h"
#include "executor/sync/strategies.h"
#include "net/transport/collective.h"
#include "net/transport/inproc.h"
#include "net/transport/tag_kinds.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/simulate/simulate_groups.h"
#include "ps/client/local_servers.h"
#include "ps/coordinator/local_coordinator.h"

namespace hetu {
namespace {

using Record = TraceRecorder::Record;

// Scope guard that reduces the timer slack of this thread, so that it wakes up within a microsecond
// instead of the usual 50.
class SharpTimer {
 public:
  SharpTimer() : before_(prctl(PR_GET_TIMERSLACK)) { prctl(PR_SET_TIMERSLACK, 1UL); }
  ~SharpTimer() { prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(std::max(1, before_))); }
  SharpTimer(const SharpTimer&) = delete;
  SharpTimer& operator=(const SharpTimer&) = delete;

 private:
  int before_;
};

// A worker's summary of its step.
struct Summary {
  std::size_t records;
  double weight;
};

// Runs steps of a plan on one worker and gathers the measurements of all workers.
class Rehearser {
 public:
  // Without an averager, the worker runs its row as planned. `servers` is required by plans with
  // servers.
  Rehearser(const Schedule& plan, const Costs& costs, const Pace& pace, comm::Transport& transport,
            Averager* averager, const RehearsedServers* servers)
      : plan_(plan),
        pace_(pace),
        transport_(transport),
        everyone_(comm::everyone(transport)),
        stages_(plan, costs, pace, transport),
        reducer_(transport) {
    SyncContext context{transport, stages_, reducer_, 0, averager};
    if (plan.lowering.has_servers()) {
      servers_ = servers->connect({transport.worker(), transport.options().timeout_s});
      context.servers = servers_.get();
      const int width = static_cast<int>(plan.workers.size()), row = transport.worker() % width;
      for (std::size_t i = 0; i < plan.placements.size(); ++i)
        if (plan.placements[i].workers[0] == row) context.placement = static_cast<int>(i);
      const int stage = plan.placements[context.placement].model_stage;
      context.waves = {transport.worker() / width, stage, parts_of(costs, stage),
                       plan.lowering.staleness()};
    }
    syncs_ = make_strategies(plan, context);
    Interpreter::Links links{transport, {}};
    for (const auto& sync : syncs_) links.syncs.push_back(sync.get());
    if (averager != nullptr) {
      groups_ = std::make_unique<GroupRuns>(plan, stages_, links, *averager);
    } else {
      loop_ = std::make_unique<Interpreter>(
          bind_row(plan, transport.worker(), plan.lowering.pipelines), stages_, links);
    }
  }

  MeasuredStep run(int step) {
    recorder_.clear();
    if (groups_) groups_->begin();
    if (servers_) {
      stages_.fill_weights(0);
      for (const auto& sync : syncs_) sync->begin_run(step, plan_.steps);
    }
    const std::int64_t start_ns = common_start(step);
    stages_.start_at(start_ns);
    if (groups_) {
      groups_->run(step, recorder_);
    } else {
      loop_->run_step(step, &recorder_);
      loop_->finish();
      stages_.take_reports();
    }
    return gather(step, start_ns);
  }

 private:
  // Returns the parts that a stage shares, as in training: the stage, or segments of the model if
  // pipelines are not cut alike. The stage with the most segments has payload_bytes in total.
  std::vector<SharedPart> parts_of(const Costs& costs, int stage) {
    const int pipeline = transport_.worker() / static_cast<int>(plan_.workers.size());
    if (costs.cuts.empty()) return parts_of_stage(plan_, {}, pipeline, stage);
    const auto segments = segments_of(costs.cuts, static_cast<int>(costs.blocks.size()));
    std::size_t most = 1;
    for (int d = 0; d < plan_.lowering.pipelines; ++d)
      for (int s = 0; s < plan_.stages; ++s)
        most = std::max(most, parts_of_stage(plan_, segments, d, s).size());
    const std::size_t elements = std::max<std::size_t>(1, pace_.payload_bytes / 4 / most);
    std::vector<SharedPart> parts = parts_of_stage(plan_, segments, pipeline, stage);
    for (std::size_t i = 0; i < parts.size(); ++i)
      parts[i].ranges = {
          {static_cast<std::int64_t>(i * elements), static_cast<std::int64_t>(elements)}};
    stages_.size_weights(elements * parts.size());
    return parts;
  }

  // Returns a moment in the near future, the same for all workers that share a clock with worker 0.
  // Other workers start when they receive it.
  std::int64_t common_start(int step) {
    comm::barrier(transport_, everyone_,
                  {comm::make_tag(kControlTag, 0, 0, 0, step), "the start of a rehearsed step"});
    std::vector<std::size_t> sizes(everyone_.size(), 0);
    sizes[0] = sizeof(std::int64_t);
    const std::int64_t ahead = 5'000'000 + 1'000'000 * static_cast<std::int64_t>(sizes.size());
    const std::int64_t mine = comm::now_ns() + ahead;
    std::int64_t start_ns = mine;
    comm::all_gather_bytes(
        transport_, everyone_, sizes, &mine, &start_ns,
        {comm::make_tag(kControlTag, 1, 0, 0, step), "the start of a rehearsed step"});
    return transport_.same_clock(0) ? start_ns : comm::now_ns();
  }

  MeasuredStep gather(int step, std::int64_t start_ns) {
    std::vector<Record> own = recorder_.records();
    for (Record& r : own) {
      r.start_ns -= start_ns;
      r.end_ns -= start_ns;
    }
    const double served = servers_ ? stages_.weights().front() : 0;
    const Summary mine{own.size(), groups_ ? groups_->weight() : served};
    std::vector<Summary> summaries(everyone_.size());
    comm::all_gather_bytes(
        transport_, everyone_, std::vector<std::size_t>(everyone_.size(), sizeof(Summary)), &mine,
        summaries.data(),
        {comm::make_tag(kControlTag, 2, 0, 0, step), "the end of a rehearsed step"});
    std::vector<std::size_t> bytes;
    std::size_t total = 0;
    for (const Summary& s : summaries) {
      bytes.push_back(s.records * sizeof(Record));
      total += s.records;
    }
    std::vector<Record> all(total);
    comm::all_gather_bytes(
        transport_, everyone_, bytes, own.data(), all.data(),
        {comm::make_tag(kControlTag, 3, 0, 0, step), "the records of a rehearsed step"});
    MeasuredStep measured = measure(summaries, all);
    if (groups_ || servers_) add_updates(summaries, measured);
    return measured;
  }

  MeasuredStep measure(const std::vector<Summary>& summaries,
                       const std::vector<Record>& all) const {
    MeasuredStep step;
    std::size_t at = 0;
    for (std::size_t w = 0; w < summaries.size(); ++w) {
      TraceRecorder row;
      for (std::size_t n = summaries[w].records; n > 0; --n, ++at) {
        const Record& r = all[at];
        row.add(r.instr, plan_step(r.instr), r.start_ns, r.end_ns);
        const double end = static_cast<double>(r.end_ns) / pace_.unit_ns;
        if (is_work(r.instr.kind)) step.makespan = std::max(step.makespan, end);
        if (!is_send(r.instr.kind) && !is_recv(r.instr.kind))
          step.step_time = std::max(step.step_time, end);
      }
      auto events = row.events(static_cast<int>(w), 0);
      std::move(events.begin(), events.end(), std::back_inserter(step.events));
    }
    step.throughput = groups_ ? group_throughput(step) : throughput(step);
    return step;
  }

  // Computes the throughput as the simulator does.
  double group_throughput(const MeasuredStep& step) const {
    const int width = static_cast<int>(plan_.workers.size());
    std::vector<std::vector<double>> ends(plan_.lowering.pipelines);
    for (const TraceEvent& e : step.events) {
      if (e.worker % width == width - 1 && e.kind == kind_name(Kind::Backward))
        ends[e.worker / width].push_back((e.start_us + e.duration_us) * 1e3 / pace_.unit_ns);
    }
    return steady_rate(ends, width, step.makespan);
  }

  // Compares the weights with the number of updates. Averaged weights start at the pipeline's
  // number, weights on servers at 0, and each update adds 1.
  void add_updates(const std::vector<Summary>& summaries, MeasuredStep& step) const {
    const int width = static_cast<int>(plan_.workers.size()), pipelines = plan_.lowering.pipelines;
    std::vector<std::int64_t> updates(summaries.size(), 0);
    for (const TraceEvent& e : step.events)
      if (e.kind == kind_name(Kind::Update)) ++updates[e.worker];
    double mean = 0;
    for (int d = 0; d < pipelines; ++d) {
      const std::int64_t own = updates[d * width];
      step.updates.push_back(own);
      mean += groups_ ? static_cast<double>(d + own) / pipelines : static_cast<double>(own);
      for (int s = 0; s < width; ++s) HETU_ASSERT(updates[d * width + s] == own);
    }
    for (const Summary& s : summaries)
      step.mean_drift = std::max(step.mean_drift, std::abs(s.weight - mean) / std::max(1.0, mean));
  }

  int plan_step(const Instr& instr) const {
    if (instr.micro < 0) return 0;
    return (plan_.half_micros ? instr.micro / 2 : instr.micro) / plan_.micro_batches;
  }

  // Computes the throughput as in Simulation::throughput. A synchronous step counts as a whole. In
  // an asynchronous run, each pipeline counts between the first and the last quarter of the
  // backwards on its first worker.
  double throughput(const MeasuredStep& step) const {
    const int all = total_micros(plan_), pipelines = plan_.lowering.pipelines;
    if (!is_asynchronous(plan_)) return all * pipelines / step.step_time;
    const int first = all / 4, last = 3 * all / 4;
    double sum = 0;
    for (int d = 0; d < pipelines; ++d) {
      std::vector<double> ends;
      for (const TraceEvent& e : step.events) {
        if (e.worker == d * static_cast<int>(plan_.workers.size()) &&
            (e.kind == kind_name(Kind::Backward) || e.kind == kind_name(Kind::InputGrad)))
          ends.push_back((e.start_us + e.duration_us) * 1e3 / pace_.unit_ns);
      }
      std::sort(ends.begin(), ends.end());
      if (first < 1 || last <= first || static_cast<int>(ends.size()) < last) continue;
      sum += (last - first) / (ends[last - 1] - ends[first - 1]);
    }
    return sum;
  }

  const Schedule& plan_;
  Pace pace_;
  comm::Transport& transport_;
  comm::Group everyone_;
  TimedStages stages_;
  comm::Reducer reducer_;
  std::unique_ptr<ps::ParameterClient> servers_;  // null unless the plan has servers
  std::vector<std::unique_ptr<WeightSync>> syncs_;
  std::unique_ptr<Interpreter> loop_;  // null if groups_ is used
  std::unique_ptr<GroupRuns> groups_;
  TraceRecorder recorder_;
};

// Returns the plan of the warm-up step, which opens connections and touches memory. For a long run
// a short plan suffices.
Schedule warm_up(const Schedule& plan) {
  const int least = least_steps(plan), grain = run_grain(plan);
  if (grain == 0 || plan.steps <= least) return plan;
  return with_steps(plan, least + (plan.steps - least) % grain);
}

}  // namespace

void check_workers(const Schedule& lowered, int workers) {
  const int pipelines = lowered.lowering.pipelines;
  const int needed = static_cast<int>(lowered.workers.size()) * pipelines;
  require(workers == needed,
          "the plan is for {} workers ({} pipelines of {}), but the job has {}; start {} workers",
          needed, pipelines, lowered.workers.size(), workers, needed);
}

namespace {

// Checks that a run takes at most a day. The clock of a rehearsal counts nanoseconds in 64 bits.
void check_duration(const Simulation& predicted, const Pace& pace) {
  constexpr double kDay_ns = 86400e9;
  const double run_ns = predicted.makespan * pace.unit_ns;
  require(run_ns <= kDay_ns,
          "a run of this plan takes {:.3g} s by its costs, but a rehearsal takes at most a day; "
          "choose smaller times or a smaller --time-unit",
          run_ns * 1e-9);
}

Rehearsal rehearse_as_worker(const Schedule& lowered, const Costs& costs, const Pace& pace,
                             int repeat, comm::Transport& transport, const RehearsedMeeting& at) {
  const RehearsedGroups* const groups = at.groups;
  check_workers(lowered, transport.workers());
  require(repeat >= 1, "repeat must be at least 1, got {}", repeat);
  Schedule plan = groups != nullptr ? by_updates(lowered) : lowered;
  // The rows are already in the order in which the policy would run them with these costs.
  plan.run_policy = RunPolicy::AsPlanned;
  Rehearsal result;
  require(!plan.lowering.has_servers() || at.servers != nullptr, "'{}' needs parameter servers",
          plan.method);
  SimulateOptions options{pace.stragglers};
  options.events = true;
  options.servers = pace.servers;
  result.predicted = groups != nullptr
                         ? simulate_groups(lowered, costs, options, groups->policy).run
                         : simulate(lowered, costs, options);
  check_duration(result.predicted, pace);
  result.unit_us = pace.unit_ns * 1e-3;
  result.payload_bytes = pace.payload_bytes;
  result.at_servers = plan.lowering.has_servers();
  const SharpTimer timer;
  std::unique_ptr<GroupMember> member;
  if (groups != nullptr)
    member = std::make_unique<GroupMember>(plan, costs, pace, *groups, transport);
  Averager* averager = member ? &member->averager() : nullptr;
  const Schedule shorter = warm_up(plan);
  Rehearser(shorter, costs, pace, transport, averager, at.servers).run(0);
  Rehearser rehearser(plan, costs, pace, transport, averager, at.servers);
  std::vector<MeasuredStep> steps;
  for (int r = 1; r <= repeat; ++r) {
    if (pace.progress && transport.worker() == 0) pace.progress(r, repeat + 1);
    steps.push_back(rehearser.run(r));
    result.step_times.push_back(steps.back().step_time);
  }
  std::sort(steps.begin(), steps.end(),
            [](const auto& a, const auto& b) { return a.step_time < b.step_time; });
  result.measured = std::move(steps[(steps.size() - 1) / 2]);
  if (result.predicted.step_time > 0)
    result.ratio = result.measured.step_time / result.predicted.step_time;
  return result;
}

}  // namespace

Rehearsal rehearse(const Schedule& lowered, const Costs& costs, const Pace& pace, int repeat,
                   comm::Transport& transport, const RehearsedMeeting& at) {
  const Precedence precedence;
  return rehearse_as_worker(lowered, costs, pace, repeat, transport, at);
}

Rehearsal rehearse_in_threads(const Schedule& lowered, const Costs& costs, const Pace& pace,
                              int repeat, const comm::Options& options,
                              const RehearsedGroups* groups) {
  const int workers = static_cast<int>(lowered.workers.size()) * lowered.lowering.pipelines;
  auto transports = comm::make_inproc(workers, options);
  const Precedence precedence;  // also applies to the threads that are started below
  ps::LocalCoordinator coordinator;
  ps::LocalServers local(pace.servers);
  const RehearsedServers servers{[&](const ps::ParameterOptions& o) { return local.client(o); }};
  RehearsedGroups here;
  if (groups != nullptr) {
    here = *groups;
    here.connect = [&](const ps::ClientOptions& client) { return coordinator.client(client); };
  }
  Rehearsal result;
  std::vector<std::exception_ptr> errors(workers);
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      try {
        Rehearsal own = rehearse_as_worker(lowered, costs, pace, repeat, *transports[w],
                                           {groups != nullptr ? &here : nullptr, &servers});
        if (w == 0) result = std::move(own);
      } catch (const std::exception& e) {
        errors[w] = std::current_exception();
        transports[w]->abort(1, e.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return result;
}

}  // namespace hetu
