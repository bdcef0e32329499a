// TrainStages: construction, fields and counts of a batch, and the dispatch of instructions. The
// end of a step is in train_scalars.cpp.
#include "executor/stage/train_stages.h"

#include <algorithm>

#include "base/error.h"
#include "graph/passes/dead.h"
#include "net/transport/tag_kinds.h"

namespace hetu {

TrainStages::TrainStages(const Graph& graph, std::vector<std::unique_ptr<StagePlan>> plans,
                         const OptimizerConfig& optimizer, const StagesOptions& options,
                         Device& device, comm::Transport& transport)
    : graph_(graph),
      optimizer_(optimizer),
      options_(options),
      device_(device),
      transport_(transport),
      scalars_(graph, options_, context_),
      stages_(plans.size()),
      ended_(plans.size()),
      tied_factors_(graph.parameters.size(), 1) {
  context_.plan = options.plan;
  context_.first_micro = options.first_micro();
  context_.micro_batches = options.micro_batches;
  context_.per_update = micros_per_update(*options.plan);
  context_.micro_ids = options.micro_ids;
  context_.by_version = options.by_version;
  context_.seed = options.seed;
  context_.repeats = options.repeats;
  const SumLayout* const tree = options_.sums.copies.empty() ? nullptr : &options_.sums;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (!plans[i]) continue;
    stages_[i] =
        std::make_unique<Stage>(graph, std::move(plans[i]), static_cast<int>(i), context_, device,
                                Stage::Exchanged{options.bucket_bytes, options.direct, tree});
    for (const StageFeed& feed : stages_[i]->plan().feeds)
      fields_.push_back({static_cast<int>(i), &feed, feed.loc.stride * options.micro_batches});
  }
  for (Stage* stage : here()) connect(*stage);
  curvatures_ = std::make_unique<Curvatures>(graph, stages_, device, options);
  norms_ = std::make_unique<GradientNorms>(graph, device, here());
  if (tree != nullptr) terms_ = std::make_unique<SumTerms>(*tree, stages_, transport.worker());
  shared_ = std::make_unique<SharedGradients>(graph, stages_, device, terms_.get());
  buffers_ = std::make_unique<BufferMeans>(graph, options_, here(), device, transport);
  std::vector<std::int64_t> ahead;
  for (const FeedField& field : fields_)
    if (at(field.stage).plan().memory.ahead > 0) ahead.push_back(field.bytes);
  ahead_ = std::make_unique<FeedsAhead>(ahead, device);  // last: it takes memory that is left over
  undo_ = std::make_unique<StepUndo>(here(), context_, device, *buffers_, *ahead_);
}

// Waits for the device. If an exception ended a run, pending work still refers to kernels and
// messages of the stages.
TrainStages::~TrainStages() {
  try {
    device_.queue().record().wait();
  } catch (...) {  // the error ended the run, or no caller is left to receive it
  }
}

// Connects local boundaries with the stages at their other ends, by the plan's placements, and the
// stage's final buckets with the loop.
void TrainStages::connect(Stage& stage) {
  const auto& boundaries = stage.plan().boundaries;
  for (std::size_t b = 0; b < boundaries.size(); ++b) {
    if (boundaries[b].local && !boundaries[b].incoming)
      stage.messages().lead_to(
          b, at(placement_of(*options_.plan, boundaries[b].to, stage.replica())).messages());
  }
  const bool has_copies = stage.copies() * options_.pipelines > 1;
  stage.gradients().ready = [this, has_copies, &stage](int bucket) {
    if (has_copies || stage.gradients().is_tied(bucket)) bucket_ready(stage.placement(), bucket);
  };
}

Stage& TrainStages::at(int placement) {
  HETU_ASSERT(placement >= 0 && placement < static_cast<int>(stages_.size()) && stages_[placement]);
  return *stages_[placement];
}

std::vector<Stage*> TrainStages::here() const {
  std::vector<Stage*> stages;
  for (const auto& stage : stages_)
    if (stage) stages.push_back(stage.get());
  return stages;
}

void TrainStages::feed(int field, const void* data, std::uint64_t batch) {
  const FeedField& f = fields_[field];
  const void* const there =
      context_.training ? ahead_->find(static_cast<std::size_t>(field), batch) : nullptr;
  const bool came = there != nullptr;
  uploads_ = uploads_ || !came;
  const auto* const from = static_cast<const std::byte*>(came ? there : data);
  for (int m = 0; m < options_.micro_batches; ++m)
    at(f.stage).feed(*f.feed, (batches_ - 1) * options_.micro_batches + m,
                     from + m * f.feed->loc.stride, came);
}

bool TrainStages::reads(const FeedField& field) const {
  for (const ValueId v : graph_.placeholders)
    if (graph_.producer(v).name == field.feed->field)
      return context_.needs(graph_.values[v].producer);
  return true;
}

