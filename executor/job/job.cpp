#include "executor/job/job.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "executor/device/threads.h"
#include "executor/job/gpu_messages.h"
#include "executor/job/host_memory.h"
#include "executor/job/job_parts.h"
#include "executor/job/make_plan.h"
#include "executor/job/precision.h"
#include "graph/passes/dead.h"
#include "net/transport/clock.h"
#include "net/transport/collective.h"
#include "net/transport/tag_kinds.h"
#include "pipeline/verify/verify.h"

namespace hetu {
namespace {

// Agrees on the number of rows in the next step's global batch, over all pipelines. Collective:
// every worker calls it; workers that read no data pass nullopt. Returns 0 if all workers pass
// nullopt.
std::int64_t agree_on_rows(comm::Transport& links, std::int64_t step,
                           std::optional<std::int64_t> mine) {
  // Workers that know the number agree on it, so the sum divided by their count is the number.
  double counts[2] = {static_cast<double>(mine.value_or(0)), mine ? 1.0 : 0.0};
  const auto what = [&] {
    return fmt::format("the number of rows in the batch after step {}", step);
  };
  comm::sum_f64(links, comm::everyone(links), counts, 2,
                {comm::make_tag(kShortTag, 0, 0, 0, 0), what});
  return counts[1] == 0 ? 0 : static_cast<std::int64_t>(std::llround(counts[0] / counts[1]));
}

}  // namespace

Job::Job(const Graph& graph, const OptimizerConfig& optimizer, const JobOptions& options,
         comm::Transport& transport)
    : given_(graph),
      plan_(make_plan(graph, optimizer, options, {transport.worker(), transport.workers()})),
      optimizer_(optimizer),
      transport_(transport),
      reducer_(transport) {
  watch_forks();
  if (options.threads > 0) set_thread_count(options.threads);
  if (options.averaging) groups_ = std::make_unique<JobGroups>(plan_, transport_);
  if (plan_.how.has_servers() || plan_.reads_tables)
    servers_ = options.servers->connect({plan_.number(), transport_.options().timeout_s});
  check_hosts();
  build();
  comm::barrier(transport_, comm::everyone(transport_),
                {comm::make_tag(kStartTag, 0, 0, 0, 0), "the start of training"});
  origin_ns_ = comm::common_origin(transport_, comm::make_tag(kStartTag, 1, 0, 0, 0),
                                   "the start of training");
}

// An average in progress may read the weights at any time. Its thread must end before the weights
// are destroyed, and after every object that holds the averager.
Job::~Job() {
  run_.reset();
  validation_.reset();
  syncs_.clear();
  direct_.reset();
  tables_.reset();
  groups_.reset();
}

// All workers of the job find the same answer, so that either all of them throw or no worker does.
void Job::check_hosts() {
  std::vector<WorkerNeed> needs =
      gather_needs(transport_, plan_.memory.peak(), comm::make_tag(kStartTag, 0, 0, 1, 0));
  if (groups_) needs = groups_->of_all_pipelines(std::move(needs));
  const std::string why = overfull_host(needs);
  require(why.empty(), "{}", why);
}

// Builds what runs the plan: memory, loops, and the links that they need.
void Job::build() {
  if (plan_.asynchronous && transport_.worker() == 0) warn_of_ties(plan_);
  const JobOptions& job = plan_.options;
  device_ = open_device(job.device);
  if (job.dtype == kTf32) device_->use_tf32();
  direct_ = open_direct(job, transport_, *device_, averager());
  StagesOptions how = stages_options(plan_);
  how.direct = direct_ != nullptr;
  how.repeats = job.cuda_graphs == "on";
  if (how.repeats && !device_->queue().records())
    fail(Code::Unsupported,
         "--cuda-graphs on: device {} does not support CUDA graphs; remove --cuda-graphs",
         device_->name());
  stages_ = std::make_unique<TrainStages>(plan_.graph, std::move(plan_.stage_plans), optimizer_,
                                          how, *device_, transport_);
  if (wants_loss_scale(job.dtype))
    stages_->set_loss_scale(LossScale(parse_loss_scaling(job.loss_scale)));
  injector_ = open_injector(plan_, transport_.worker() == 0);
  tables_ = open_tables(plan_, *stages_, transport_, servers_.get());
  feeds_ = std::make_unique<Feeds>(*stages_, tables_.get(), job.batch_size);
  Interpreter::Links links{transport_, {}};
  links.direct = direct_.get();
  links.feeds = feeds_.get();
  links.injector = injector_.get();
  const std::size_t fetches = plan_.graph.fetches.size();
  const comm::Group all = comm::everyone(transport_);
  forwards_ = plan_.of_validation();
  validation_ = std::make_unique<Run>(*stages_, links, fetches, all);
  SyncContext context{transport_, *stages_, reducer_};
  const Ablation ablation = ablation_of(job.payload);
  context.sums.one_element = ablation.sums;
  if (plan_.options.wire == "bf16") context.sums.wire = DType::BFloat16;
  context.sums.direct = direct_.get();
  if (ablation.sums) transport_.carry_one_byte(static_cast<int>(Kind::ReduceGrad));
  if (ablation.messages)
    for (const Kind kind : {Kind::SendForward, Kind::SendBackward})
      transport_.carry_one_byte(static_cast<int>(kind));
  if (groups_) {
    context.placement = plan_.stages.front().placement;
    context.averager = averager();
  }
  if (plan_.how.has_servers()) {
    context.placement = plan_.stages.front().placement;
    context.servers = servers_.get();
    context.waves = waves_of(plan_, *stages_);
  }
  syncs_ = make_strategies(plan_.lowered, context);
  for (const auto& sync : syncs_) links.syncs.push_back(sync.get());
  run_ = std::make_unique<Run>(*stages_, links, fetches, groups_ ? plan_.own_pipeline() : all,
                               averager());
  if (plan_.curvature && plan_.optimizer.kfac.replan > 0)
    drift_ = std::make_unique<FillDrift>(plan_, transport_);
  const bool others = transport_.workers() > 1 || groups_ || servers_;
  guard_ = std::make_unique<CallGuard>(
      CallGuard::Job{*stages_, *run_, *validation_, run_left_},
      CallGuard::Limits{others, plan_.asynchronous, plan_.curvature.has_value()}, job.threads);
}

void Job::ask_to_stop() {
  if (groups_)
    groups_->ask_to_stop();
  else
    run_->ask_to_stop();
}

// Calls `work`, which reads from `batches` (null: this worker reads nothing). If it throws in a job
// of one worker, `batches` goes back.
template <class Work>
auto Job::reading(BatchStream* batches, const Work& work) {
  if (batches != nullptr) check_fields(plan_.fields, batches->fields());
  if (batches == nullptr || transport_.workers() > 1) return work();
  batches->mark();
  try {
    return work();
  } catch (...) {
    batches->return_to_mark();
    throw;
  }
}

StepResult Job::train(const Batch& batch) {
  const auto entered = lock();
  begin_run(1);
  return next_of(Feeds::Reading(*feeds_, batch));
}

StepResult Job::train(BatchStream* batches) {
  const auto entered = lock();
  begin_run(1);
  return *next(batches);
}

StepResult Job::result_of(StepReport report) const {
  const bool knows = is_reporter();
  StepResult result;
  result.step = report.step;
  report_fetches(plan_.graph, *stages_, knows, report, result);
  result.gradient_norm = knows ? std::sqrt(report.squares) : std::nan("");
  const LossScale& scale = stages_->loss_scale();
  result.skipped = scale.skips();
  result.loss_scale = scale.scale();
  result.learning_rate = optimizer_.rate.at(report.step + 1 - scale.state().skipped);
  result.last = plan_.asynchronous ? run_->is_last(report.step) : run_left_ == 0;
  result.stop_asked =
      report.stop_asked || (plan_.asynchronous && result.last &&
                            (run_->is_stopped() || (groups_ && groups_->stop_asked())));
  result.batches = plan_.options.pipelines;
  const JobOptions& o = plan_.options;
  if (!o.shares.empty())
    result.rows = o.batch_size / o.micro_batches * micros_before(o, o.pipelines);
  if (groups_) {
    // Updates beyond the run's nominal length use the rate of the last nominal one.
    result.batches = groups_->new_batches();
    result.learning_rate = optimizer_.rate.at(groups_->nominal(report.step + 1));
  }
  return result;
}

void Job::begin_run(std::int64_t steps) {
  const auto entered = lock();
  require(run_left_ == 0, "a run is in progress: {} of its steps remain", run_left_);
  require(steps >= 1, "a run needs at least one step, got {}", steps);
  require(
      !plan_.asynchronous || steps < std::numeric_limits<int>::max() / plan_.options.micro_batches,
      "a run of {} steps is too long; drain the pipeline in between", steps);
  run_left_ = steps;
  if (plan_.asynchronous) begin_asynchronous(static_cast<int>(steps));
}

// Begins one run for all steps, because such a plan has no flush at the end of a step.
void Job::begin_asynchronous(int steps) {
  stages_->set_training(true);
  stages_->set_fetches({});
  const int first = static_cast<int>(step_);
  Schedule plan;
  for (const auto& sync : syncs_) sync->begin_run(step_, steps);
  if (groups_) {
    stages_->limit_rates(steps);
    run_left_ = 1;
    groups_->begin_run(step_, steps);
    plan = plan_.of_run(groups_->planned_steps());
    run_->begin_averaged(plan, first, recorder());
  } else {
    plan = plan_.of_run(steps);
    verify(plan);
    run_->begin(plan, first, steps, recorder());
  }
  if (trace_) trace_->begin_run(first, std::move(plan));
}

std::optional<StepReport> Job::next_report() {
  if (!plan_.asynchronous) {
    stages_->set_training(true);
    stages_->set_fetches({});
    stages_->feed_factors(plan_.feeds_factors(step_));
    run_->begin_step(plan_.rows_of(step_), static_cast<int>(step_), recorder());
  }
  std::optional<StepReport> report = run_->next_report();
  for (; !report; report = run_->next_report()) HETU_ASSERT(run_->advance());
  if (drift_) check_drift();
  return report;
}

void Job::check_drift() {
  std::optional<CurvaturePlan> anew = drift_->after(step_, *recorder());
  if (!anew) return;
  run_->forget_steps();
  if (trace_) trace_->was_planned_by(std::move(*plan_.curvature));
  plan_.curvature = std::move(*anew);
}

std::optional<StepResult> Job::next(BatchStream* batches) {
  const auto entered = lock();
  if (run_left_ == 0) return std::nullopt;
  return reading(batches, [&] { return next_of(Feeds::Reading(*feeds_, batches)); });
}

// The steps that begin now read what `reading` has set.
StepResult Job::next_of(const Feeds::Reading& /*reading*/) {
  StepReport report = guard_->train(step_, recorder(), [&] {
    if (!groups_) --run_left_;
    StepReport found = *next_report();
    step_ = found.step + 1;
    if (plan_.asynchronous && run_->is_last(found.step)) end_run();
    if (found.stop_asked) run_left_ = 0;
    return found;
  });
  return result_of(std::move(report));
}

// Drains the pipeline. The length of an averaged run is only known afterwards.
void Job::end_run() {
  while (run_->advance()) {
  }
  run_left_ = 0;
  if (groups_ || plan_.how.has_servers()) stages_->average_buffers();
  if (groups_) step_ = groups_->end_run();
  stages_->set_updates(step_);
  if (trace_) trace_->end_run(run_->steps());
}

StepResult Job::validate(const Batch& batch, const ValidateOptions& how) {
  const auto entered = lock();
  check_drained("validation");
  StepResult result;
  result.step = step_;
  const Feeds::Reading reading(*feeds_, batch);
  StepReport report = guard_->validate(step_, [&] {
    run_->finish();
    if (tables_) tables_->settle();
    const JobOptions& o = plan_.options;
    const std::int64_t each = o.batch_size, samples = each / o.micro_batches;
    const std::int64_t whole = samples * micros_before(o, plan_.linked);
    const std::int64_t before = plan_.linked > 1 ? samples * micros_before(o, plan_.pipeline) : 0;
    stages_->set_training(false);
    stages_->set_fetches(fetched_values(plan_.graph, how.fetches));
    if (how.rows && *how.rows < whole)
      // Pipelines before this one take their rows first.
      stages_->set_rows(std::clamp<std::int64_t>(*how.rows - before, 0, each));
    with_mean_buffers([&] {
      if (how.asks_to_stop) validation_->ask_to_stop();
      validation_->begin_step(forwards_, static_cast<int>(step_), nullptr);
      while (validation_->advance()) {
      }
      validation_->finish();
    });
    result.rows = std::min(how.rows.value_or(whole), whole);
    return *validation_->next_report();
  });
  report_fetches(plan_.graph, *stages_, /*knows=*/true, report, result);
  result.stop_asked = report.stop_asked;
  result.batches = plan_.linked;
  return result;
}

StepResult Job::validate(BatchStream* batches, const ValidateOptions& how) {
  const auto entered = lock();
  return reading(batches, [&] {
    if (batches != nullptr) batches->next(validated_);
    return validate(validated_, how);
  });
}

std::optional<StepResult> Job::validate_rows(BatchStream* batches, ValidateOptions how) {
  const auto entered = lock();
  return reading(batches, [&]() -> std::optional<StepResult> {
    std::optional<std::int64_t> rows;
    if (batches != nullptr) {
      batches->next(validated_);
      rows = validated_.of_all;
    }
    how.rows = agree_on_rows(transport_, step_, rows);
    if (*how.rows == 0) return std::nullopt;
    return validate(validated_, how);
  });
}

void Job::record(bool on) {
  require(!on || plan_.options.shares.empty(),
          "a trace has one plan for all pipelines, and with --shares they differ; leave --trace or "
          "--shares out");
  if (on && !trace_) trace_ = std::make_unique<JobTrace>(plan_, origin_ns_);
  if (!on) trace_.reset();
  stages_->time_blocks(trace_ ? &trace_->blocks() : nullptr);
}

void Job::write_trace(const std::string& path) {
  require(trace_ != nullptr, "nothing was recorded: call record(true) before the steps");
  // Where pipelines have separate transports, each trace holds the events of one pipeline's
  // workers, and the first pipeline writes.
  trace_->write(path, transport_, reducer_, plan_.linked > 1 || in_first_pipeline(),
                counters_json(plan_.number(), table_counters()));
}

}  // namespace hetu
