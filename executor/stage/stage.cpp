#include "executor/stage/stage.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "executor/stage/initialize.h"
#include "graph/base/error.h"

namespace hetu {

Stage::Stage(const Graph& graph, std::unique_ptr<StagePlan> plan, int placement,
             StepContext& context, Device& device, std::int64_t bucket_bytes)
    : plan_(std::move(plan)),
      placement_(placement),
      context_(context),
      graph_(graph),
      device_(device),
      memory_(*plan_, context.micro_ids, device),
      gradients_(*plan_, memory_, device, bucket_bytes),
      neighbours_(plan_->boundaries.size(), nullptr),
      mirrors_(plan_->boundaries.size()),
      uploaded_(plan_->boundaries.size()),
      fetched_(plan_->fetches.size(), std::vector<float>(context.micro_ids, 0)),
      half_done_(context.micro_ids, 0),
      inputs_done_(half_done_),
      weights_done_(half_done_) {
  for (const Node& node : graph.nodes) {
    inputs_.resize(std::max(inputs_.size(), node.inputs.size()));
    outputs_.resize(std::max(outputs_.size(), node.outputs.size()));
  }
  if (!device.in_host_memory()) {
    for (std::size_t b = 0; b < mirrors_.size(); ++b) {
      const Boundary& boundary = plan_->boundaries[b];
      mirrors_[b].resize(static_cast<std::size_t>(boundary.slots * boundary.bytes));
      uploaded_[b].resize(static_cast<std::size_t>(boundary.slots));
    }
  }
  make_works();
  find_copies(context.plan->placements[placement]);
  initialize_tensors();
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
  const auto start = [&](const Initializer& init, const std::string& name, ValueId value,
                         DeviceSpan to) {
    std::vector<float> data(static_cast<std::size_t>(to.elements));
    initialize(init, name, graph_.values[value].type.shape, context_.seed, data.data());
    to.write(data.data());
  };
  for (const StageParameter& p : plan_->parameters) {
    const Parameter& parameter = graph_.parameters[p.parameter];
    start(parameter.init, parameter.name, parameter.value,
          {memory_.newest(p.weight), p.elements, &device_});
  }
  for (const StageBuffer& b : plan_->buffers) {
    const StateBuffer& buffer = graph_.buffers[b.buffer];
    start(buffer.init, buffer.name, buffer.value, {memory_.floats(b.value), b.elements, &device_});
  }
}

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

// Backwards of the step that the stage's next update applies which run here.
int Stage::due() const {
  const int first = updates_ * context_.micro_batches;
  int count = 0;
  for (int m = first; m < first + context_.micro_batches; ++m) count += runs_here(m);
  return parts() * count;
}

void Stage::begin_run() {
  forget_validated();
  begin_sums();
  updates_ = forwards_ = 0;
  memory_.restart_versions();
}

void Stage::begin_sums() {
  gradients_.begin_sums();
  backwards_ = 0;
}

void Stage::begin_batch(int first_micro) {
  for (int m = first_micro; m < first_micro + context_.micro_batches; ++m) {
    memory_.ring(kFeedRing).take(m);
    for (std::vector<float>& values : fetched_) values[context_.cell(m)] = 0;
  }
}

void Stage::end_batch(int first_micro) {
  for (int m = first_micro; m < first_micro + context_.micro_batches; ++m)
    if (!runs_here(m)) memory_.ring(kFeedRing).release(m);
}

void Stage::feed(const StageFeed& feed, int micro, const void* from_host) {
  device_.queue().upload(memory_.at(feed.loc, micro), from_host, feed.loc.stride);
}

std::vector<double> Stage::count(int step) {
  const int first = step * context_.micro_batches;
  const std::size_t width = plan_->counts.size();
  std::vector<float> counted(width * context_.micro_batches);
  for (int m = 0; m < context_.micro_batches; ++m) {
    run_function(plan_->count, first + m, false);
    for (std::size_t i = 0; i < width; ++i)
      device_.queue().download(&counted[m * width + i],
                               memory_.at(plan_->counts[i].input, first + m), sizeof(float));
  }
  device_.queue().record().wait();
  std::vector<double> sums(width, 0);
  for (std::size_t i = 0; i < counted.size(); ++i) sums[i % width] += counted[i];
  return sums;
}

void Stage::set_counts(int step, const std::vector<double>& sums) {
  const int first = step * context_.micro_batches;
  const std::vector<float> values(sums.begin(), sums.end());
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (int m = first; m < first + context_.micro_batches; ++m)
      device_.queue().upload(memory_.at(plan_->counts[i].result, m), &values[i], sizeof(float));
  }
  device_.queue().record().wait();
}

void Stage::launch(const Launch& l, int micro, const RunContext& context) {
  for (std::size_t i = 0; i < l.inputs.size(); ++i) inputs_[i] = memory_.at(l.inputs[i], micro);
  for (std::size_t i = 0; i < l.outputs.size(); ++i) outputs_[i] = memory_.at(l.outputs[i], micro);
  void* const scratch = memory_.at(l.scratch, micro);
  const PreparedKernel& kernel = l.of_second && micro % 2 == 1 ? *l.of_second : *l.kernel;
  if (device_.queue().at_once())
    return kernel.run({inputs_.data(), outputs_.data(), scratch, context});
  const std::vector<const void*> from(inputs_.begin(), inputs_.begin() + l.inputs.size());
  const std::vector<void*> to(outputs_.begin(), outputs_.begin() + l.outputs.size());
  device_.queue().run([&kernel, from, to, scratch, context](Reach at) {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const void* address : from) inputs.push_back(at(address));
    for (void* address : to) outputs.push_back(at(address));
    kernel.run({inputs.data(), outputs.data(), at(scratch), context});
  });
}

