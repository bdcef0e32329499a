#include "executor/stage/train_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "executor/compile/lifetime.h"
#include "executor/stage/initialize.h"
#include "graph/base/error.h"

namespace hetu {
TrainRunner::TrainRunner(const Graph& graph, std::vector<std::unique_ptr<StagePlan>> plans,
                         const OptimizerConfig& optimizer, const RunnerOptions& options,
                         comm::Transport& transport)
    : graph_(graph), optimizer_(optimizer), options_(options), transport_(transport) {
  std::size_t most_inputs = 1, most_outputs = 1;
  for (const Node& node : graph.nodes) {
    most_inputs = std::max(most_inputs, node.inputs.size());
    most_outputs = std::max(most_outputs, node.outputs.size());
  }
  input_pointers_.resize(most_inputs);
  output_pointers_.resize(most_outputs);
  context_.seed = options.seed;
  stages_.resize(plans.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (!plans[i]) continue;
    Stage& stage = stages_[i];
    stage.plan = std::move(plans[i]);
    stage.memory = std::make_unique<StageMemory>(*stage.plan, options.micro_ids);
    stage.fetched.assign(stage.plan->fetches.size(), std::vector<double>(options.micro_ids, 0));
    stage.half_done.assign(options.micro_ids, 0);
    stage.inputs = stage.weights = stage.half_done;
    for (const StageFeed& feed : stage.plan->feeds) {
      fields_.push_back({static_cast<int>(i), &feed, feed.loc.stride * options.micro_batches});
    }
    for (const StageParameter& p : stage.plan->parameters) {
      const Parameter& parameter = graph.parameters[p.parameter];
      initialize(parameter.init, parameter.name, graph.values[parameter.value].type.shape,
                 options.seed, stage.memory->newest(p.weight));
    }
    for (const StageBuffer& b : stage.plan->buffers) {
      const StateBuffer& buffer = graph.buffers[b.buffer];
      initialize(buffer.init, buffer.name, graph.values[buffer.value].type.shape, options.seed,
                 stage.memory->floats(b.value));
    }
    make_buckets(stage);
    begin_sums(stage);
    find_copies(stage, options.plan->placements[i]);
    find_neighbours(stage, options.plan->placements[i]);
  }
  find_shared();
}

// The micro-batches of one placement's instructions of a kind in the plan.
template <class Visit>
void TrainRunner::for_each(const Placement& mine, Kind kind, const Visit& visit) const {
  const int id = placement_of(*options_.plan, mine.model_stage, mine.replica);
  for (const Instr& i : unroll(options_.plan->workers[mine.workers[0]]))
    if (i.kind == kind && i.stage == id) visit(i.micro);
}

void TrainRunner::find_copies(Stage& stage, const Placement& mine) {
  const Schedule& plan = *options_.plan;
  int copies = 0;
  for (const Placement& p : plan.placements) copies += p.model_stage == mine.model_stage;
  stage.copies = copies * options_.pipelines;
  stage.replica = mine.replica;
  stage.recomputed.assign(options_.micro_batches, 0);
  for_each(mine, Kind::Recompute,
           [&](int micro) { stage.recomputed[forward_micro(micro) % options_.micro_batches] = 1; });
  if (plan.replica_rule == ReplicaRule::Cyclic) {
    stage.own.assign(copies, 0);
    stage.own[mine.replica] = 1;
    return;
  }
  stage.own.assign(options_.micro_batches, copies == 1 ? 1 : 0);
  if (copies == 1) return;
  for_each(mine, Kind::Forward, [&](int micro) { stage.own[micro % options_.micro_batches] = 1; });
}

// Backwards of the step that the stage's next update applies which run here.
int TrainRunner::due(const Stage& stage) const {
  const int first = stage.updates * options_.micro_batches;
  int count = 0;
  for (int m = first; m < first + options_.micro_batches; ++m) count += runs_here(stage, m);
  return stage.plan->half_backward ? 2 * count : count;
}

TrainRunner::Stage& TrainRunner::at(int placement) {
  HETU_ASSERT(placement >= 0 && placement < static_cast<int>(stages_.size()) &&
              stages_[placement].plan);
  return stages_[placement];
}

// Backward produces gradients from the last parameter to the first, so buckets are cut from the
// end. A tied parameter is a bucket of its own, summed with its other stage too.
void TrainRunner::make_buckets(Stage& stage) {
  const StagePlan& plan = *stage.plan;
  stage.bucket_of.assign(plan.parameters.size(), kNone);
  for (int p = static_cast<int>(plan.parameters.size()) - 1; p >= 0; --p) {
    const StageParameter& parameter = plan.parameters[p];
    if (parameter.uses.empty()) continue;
    float* data = stage.memory->floats(plan.uses[parameter.uses[0]].accumulator);
    const std::int64_t padded = align_up(parameter.elements * 4) / 4;
    GradientRange* last = stage.buckets.empty() ? nullptr : &stage.buckets.back();
    if (last && last->tied_pair == kNone && parameter.tied_pair == kNone &&
        data + padded == last->data && last->elements * 4 < options_.bucket_bytes) {
      last->data = data;
      last->elements += padded;
    } else {
      stage.buckets.push_back({data, parameter.elements, parameter.tied_pair, 0, 0});
      last = &stage.buckets.back();
    }
    ++last->parameters;
    stage.bucket_of[p] = static_cast<int>(stage.buckets.size()) - 1;
  }
}

void TrainRunner::feed(int field, const void* data) {
  const FeedField& f = fields_[field];
  StageMemory& memory = *at(f.stage).memory;
  const std::int64_t bytes = f.feed->loc.stride;
  for (int m = 0; m < options_.micro_batches; ++m) {
    const int micro = (batches_ - 1) * options_.micro_batches + m;
    std::memcpy(memory.at(f.feed->loc, micro), static_cast<const std::byte*>(data) + m * bytes,
                bytes);
  }
}

void TrainRunner::begin_step(int step) {
  step_ = step;
  batches_ = 0;
  context_.training = training_;
  for (Shared& shared : shared_) shared.joined = false;
  for (Stage& stage : stages_) {
    if (!stage.plan) continue;
    forget_validated(stage);
    begin_sums(stage);
    stage.updates = stage.forwards = 0;
    stage.memory->restart_versions();
  }
}

// Nothing is in the gradient sums.
void TrainRunner::begin_sums(Stage& stage) {
  stage.fresh.assign(stage.plan->uses.size(), 1);
  stage.backwards = 0;
  for (GradientRange& bucket : stage.buckets) bucket.missing = bucket.parameters;
}

// The fields and counts of the next step, at its first forward. A replica reads the whole batch, so
// that it counts without asking the others, and keeps its own micro-batches.
void TrainRunner::begin_batch() {
  const int first = batches_++ * options_.micro_batches, end = first + options_.micro_batches;
  for (Stage& stage : stages_) {
    if (!stage.plan) continue;
    for (int m = first; m < end; ++m) {
      stage.memory->ring(kFeedRing).take(m);
      for (std::vector<double>& values : stage.fetched) values[cell(m)] = 0;
    }
  }
  if (!fields_.empty()) source_();
  for (Stage& stage : stages_) {
    if (!stage.plan) continue;
    run_counts(stage, batches_ - 1);
    for (int m = first; m < end; ++m)
      if (!runs_here(stage, m)) stage.memory->ring(kFeedRing).release(m);
  }
}

comm::Group TrainRunner::holders(int model_stage) const {
  comm::Group group;
  for (int d = 0; d < options_.pipelines; ++d) {
    for (const Placement& p : options_.plan->placements) {
      if (p.model_stage == model_stage)
        group.push_back(d * options_.workers_per_pipeline + p.workers[0]);
    }
  }
  std::sort(group.begin(), group.end());
  group.erase(std::unique(group.begin(), group.end()), group.end());
  return group;
}

// Counts of the whole step (masked tokens, samples): known before the first forward, so that each
// micro-batch's loss is already scaled and every reduction is a sum.
void TrainRunner::run_counts(Stage& stage, int step) {
  const StagePlan& plan = *stage.plan;
  if (plan.counts.empty()) return;
  const int first = step * options_.micro_batches;
  std::vector<double> sums(plan.counts.size(), 0);
  for (int m = 0; m < options_.micro_batches; ++m) {
    run(stage, plan.count, first + m);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] += *static_cast<const float*>(stage.memory->at(plan.counts[i].input, first + m));
    }
  }
  if (options_.pipelines > 1 && !alone()) {
    const auto what = [&] {
      return fmt::format("the counts of stage {}, step {}", plan.stage, step_ + step);
    };
    // Every replica counts its pipeline's whole batch, so that only pipelines are to be added.
    const int placement = static_cast<int>(&stage - stages_.data());
    comm::Group group;
    for (int d = 0; d < options_.pipelines; ++d)
      group.push_back(d * options_.workers_per_pipeline +
                      options_.plan->placements[placement].workers[0]);
    comm::sum_f64(transport_, group, sums.data(), sums.size(),
                  {comm::make_tag(kCountTag, placement, 0, 0, step_ + step), what});
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    for (int m = 0; m < options_.micro_batches; ++m)
      *static_cast<float*>(stage.memory->at(plan.counts[i].result, first + m)) =
          static_cast<float>(sums[i]);
  }
}

