#include "executor/job/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "executor/device/threads.h"
#include "executor/job/gpu_messages.h"
#include "executor/job/host_memory.h"
#include "executor/job/make_plan.h"
#include "executor/job/precision.h"
#include "executor/job/trainer_parts.h"
#include "graph/passes/dead.h"
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

void check_fields(const std::vector<FeedSpec>& wanted, const std::vector<Field>& given) {
  for (const Field& field : given) {
    const auto found = std::find_if(wanted.begin(), wanted.end(), [&field](const FeedSpec& spec) {
      return spec.name == field.name;
    });
    if (found == wanted.end()) continue;
    require(found->dtype == field.dtype && found->sample_shape == field.shape,
            "field '{}': the data have rows of {} {}, the model's placeholder takes {} {}. Change "
            "the placeholder, or convert the rows.",
            field.name, dtype_name(field.dtype), to_string(field.shape), dtype_name(found->dtype),
            to_string(found->sample_shape));
  }
}

Trainer::Trainer(const Graph& graph, const OptimizerConfig& optimizer,
                 const TrainerOptions& options, comm::Transport& transport)
    : plan_(make_plan(graph, optimizer, options, {transport.worker(), transport.workers()})),
      optimizer_(optimizer),
      transport_(transport),
      reducer_(transport) {
  watch_forks();
  if (options.threads > 0) set_thread_count(options.threads);
  if (options.averaging) groups_ = std::make_unique<TrainGroups>(plan_, transport_);
  if (plan_.how.has_servers() || plan_.reads_tables)
    servers_ = options.servers->connect({plan_.number(), transport_.options().timeout_s});
  check_hosts();
  build();
  comm::barrier(transport_, comm::everyone(transport_),
                {comm::make_tag(kStartTag, 0, 0, 0, 0), "the start of training"});
  origin_ns_ = comm::now_ns();
}

// An average in progress may read the weights at any time. Its thread must end before the weights
// are destroyed, and after every object that holds the averager.
Trainer::~Trainer() {
  run_.reset();
  validation_.reset();
  syncs_.clear();
  direct_.reset();
  tables_.reset();
  groups_.reset();
}

// All workers of the job find the same answer, so that either all of them throw or no worker does.
void Trainer::check_hosts() {
  std::vector<WorkerNeed> needs =
      gather_needs(transport_, plan_.memory.peak(), comm::make_tag(kStartTag, 0, 0, 1, 0));
  if (groups_) needs = groups_->of_all_pipelines(std::move(needs));
  const std::string why = overfull_host(needs);
  require(why.empty(), "{}", why);
}

// Builds what runs the plan: memory, loops, and the links that they need.
void Trainer::build() {
  if (is_asynchronous() && transport_.worker() == 0) warn_of_ties(plan_);
  const TrainerOptions& job = plan_.options;
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
      CallGuard::Limits{others, is_asynchronous(), plan_.curvature.has_value()}, job.threads);
}

std::vector<std::pair<std::string, ps::CacheCounters>> Trainer::table_counters() const {
  return tables_ ? tables_->counters() : std::vector<std::pair<std::string, ps::CacheCounters>>();
}

void Trainer::settle() {
  const auto entered = lock();
  stages_->average_buffers();
  if (tables_) tables_->settle();
}

// Pipeline 0 sends the tables' rows to the servers. The other pipelines wait at the barrier until
// the rows are there.
void Trainer::load(const Manifest& manifest) {
  const auto entered = lock();
  load_checkpoint(manifest, stages_->state());
  if (tables_ && plan_.pipeline == 0)
    for (const StageHere& here : plan_.stages)
      load_checkpoint(manifest, tables_->state(here.placement, manifest.step));
  if (tables_) servers_->flush();
  if (!plan_.tables.empty())
    comm::barrier(transport_, comm::everyone(transport_),
                  {comm::make_tag(kTablesTag, 0, 0, 1, 0), "the tables of a checkpoint"});
  set_step(manifest.step);
}