// `half`: the id is that of a half micro-batch.
void Stage::run_function(const Function& function, int micro, bool half) {
  const int whole = half ? micro / 2 : micro;
  const int of_all = context_.pipeline * context_.micro_batches + whole % context_.micro_batches;
  RunContext run;
  run.seed = context_.seed;
  run.training = context_.training;
  run.step = context_.step + context_.step_of(whole);
  run.sample_offset = of_all * plan_->micro_batch;
  if (half && micro % 2 == 1) run.sample_offset += (plan_->micro_batch + 1) / 2;
  std::size_t next = 0;
  BlockTimes* const times = context_.training ? context_.block_times : nullptr;
  const bool logs = context_.training && !half && context_.tensor_log != nullptr;
  if (times != nullptr) times->begin();
  const auto& accumulates = function.accumulates;
  for (int i = 0; i < static_cast<int>(function.launches.size()); ++i) {
    const Launch& l = function.launches[i];
    const std::size_t first = next;
    while (next < accumulates.size() && accumulates[next].after_launch == i) ++next;
    bool direct = false;
    for (std::size_t a = first; a < next; ++a) {
      // The first micro-batch's gradient is written straight into the accumulator.
      direct = direct || (accumulates[a].output >= 0 && gradients_.is_fresh(accumulates[a].use));
    }
    if (!direct) {
      launch(l, micro, run);
    } else {
      Launch redirected = l;  // a handful of places; once per parameter and step
      for (std::size_t a = first; a < next; ++a) {
        if (accumulates[a].output < 0 || !gradients_.is_fresh(accumulates[a].use)) continue;
        redirected.outputs[accumulates[a].output] = plan_->uses[accumulates[a].use].accumulator;
      }
      launch(redirected, micro, run);
    }
    if (logs) log(l, of_all);
    for (std::size_t a = first; a < next; ++a) accumulate(accumulates[a], micro);
    if (times == nullptr) continue;
    device_.queue().record().wait();
    times->ran(l.node);
  }
  if (times != nullptr) times->end();
}

// The results of the last launch, for whom it was made.
void Stage::log(const Launch& l, int of_all) {
  if (device_.in_host_memory())
    return context_.tensor_log->ran(l.node, plan_->stage, of_all, plan_->micro_batch,
                                    outputs_.data());
  std::vector<std::vector<std::byte>> copies;
  std::vector<void*> places;
  for (std::size_t i = 0; i < l.outputs.size(); ++i) {
    const TensorType& type = graph_.values[graph_.nodes[l.node].outputs[i]].type;
    const std::int64_t bytes =
        element_count(bind_batch(type.shape, plan_->micro_batch)) * dtype_bytes(type.dtype);
    copies.emplace_back(static_cast<std::size_t>(bytes));
    places.push_back(copies.back().data());
    device_.queue().download(places.back(), outputs_[i], bytes);
  }
  device_.queue().record().wait();
  context_.tensor_log->ran(l.node, plan_->stage, of_all, plan_->micro_batch, places.data());
}

void Stage::accumulate(const Accumulate& a, int micro) {
  const StageUse& use = plan_->uses[a.use];
  const std::int64_t elements = plan_->parameters[use.parameter].elements;
  float* const sum = memory_.floats(use.accumulator);
  if (!gradients_.is_fresh(a.use)) {
    device_.queue().run(
        [sum, from = static_cast<const float*>(memory_.at(a.gradient, micro)), elements,
         add = device_.kernels().add](Reach at) { add(at(sum), at(from), elements); });
  } else if (a.output < 0) {
    device_.queue().copy(sum, memory_.at(a.gradient, micro), elements * 4);
  }
  gradients_.filled(a.use);
  const StageParameter& parameter = plan_->parameters[use.parameter];
  if (parameter.uses.size() == 1 && backwards_ == due() - 1)
    gradients_.parameter_done(use.parameter);
}

void Stage::read_fetches(int micro) {
  for (std::size_t f = 0; f < plan_->fetches.size(); ++f)
    device_.queue().download(&fetched_[f][context_.cell(micro)],
                             memory_.at(plan_->fetches[f].loc, micro), sizeof(float));
  // Where they are there at once, the cause is named before its gradients reach other workers.
  if (device_.queue().at_once()) check_fetches(micro, 1);
}

void Stage::check_fetches(int first_micro, int count) const {
  if (!context_.training) return;
  for (int micro = first_micro; micro < first_micro + count; ++micro) {
    for (std::size_t f = 0; f < plan_->fetches.size(); ++f) {
      const double value = fetched(f, micro);
      if (std::isfinite(value)) continue;
      fail(Code::InvalidArgument,
           "{} is {} at stage {}, micro-batch {}, step {}; lower the learning rate, clip gradients "
           "or look at the data of "
           "this step",
           plan_->fetches[f].name, value, plan_->stage, micro,
           context_.step + context_.step_of(micro));
    }
  }
}

void Stage::begin_update() {
  ++updates_;
  const int wanted = forward_version(*context_.plan, forwards_, updates_);
  memory_.advance_weights(std::min(wanted, updates_));
}

}  // namespace hetu