void TrainRunner::launch(Stage& stage, const Launch& l, int micro, const RunContext& context) {
  const StageMemory& memory = *stage.memory;
  for (std::size_t i = 0; i < l.inputs.size(); ++i)
    input_pointers_[i] = memory.at(l.inputs[i], micro);
  for (std::size_t i = 0; i < l.outputs.size(); ++i)
    output_pointers_[i] = memory.at(l.outputs[i], micro);
  const PreparedKernel& kernel = l.of_second && micro % 2 == 1 ? *l.of_second : *l.kernel;
  kernel.run(
      {input_pointers_.data(), output_pointers_.data(), memory.at(l.scratch, micro), context});
}

// `half`: the id is that of a half micro-batch.
void TrainRunner::run(Stage& stage, const Function& function, int micro, bool half) {
  const int whole = half ? micro / 2 : micro;
  const int of_all = options_.pipeline * options_.micro_batches + whole % options_.micro_batches;
  context_.step = step_ + step_of(whole);
  context_.sample_offset = of_all * stage.plan->micro_batch;
  if (half && micro % 2 == 1) context_.sample_offset += (stage.plan->micro_batch + 1) / 2;
  std::size_t next = 0;
  BlockTimes* const times = training_ ? block_times_ : nullptr;
  TensorLog* const log = training_ && !half ? tensor_log_ : nullptr;
  if (times != nullptr) times->begin();
  const auto& accumulates = function.accumulates;
  for (int i = 0; i < static_cast<int>(function.launches.size()); ++i) {
    const Launch& l = function.launches[i];
    const std::size_t first = next;
    while (next < accumulates.size() && accumulates[next].after_launch == i) ++next;
    bool direct = false;
    for (std::size_t a = first; a < next; ++a) {
      // The first micro-batch's gradient is written straight into the accumulator.
      direct = direct || (accumulates[a].output >= 0 && stage.fresh[accumulates[a].use]);
    }
    if (!direct) {
      launch(stage, l, micro, context_);
    } else {
      Launch redirected = l;  // a handful of places; once per parameter and step
      for (std::size_t a = first; a < next; ++a) {
        if (accumulates[a].output < 0 || !stage.fresh[accumulates[a].use]) continue;
        redirected.outputs[accumulates[a].output] =
            stage.plan->uses[accumulates[a].use].accumulator;
      }
      launch(stage, redirected, micro, context_);
    }
    if (log != nullptr)
      log->ran(l.node, stage.plan->stage, of_all, stage.plan->micro_batch, output_pointers_.data());
    for (std::size_t a = first; a < next; ++a) accumulate(stage, accumulates[a], micro);
    if (times != nullptr) times->ran(l.node);
  }
  if (times != nullptr) times->end();
}

