// Stage: construction, fields and counts of a step, fetches. The slots that instructions take and
// release are in stage_slots.cpp.
#include "executor/stage/stage.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "ops/initialize.h"

namespace hetu {

Stage::Stage(const Graph& graph, std::unique_ptr<StagePlan> plan, int placement,
             StepContext& context, Device& device, const Exchanged& exchanged)
    : plan_(std::move(plan)),
      placement_(placement),
      context_(context),
      graph_(graph),
      device_(device),
      memory_(*plan_, context.micro_ids, device),
      gradients_(*plan_, memory_, device, exchanged),
      messages_(*plan_, memory_, device, exchanged.direct),
      functions_(graph, *plan_, context, device, memory_, gradients_),
      half_done_(context.micro_ids, 0),
      inputs_done_(half_done_),
      weights_done_(half_done_) {
  fetched_.resize(plan_->fetches.size());
  left_.assign(plan_->fetches.size(), 0);
  make_works();
  const auto rounds = std::count_if(
      plan_->parameters.begin(), plan_->parameters.end(), [&](const StageParameter& p) {
        return p.rounded_dtype != DType::Float32 && !p.served && p.role == Parameter::Role::Weight;
      });
  rounds_in_update_ = rounds == static_cast<std::int64_t>(plan_->rounded.launches.size());
  find_copies(context.plan->placements[placement]);
  initialize_tensors();
  totals_ = device.alloc_for(static_cast<std::int64_t>(plan_->counts.size() * sizeof(double)),
                             "the counts of a step");
  free_feeds_.assign(static_cast<std::size_t>(memory_.ring(kFeedRing).slots()),
                     device_.queue().mark());  // this queue clears the memory
}

void Stage::make_works() {
  const bool half = plan_->half_backward;
  works_.resize(kKindCount);
  work(Kind::Forward) = {&plan_->forward, &Stage::before_forward, &Stage::after_forward, false};
  work(Kind::Recompute) = {&plan_->recompute, &Stage::before_recompute, &Stage::nothing, half};
  work(Kind::Backward) = {&plan_->backward, &Stage::before_gradient,
                          &Stage::after_gradient<true, true>, half};
  work(Kind::InputGrad) = {&plan_->input_grad, &Stage::before_gradient,
                           &Stage::after_gradient<true, false>, half};
  work(Kind::WeightGrad) = {&plan_->weight_grad, &Stage::nothing,
                            &Stage::after_gradient<false, true>, half};
}

void Stage::initialize_tensors() {
  const auto begin = [&](const auto& leaf, DeviceSpan to) {  // leaf is a Parameter or a StateBuffer
    if (leaf.start) return to.write(leaf.start->data());
    // A second copy of the largest tensor would be the worker's peak.
    constexpr std::int64_t kPiece = 1 << 20;
    std::vector<float> data(static_cast<std::size_t>(std::min(to.elements, kPiece)));
    for (std::int64_t i = 0; i < to.elements; i += kPiece) {
      const std::int64_t end = std::min(to.elements, i + kPiece);
      initialize_part(leaf.init, leaf.name, graph_.values[leaf.value].type.shape, context_.seed,
                      {i, end}, data.data());
      DeviceSpan{to.data + i, end - i, to.device}.write(data.data());
    }
  };
  for (const StageParameter& p : plan_->parameters) {
    if (p.served) continue;
    begin(graph_.parameters[p.parameter], {memory_.newest(p.weight), p.elements, &device_});
  }
  for (const StageBuffer& b : plan_->buffers) {
    begin(graph_.buffers[b.buffer], {memory_.floats(b.value), b.elements, &device_});
  }
}

// Finds the number of copies of the stage, the micro-batches that run here, and those that are
// recomputed. With cyclic replicas, micro-batch m runs on replica m % copies_. Otherwise the
// worker's row determines them.
void Stage::find_copies(const Placement& mine) {
  const Schedule& plan = *context_.plan;
  const auto each_of = [&](Kind kind, const auto& visit) {
    for (const Instr& i : unroll(plan.workers[mine.workers[0]]))
      if (i.kind == kind && i.stage == placement_) visit(i.micro);
  };
  copies_ = 0;
  for (const Placement& p : plan.placements) copies_ += p.model_stage == mine.model_stage;
  replica_ = mine.replica;
  recomputed_.assign(context_.micro_batches, 0);
  each_of(Kind::Recompute,
          [&](int micro) { recomputed_[forward_micro(micro) % context_.micro_batches] = 1; });
  if (plan.replica_rule == ReplicaRule::Cyclic) {
    own_.assign(copies_, 0);
    own_[mine.replica] = 1;
    return;
  }
  own_.assign(context_.micro_batches, copies_ == 1 ? 1 : 0);
  if (copies_ == 1) return;
  each_of(Kind::Forward, [&](int micro) { own_[micro % context_.micro_batches] = 1; });
}

// Returns the number of backwards that run here and belong to the stage's next update.
int Stage::due() const {
  const int first = updates_ * context_.per_update;
  int count = 0;
  for (int m = first; m < first + context_.per_update; ++m) count += runs_here(m);
  return parts() * count;
}

void Stage::begin_run() {
  forget_validated();
  begin_sums();
  updates_ = forwards_ = 0;
  memory_.restart_versions();
}

void Stage::recover() {
  memory_.release_all();
  validated_ = kNone;
  is_rounded_ = false;
  rounded_at_ = kNone;  // the run may have stopped in the middle of rounding
  functions_.recover();
  messages_.recover();
  free_feeds_.assign(free_feeds_.size(), device_.queue().mark());
}

void Stage::begin_sums() {
  gradients_.begin_sums();
  backwards_ = 0;
}

void Stage::begin_batch(int first_micro) {
  is_rounded_ = false;
  for (int m = first_micro; m < first_micro + context_.micro_batches; ++m)
    memory_.ring(kFeedRing).take(m);
  for (std::size_t f = 0; f < fetched_.size(); ++f) {
    const StageFetch& fetch = plan_->fetches[f];
    if (!is_read(fetch)) continue;
    fetched_[f].resize(static_cast<std::size_t>(context_.micro_ids * fetch.bytes));
    if (fetch.per_sample) continue;
    for (int m = first_micro; m < first_micro + context_.micro_batches; ++m)
      std::fill_n(fetched_[f].begin() + static_cast<std::ptrdiff_t>(context_.cell(m)) * fetch.bytes,
                  fetch.bytes, std::byte{0});
  }
}

void Stage::end_batch(int first_micro) {
  for (int m = first_micro; m < first_micro + context_.micro_batches; ++m)
    if (!runs_here(m)) release_feeds(m);
}

void Stage::feed(const StageFeed& feed, int micro, const void* from, bool on_device) {
  const std::int64_t samples = context_.samples_of(micro, plan_->micro_batch);
  if (samples == 0) return;
  void* const to = memory_.at(feed.loc, micro);
  const std::int64_t bytes = feed.loc.stride / plan_->micro_batch * samples;
  if (on_device) return device_.queue().copy(to, from, bytes);
  Queue& uploads = device_.uploads();
  uploads.after(free_feeds_[memory_.ring(kFeedRing).slot_of(micro)]);
  uploads.upload(to, from, bytes);
  device_.queue().after(uploads.mark());
}

// Sums in float64, in ascending order of micro-batch. The sum stays on the device, so that a single
// pipeline doesn't wait for it.
void Stage::count(int first, int micros) {
  Queue& queue = device_.queue();
  const TensorKernels& kernels = device_.kernels();
  const auto width = static_cast<std::int64_t>(plan_->counts.size());
  queue.run([to = reinterpret_cast<float*>(totals()), width, fill = kernels.fill](AddressMap at) {
    fill(at(to), 0, 2 * width);  // two float32 zeros are one float64 zero
  });
  for (int m = first; m < first + micros; ++m) {
    if (context_.samples_of(m, plan_->micro_batch) == 0) continue;
    functions_.run_samples(plan_->count, m);
    for (std::int64_t i = 0; i < width; ++i)
      queue.run([to = totals() + i, from = memory_.number(plan_->counts[i].input, m),
                 add = kernels.add_wide](AddressMap at) { add(at(to), at(from), 1); });
  }
}

std::vector<double> Stage::counted() {
  std::vector<double> sums(plan_->counts.size(), 0);
  device_.queue().download(sums.data(), totals(),
                           static_cast<std::int64_t>(sums.size() * sizeof(double)));
  device_.queue().record().wait();
  return sums;
}

void Stage::set_counted(const std::vector<double>& sums) {
  counts_set_ = sums;
  device_.queue().upload(totals(), counts_set_.data(),
                         static_cast<std::int64_t>(sums.size() * sizeof(double)));
}

void Stage::spread_counts(int first, int micros) {
  for (std::size_t i = 0; i < plan_->counts.size(); ++i) {
    for (int m = first; m < first + micros; ++m)
      device_.queue().run(
          [to = memory_.number(plan_->counts[i].result, m), from = totals() + i,
           mean = device_.kernels().mean](AddressMap at) { mean(at(to), at(from), 1, 1); });
  }
}

// In training, only float32 scalars are reported.
bool Stage::is_read(const StageFetch& fetch) const {
  const bool left = left_[static_cast<std::size_t>(&fetch - plan_->fetches.data())] != 0;
  if (left || !context_.needs(graph_.values[fetch.value].producer)) return false;
  return !context_.training || graph_.values[fetch.value].type == TensorType{};
}

std::int64_t Stage::bytes_fetched(std::size_t fetch, int micro) const {
  const StageFetch& f = plan_->fetches[fetch];
  if (!f.per_sample) return f.bytes;
  return f.bytes / plan_->micro_batch * context_.samples_of(micro, plan_->micro_batch);
}

void Stage::read_fetches(int micro) {
  if (context_.samples_of(micro, plan_->micro_batch) == 0) return;
  for (std::size_t f = 0; f < plan_->fetches.size(); ++f) {
    const StageFetch& fetch = plan_->fetches[f];
    if (!is_read(fetch)) continue;
    device_.queue().download(
        fetched_[f].data() + static_cast<std::int64_t>(context_.cell(micro)) * fetch.bytes,
        memory_.at(fetch.loc, micro), bytes_fetched(f, micro));
  }
  // On a device that computes at once, a fetch that isn't finite is reported here, before its
  // gradients reach other workers.
  if (device_.queue().at_once()) check_fetches(micro, 1);
}

void Stage::check_fetches(int first_micro, int count) const {
  if (!context_.training) return;
  for (int micro = first_micro; micro < first_micro + count; ++micro) {
    for (std::size_t f = 0; f < plan_->fetches.size(); ++f) {
      const double value = is_read(plan_->fetches[f]) ? fetched(f, micro) : 0;
      if (std::isfinite(value)) continue;
      fail(Code::InvalidArgument,
           "{} is {} at stage {}, micro-batch {}, step {}; lower the learning rate, clip gradients "
           "or look at the data of this step",
           plan_->fetches[f].name, value, plan_->stage, micro,
           context_.step + context_.step_of(micro));
    }
  }
}

// `wanted` is the oldest version that a later forward may use; older ones can be overwritten.
void Stage::begin_update() {
  ++updates_;
  const int wanted = forward_version(*context_.plan, forwards_, updates_);
  memory_.advance_weights(std::min(wanted, updates_));
}

}  // namespace hetu
