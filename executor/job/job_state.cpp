// The state of a job between steps: weights, step, loss scale and learning rate; what a checkpoint
// stores.
#include <utility>

#include "base/error.h"
#include "executor/job/job.h"
#include "executor/job/precision.h"
#include "net/transport/collective.h"
#include "net/transport/tag_kinds.h"

namespace hetu {

void Job::settle() {
  const auto entered = lock();
  stages_->average_buffers();
  if (tables_) tables_->settle();
}

// Pipeline 0 sends the tables' rows to the servers. The other pipelines wait at the barrier until
// the rows are there.
void Job::load(const Manifest& manifest) {
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
  if (twin_ != nullptr) twin_->load(manifest);
}

std::vector<SavePart> Job::save_parts() const {
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

std::vector<StateTensor> Job::gradient_parts() const {
  std::vector<StateTensor> out;
  for (const StageHere& here : plan_.stages) {
    if (!speaks_for(here)) continue;
    for (StateTensor& t : stages_->gradients(here.placement))
      if (t.owner) out.push_back(std::move(t));
  }
  return out;
}

void Job::check_drained(const char* asked) const {
  require(!plan_.asynchronous || run_left_ == 0,
          "{} needs a drained pipeline, but {} steps of this run remain; end the run first, or let "
          "it drain at this step",
          asked, run_left_);
}

void Job::with_mean_buffers(const std::function<void()>& work) {
  const auto entered = lock();
  run_->finish();
  guard_->with_mean_buffers(work);
}

void Job::log_state(TensorLog& log, TensorRecord::Content what) const {
  const bool weights = what == TensorRecord::Content::Weight;
  std::vector<float> room;
  for (const StageHere& here : plan_.stages) {
    for (const StateTensor& t :
         weights ? stages_->state(here.placement) : stages_->gradients(here.placement))
      if (!weights || t.state.empty())
        log.add(what, t.name, here.stage, t.values.host(room), t.values.elements);
  }
}

void Job::set_step(std::int64_t step) {
  if (twin_ != nullptr) twin_->set_step(step);
  step_ = step;
  if (plan_.curvature) plan_.curvature->begin_after(step);
  stages_->set_updates(step - stages_->loss_scale().state().skipped);
  if (groups_) groups_->averager().set_done(step);
}

void Job::resume_loss_scale(const LossScale::State& state) {
  require(state.skipped <= step_, "the loss scale cannot have skipped {} updates in {} steps",
          state.skipped, step_);
  LossScale scale = stages_->loss_scale();
  scale.resume(state);
  stages_->set_loss_scale(scale);
  set_step(step_);
  if (twin_ != nullptr) twin_->resume_loss_scale(state);
}

void Job::set_rate_factor(double factor) {
  if (twin_ != nullptr) twin_->set_rate_factor(factor);
  optimizer_.rate.factor = factor;
  check_rate(optimizer_.rate);
  stages_->set_rate_factor(factor);
}

std::vector<std::pair<std::string, ps::CacheCounters>> Job::table_counters() const {
  return tables_ ? tables_->counters() : std::vector<std::pair<std::string, ps::CacheCounters>>();
}

}  // namespace hetu