void TrainRunner::forward(int placement, int micro) {
  Stage& stage = at(placement);
  const StagePlan& plan = *stage.plan;
  forget_validated(stage);
  while (batches_ <= step_of(micro)) begin_batch();
  const bool versions = options_.repeated && training_;
  stage.memory->use_weights(micro,
                            versions ? forward_version(*options_.plan, micro, stage.updates) : 0);
  stage.forwards = micro + 1;
  stage.inputs[cell(micro)] = stage.weights[cell(micro)] = 0;
  const int parts = plan.half_backward ? 2 : 1;
  for (int id = parts * micro; id < parts * (micro + 1); ++id) stage.half_done[cell(id)] = 0;
  stage.memory->ring(kSavedRing).take(micro);
  if (training_) {
    live_halves_ += 2;
    note_peak();
  }
  for (const Boundary& boundary : plan.boundaries) {
    if (!boundary.incoming && !boundary.backward) stage.memory->ring(boundary.ring).take(micro);
  }
  run(stage, plan.forward, micro);
  if (training_) replace_buffers(stage, micro);
  pack(stage, false, micro);
  hand_over(stage, false, micro);
  read_fetches(stage, micro);
  if (stage.recomputed[micro % options_.micro_batches])
    stage.memory->ring(kSavedRing).release(micro);
  if (training_) return;
  stage.validated = micro;
  for (const Boundary& boundary : plan.boundaries)
    if (boundary.incoming) stage.memory->ring(boundary.ring).release(micro);
}

// In validation no backward gives slots back: a micro-batch's are free once the next one starts.
void TrainRunner::forget_validated(Stage& stage) {
  if (stage.validated == kNone) return;
  stage.memory->ring(kFeedRing).release(stage.validated);
  stage.memory->ring(kSavedRing).release(stage.validated);
  stage.memory->done_with_weights(stage.validated);
  stage.validated = kNone;
}

void TrainRunner::read_fetches(Stage& stage, int micro) {
  for (std::size_t f = 0; f < stage.plan->fetches.size(); ++f) {
    const StageFetch& fetch = stage.plan->fetches[f];
    const double value = *static_cast<const float*>(stage.memory->at(fetch.loc, micro));
    if (training_ && !std::isfinite(value)) {
      fail(Code::InvalidArgument,
           "{} is {} at stage {}, micro-batch {}, step {}; lower the learning rate, clip gradients "
           "or look at the data of "
           "this step",
           fetch.name, value, stage.plan->stage, micro, step_ + step_of(micro));
    }
    stage.fetched[f][cell(micro)] = value;
  }
}

}  // namespace hetu