std::vector<SavePart> Trainer::save_parts() const {
  const std::string& payload = plan_.options.payload;
  require(
      !ablation_of(payload).any(),
      "the weights of a run with --payload {} are meaningless, so they are neither saved nor shown",
      payload);
  std::vector<SavePart> parts;
  for (const StageHere& here : plan_.stages) {
    if (!speaks_for(here)) continue;
    SavePart part{fmt::format("stage-{}.safetensors", here.stage), {}};
    for (StateTensor& t : stages_->state(here.placement))
      if (t.owner) part.tensors.push_back(std::move(t));
    if (tables_)
      for (StateTensor& t : tables_->state(here.placement, step_))
        part.tensors.push_back(std::move(t));
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<StateTensor> Trainer::gradient_parts() const {
  std::vector<StateTensor> out;
  for (const StageHere& here : plan_.stages) {
    if (!speaks_for(here)) continue;
    for (StateTensor& t : stages_->gradients(here.placement))
      if (t.owner) out.push_back(std::move(t));
  }
  return out;
}

void Trainer::check_drained(const char* asked) const {
  require(!is_asynchronous() || run_left_ == 0,
          "{} needs a drained pipeline, but {} steps of this run remain; end the run first, or let "
          "it drain at this step",
          asked, run_left_);
}

void Trainer::with_mean_buffers(const std::function<void()>& work) {
  const auto entered = lock();
  run_->finish();
  guard_->with_mean_buffers(work);
}

void Trainer::log_state(TensorLog& log, TensorRecord::Content what) const {
  const bool weights = what == TensorRecord::Content::Weight;
  std::vector<float> room;
  for (const StageHere& here : plan_.stages) {
    for (const StateTensor& t :
         weights ? stages_->state(here.placement) : stages_->gradients(here.placement))
      if (!weights || t.state.empty())
        log.add(what, t.name, here.stage, t.values.host(room), t.values.elements);
  }
}

void Trainer::ask_to_stop() {
  if (groups_)
    groups_->ask_to_stop();
  else
    run_->ask_to_stop();
}

// Calls `work`, which reads from `batches` (null: this worker reads nothing). If it throws in a job
// of one worker, `batches` goes back.
template <class Work>
auto Trainer::reading(BatchStream* batches, const Work& work) {
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

StepResult Trainer::train(const Batch& batch) {
  const auto entered = lock();
  begin_run(1);
  return next_of(Feeds::Reading(*feeds_, batch));
}

StepResult Trainer::train(BatchStream* batches) {
  const auto entered = lock();
  begin_run(1);
  return *next(batches);
}

void Trainer::begin_run(std::int64_t steps) {
  const auto entered = lock();
  require(run_left_ == 0, "a run is in progress: {} of its steps remain", run_left_);
  require(steps >= 1, "a run needs at least one step, got {}", steps);
  require(
      !is_asynchronous() || steps < std::numeric_limits<int>::max() / plan_.options.micro_batches,
      "a run of {} steps is too long; drain the pipeline in between", steps);
  run_left_ = steps;
  if (is_asynchronous()) begin_asynchronous(static_cast<int>(steps));
}

// Begins one run for all steps, because such a plan has no flush at the end of a step.
void Trainer::begin_asynchronous(int steps) {
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

std::optional<StepReport> Trainer::next_report() {
  if (!is_asynchronous()) {
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

void Trainer::check_drift() {
  std::optional<CurvaturePlan> anew = drift_->after(step_, *recorder());
  if (!anew) return;
  run_->forget_steps();
  if (trace_) trace_->was_planned_by(std::move(*plan_.curvature));
  plan_.curvature = std::move(*anew);
}

std::optional<StepResult> Trainer::next(BatchStream* batches) {
  const auto entered = lock();
  if (run_left_ == 0) return std::nullopt;
  return reading(batches, [&] { return next_of(Feeds::Reading(*feeds_, batches)); });
}

// The steps that begin now read what `reading` has set.
StepResult Trainer::next_of(const Feeds::Reading& /*reading*/) {
  StepReport report = guard_->train(step_, recorder(), [&] {
    if (!groups_) --run_left_;
    StepReport found = *next_report();
    step_ = found.step + 1;
    if (is_asynchronous() && run_->is_last(found.step)) end_run();
    if (found.stop_asked) run_left_ = 0;
    return found;
  });
  return result_of(std::move(report));
}

// Drains the pipeline. The length of an averaged run is only known afterwards.
void Trainer::end_run() {
  while (run_->advance()) {
  }
  run_left_ = 0;
  if (groups_ || plan_.how.has_servers()) stages_->average_buffers();
  if (groups_) step_ = groups_->end_run();
  stages_->set_updates(step_);
  if (trace_) trace_->end_run(run_->steps());
}

StepResult Trainer::validate(const Batch& batch, const ValidateOptions& how) {
  const auto entered = lock();
  check_drained("validation");
  StepResult result;
  result.step = step_;
  const Feeds::Reading reading(*feeds_, batch);
  StepReport report = guard_->validate(step_, [&] {
    run_->finish();
    if (tables_) tables_->settle();
    const std::int64_t each = plan_.options.batch_size, whole = each * plan_.linked;
    const int before = plan_.linked > 1 ? plan_.pipeline : 0;
    stages_->set_training(false);
    stages_->set_fetches(fetched_values(plan_.graph, how.fetches));
    if (how.rows && *how.rows < whole)
      // Pipelines before this one take their rows first.
      stages_->set_rows(std::clamp<std::int64_t>(*how.rows - before * each, 0, each));
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

StepResult Trainer::validate(BatchStream* batches, const ValidateOptions& how) {
  const auto entered = lock();
  return reading(batches, [&] {
    if (batches != nullptr) batches->next(validated_);
    return validate(validated_, how);
  });
}

std::optional<StepResult> Trainer::validate_rows(BatchStream* batches, ValidateOptions how) {
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

void Trainer::set_step(std::int64_t step) {
  step_ = step;
  if (plan_.curvature) plan_.curvature->begin_after(step);
  stages_->set_updates(step - stages_->loss_scale().state().skipped);
  if (groups_) groups_->averager().set_done(step);
}

void Trainer::resume_loss_scale(const LossScale::State& state) {
  require(state.skipped <= step_, "the loss scale cannot have skipped {} updates in {} steps",
          state.skipped, step_);
  LossScale scale = stages_->loss_scale();
  scale.resume(state);
  stages_->set_loss_scale(scale);
  set_step(step_);
}

void Trainer::set_rate_factor(double factor) {
  optimizer_.rate.factor = factor;
  check_rate(optimizer_.rate);
  stages_->set_rate_factor(factor);
}

void Trainer::record(bool on) {
  if (on && !trace_) trace_ = std::make_unique<TrainTrace>(plan_, origin_ns_);
  if (!on) trace_.reset();
  stages_->time_blocks(trace_ ? &trace_->blocks() : nullptr);
}

void Trainer::write_trace(const std::string& path) {
  require(trace_ != nullptr, "nothing was recorded: call record(true) before the steps");
  // Where pipelines have separate transports, each trace holds the events of one pipeline's
  // workers, and the first pipeline writes.
  trace_->write(path, transport_, reducer_, plan_.linked > 1 || in_first_pipeline(),
                counters_json(plan_.number(), table_counters()));
}

}  // namespace hetu