void TrainStages::set_fetches(const std::vector<ValueId>& values) {
  std::pair now(context_.training, values);
  if (now == reported_) return;
  context_.nodes = needed_for(graph_, needed_in_run(graph_, context_.training, values));
  reported_ = std::move(now);
}

void TrainStages::begin_run(int first_step, bool asks_to_stop) {
  context_.step = first_step;
  batches_ = 0;
  squares_ = 0;
  asks_to_stop_ = asks_to_stop;
  context_.loss_scale = static_cast<float>(loss_scale_.scale());
  reports_.clear();
  shared_->begin_run();
  for (Stage* stage : here()) stage->begin_run();
}

// Every replica reads the whole batch, so that it can count without messages, and keeps its own
// micro-batches.
void TrainStages::begin_batch() {
  const int first = batches_++ * options_.micro_batches;
  for (Stage* stage : here()) stage->begin_batch(first);
  uploads_ = false;
}

void TrainStages::end_batch() {
  const int first = (batches_ - 1) * options_.micro_batches;
  if (uploads_) device_.uploads().record().wait();  // the caller may change its memory afterwards
  if (!fields_.empty() && context_.training) ahead_->end_batch();
  for (Stage* stage : here()) {
    const int together = context_.training ? context_.per_update : options_.micro_batches;
    for (int m = 0; m < options_.micro_batches; m += together) count(*stage, first + m, together);
    stage->end_batch(first);
  }
}

// Sums the counts (masked tokens, samples) of the micro-batches of one update: those of a step, or
// a single one under VersionRule::Wave. Counts are known before the first forward. So each
// micro-batch's loss is already scaled, and every reduction is a plain sum.
void TrainStages::count(Stage& stage, int first, int micros) {
  const auto& counts = stage.plan().counts;
  const auto is_needed = [&](const StageCount& c) {
    return context_.needs(graph_.values[c.value].producer);
  };
  if (std::none_of(counts.begin(), counts.end(), is_needed)) return;
  if (options_.pipelines > 1 && !alone())
    stage.set_counted(count_of_all(stage, first, micros));
  else
    stage.count(first, micros);
  stage.spread_counts(first, micros);
}

// Returns the counts of the micro-batches of all pipelines, added in their order. Every replica
// counts its pipeline's whole batch, so only pipelines have to be added. Pipelines with shares have
// one update per step.
std::vector<double> TrainStages::count_of_all(Stage& stage, int first, int micros) {
  const int step = context_.step + context_.step_of(first);
  const auto what = [&] {
    return fmt::format("the counts of stage {}, step {}", stage.plan().stage, step);
  };
  comm::Group group;
  for (int d = 0; d < options_.pipelines; ++d)
    group.push_back(d * options_.workers_per_pipeline +
                    options_.plan->placements[stage.placement()].workers[0]);
  const std::size_t width = stage.plan().counts.size();
  const auto before = [&](int pipeline) {
    return micros_before(options_.shares, micros, pipeline);
  };
  std::vector<double> all(static_cast<std::size_t>(before(options_.pipelines)) * width, 0);
  for (int m = 0; m < micros; ++m) {
    stage.count(first + m, 1);
    const std::vector<double> one = stage.counted();
    std::copy(one.begin(), one.end(),
              all.begin() + (before(options_.pipeline) + m) * std::ssize(one));
  }
  comm::sum_f64(transport_, group, all.data(), all.size(),
                {comm::make_tag(kCountTag, stage.placement(), 0, 0, step), what});
  std::vector<double> sums(width, 0);
  for (std::size_t i = 0; i < all.size(); ++i) sums[i % width] += all[i];
  return sums;
}

Event TrainStages::run(const Instr& instr, int step) {
  if (instr.kind == Kind::ReduceScalars) {
    reduce_scalars(step);
  } else if (instr.kind == Kind::Update) {
    update(at(instr.stage));
  } else if (is_second_order(instr.kind)) {
    curvatures_->run(instr, optimizer_.kfac);
  } else {
    at(instr.stage).run(instr.kind, instr.micro);
  }
  return device_.queue().record();
}

std::vector<int> TrainStages::buckets(const Instr& reduce) {
  if (reduce.kind == Kind::Gather) return curvatures_->buckets(reduce);
  return at(reduce.stage).gradients().of(reduce);
}

Bucket TrainStages::bucket(int placement, int bucket) {
  Stage& stage = at(placement);
  GradientBuckets& gradients = stage.gradients();
  if (!gradients.is_of_factor(bucket)) {
    gradients.clear_if_unused();
    shared_->join_into(stage, bucket);
  }
  Bucket out = gradients.bucket(bucket);
  if (terms_ && !gradients.is_inverse(bucket)) terms_->add_to(out, placement, bucket, device_);
  return out;
}

std::int64_t TrainStages::synchronised(const Instr& instr, std::int64_t done_ns) {
  if (instr.kind == Kind::ReduceGrad || is_factor_exchange(instr.kind))
    at(instr.stage).gradients().summed(buckets(instr));
  return done_ns;
}

}  // namespace hetu
