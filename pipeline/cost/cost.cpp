#include "pipeline/cost/cost.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/error.h"
#include "pipeline/cost/limits.h"
#include "pipeline/cost/partition.h"

namespace hetu {
namespace {

// The bound is above kLargestNumber, because the costs of a file may be scaled, for example by the
// samples of a micro-batch.
void check_number(double value, const char* what) {
  constexpr double kMost = 1e30;
  require(std::isfinite(value) && value >= 0, "{} must be a finite number >= 0, got {}", what,
          value);
  require(value <= kMost, "{} must be at most {}, got {}", what, kMost, value);
}

void check_stage(const StageCost& c) {
  check_number(c.forward, "forward time");
  check_number(c.input_grad, "input gradient time");
  check_number(c.weight_grad, "weight gradient time");
  check_number(c.recompute, "recompute time");
  check_number(c.update, "update time");
  check_number(c.bytes_out, "message size");
  check_number(c.activation_bytes, "activation bytes");
  check_number(c.weight_bytes, "weight bytes");
  check_number(c.gradient_bytes, "gradient bytes");
  check_number(c.feed_bytes, "field bytes");
  check_number(c.reduce_grad, "time of a gradient sum");
  check_number(c.working_bytes, "working bytes");
  check_number(c.curvature.factors, "time of curvature factors");
  check_number(c.curvature.inversion, "inversion time");
  check_number(c.curvature.precondition, "preconditioning time");
  check_number(c.curvature.saved_bytes, "bytes saved for curvature");
  check_number(c.curvature.factor_bytes, "bytes of curvature factors");
}

void check_link(const LinkCost& l) {
  check_number(l.latency, "latency");
  check_number(l.bandwidth, "bandwidth");
  require(is_bandwidth(l.bandwidth), "bandwidth must be 0 (unlimited) or at least {}, got {}",
          kLeastBandwidth, l.bandwidth);
}

// Checks a number of values: one per worker of one pipeline or of all pipelines, one for all, or no
// value.
void check_count(std::size_t count, const Schedule& s, int pipelines, const char* what) {
  const std::size_t workers = s.workers.size();
  require(count == 0 || count == 1 || count == workers || count == workers * pipelines,
          "{}: {} numbers for {} workers; give 1, {} or none", what, count, workers * pipelines,
          workers);
}

}  // namespace

double unit_us(const Costs&) { return 1000; }

const StageCost& stage_cost(const Costs& costs, int model_stage, int pipeline) {
  if (costs.stages.size() == 1) return costs.stages[0];
  const std::size_t before = costs.cuts.empty() ? 0 : pipeline * costs.cuts.front().size();
  return costs.stages[before + model_stage];
}

namespace {

// Adds a share of a stage's or block's cost to a sum. bytes_out is left to the caller, because it
// is that of the last part.
void add(StageCost& sum, const StageCost& part, double share) {
  sum.forward += part.forward * share;
  sum.input_grad += part.input_grad * share;
  sum.weight_grad += part.weight_grad * share;
  sum.recompute += part.recompute * share;
  sum.update += part.update * share;
  sum.activation_bytes += part.activation_bytes * share;
  sum.weight_bytes += part.weight_bytes * share;
  sum.gradient_bytes += part.gradient_bytes * share;
  sum.feed_bytes += part.feed_bytes * share;
  sum.reduce_grad += part.reduce_grad * share;
  // blocks run one after the other
  sum.working_bytes = std::max(sum.working_bytes, part.working_bytes);
  sum.curvature.factors += part.curvature.factors * share;
  sum.curvature.inversion += part.curvature.inversion * share;
  sum.curvature.precondition += part.curvature.precondition * share;
  sum.curvature.saved_bytes += part.curvature.saved_bytes * share;
  sum.curvature.factor_bytes += part.curvature.factor_bytes * share;
}

constexpr const char* kAddBlocks =
    "add \"blocks\" to the costs, the costs of the model's parts, from which any number of stages "
    "is cut";

constexpr StageCost kNothing{.forward = 0, .input_grad = 0, .weight_grad = 0};

// Sums the blocks of each stage. `first` holds the first block of each stage.
std::vector<StageCost> stages_of_blocks(const std::vector<BlockCost>& blocks,
                                        const std::vector<int>& first) {
  const int stages = static_cast<int>(first.size());
  std::vector<StageCost> sums(stages, kNothing);
  for (int s = 0; s < stages; ++s) {
    const int end = s + 1 < stages ? first[s + 1] : static_cast<int>(blocks.size());
    for (int b = first[s]; b < end; ++b) add(sums[s], blocks[b].cost, 1);
    sums[s].bytes_out = blocks[end - 1].cost.bytes_out;
  }
  return sums;
}

// Returns the weights by which blocks are cut: measured times, or the weights of training.
std::vector<double> weights_of(const Costs& costs, Partition::By by) {
  std::vector<double> weights;
  for (const BlockCost& b : costs.blocks)
    weights.push_back(by == Partition::By::Times
                          ? b.cost.forward + b.cost.input_grad + b.cost.weight_grad
                          : b.weight);
  return weights;
}

// Splits stages evenly: stage i of n is the part [i / n, (i + 1) / n) of the model. Only a uniform
// model can be cut inside its stages, because nothing tells which part of a stage is expensive.
std::vector<StageCost> even_stages(const std::vector<StageCost>& stages, int wanted) {
  const auto there = static_cast<std::int64_t>(stages.size());
  const bool uniform = std::all_of(stages.begin(), stages.end(),
                                   [&](const StageCost& c) { return c == stages.front(); });
  require(uniform || there % wanted == 0,
          "costs of {} unequal stages do not fit {} stages, because stages are not divided; {}",
          there, wanted, kAddBlocks);
  std::vector<StageCost> sums(wanted, kNothing);
  for (std::int64_t s = 0; s < wanted; ++s) {
    for (std::int64_t old = 0; old < there; ++old) {
      const std::int64_t from = std::max(s * there, old * wanted);
      const std::int64_t to = std::min((s + 1) * there, (old + 1) * wanted);
      if (to <= from) continue;
      add(sums[s], stages[old], static_cast<double>(to - from) / wanted);
      sums[s].bytes_out = stages[old].bytes_out;
    }
  }
  return sums;
}

}  // namespace

std::vector<double> block_times(const std::string& path) {
  const Costs costs = read_costs(path);
  if (costs.blocks.empty())
    fail(Code::Config,
         "{}: the file has no costs of the model's blocks; give the trace of a run (--trace FILE), "
         "or costs with 'blocks'",
         path);
  return weights_of(costs, Partition::By::Times);
}

std::vector<int> blocks_per_stage(const Costs& costs, int stages) {
  if (costs.blocks.empty() || static_cast<int>(costs.stages.size()) == stages) return {};
  std::vector<int> first = balance_blocks(weights_of(costs, Partition::By::Operations), stages);
  first.push_back(static_cast<int>(costs.blocks.size()));
  for (int s = 0; s < stages; ++s) first[s] = first[s + 1] - first[s];
  first.pop_back();
  return first;
}

Costs recut(const Costs& costs, int stages) {
  require(stages >= 1, "a model needs at least 1 stage, got {}", stages);
  if (costs.per_worker || static_cast<int>(costs.stages.size()) == stages) return costs;
  Costs cut = costs;
  cut.stages =
      costs.blocks.empty()
          ? even_stages(costs.stages, stages)
          : stages_of_blocks(costs.blocks,
                             balance_blocks(weights_of(costs, Partition::By::Operations), stages));
  return cut;
}

Costs recut(const Costs& costs, const Partition& partition, const PipelineDevices& devices) {
  require(!costs.blocks.empty(),
          "--partition {}: there are no costs of the model's blocks; give --costs FILE with "
          "'blocks', or the trace of a run",
          to_text(partition));
  const std::vector<std::vector<int>> cuts =
      cut_pipelines(partition, weights_of(costs, partition.by), devices);
  Costs cut = costs;
  cut.per_worker = false;
  cut.cuts.clear();
  cut.stages = stages_of_blocks(costs.blocks, cuts.front());
  if (std::all_of(cuts.begin(), cuts.end(), [&](const auto& c) { return c == cuts.front(); }))
    return cut;
  cut.cuts = cuts;
  cut.stages.clear();
  for (const std::vector<int>& first : cuts)
    for (const StageCost& stage : stages_of_blocks(costs.blocks, first))
      cut.stages.push_back(stage);
  return cut;
}

void scale_samples(Costs& costs, double by) {
  const auto scale = [by](StageCost& c) {
    for (double* part : {&c.forward, &c.input_grad, &c.weight_grad, &c.recompute, &c.bytes_out,
                         &c.activation_bytes, &c.feed_bytes, &c.working_bytes, &c.curvature.factors,
                         &c.curvature.saved_bytes})
      *part *= by;
  };
  for (StageCost& c : costs.stages) scale(c);
  for (BlockCost& b : costs.blocks) scale(b.cost);
}

namespace {

// Returns the number of factors of a placement's stage. All factors count as equally expensive.
double factors_of(const Schedule& schedule, int placement) {
  const auto& layers = schedule.lowering.factor_layers;
  return layers.empty() ? 2 : 2.0 * std::max(1, layers[schedule.placements[placement].model_stage]);
}

}  // namespace

double instr_time(const Costs& costs, const Schedule& schedule, const Instr& instr, int pipeline) {
  if (instr.stage < 0) return 0;
  const StageCost& c = stage_cost(costs, schedule.placements[instr.stage].model_stage, pipeline);
  const double chunk = costs.per_worker ? 1.0 / schedule.chunks : 1.0;
  const double half = schedule.half_micros ? 0.5 : 1.0;
  switch (instr.kind) {
    case Kind::Forward:
      return c.forward * chunk;
    case Kind::Backward:
      return (c.input_grad + c.weight_grad) * chunk * half;
    case Kind::InputGrad:
      return c.input_grad * chunk * half;
    case Kind::WeightGrad:
      return c.weight_grad * chunk * half;
    case Kind::Recompute:
      return c.recompute * chunk * half;
    case Kind::Update:
      return c.update;
    case Kind::CurvatureA:
    case Kind::CurvatureB:
      return c.curvature.factors * chunk / factors_of(schedule, instr.stage);
    case Kind::InvertA:
    case Kind::InvertB:
      return c.curvature.inversion * chunk / factors_of(schedule, instr.stage);
    case Kind::Precondition:
      return c.curvature.precondition * chunk;
    default:
      return 0;
  }
}

void check_stage_count(const Costs& costs, int model_stages) {
  const auto there = static_cast<int>(costs.stages.size());
  require(there == 1 || there == model_stages,
          "costs of {} stages do not fit a plan of {} model stages; give {} or one for all, or {}",
          there, model_stages, model_stages, kAddBlocks);
}

namespace {

void check_stages(const Costs& costs, std::size_t stages, int pipelines) {
  if (costs.cuts.empty()) return check_stage_count(costs, static_cast<int>(stages));
  require(static_cast<int>(costs.cuts.size()) == pipelines,
          "costs of {} differently cut pipelines do not fit a plan of {} pipelines",
          costs.cuts.size(), pipelines);
  for (const std::vector<int>& cut : costs.cuts)
    require(cut.size() == stages,
            "costs of a pipeline cut into {} stages do not fit a plan of {} stages", cut.size(),
            stages);
  require(costs.stages.size() == stages * pipelines,
          "costs of {} stages do not fit {} differently cut pipelines of {} stages",
          costs.stages.size(), pipelines, stages);
}

}  // namespace

void check_costs(const Costs& costs, const Schedule& schedule, int pipelines) {
  check_stages(costs, model_stages(schedule), pipelines);
  for (const StageCost& c : costs.stages) check_stage(c);
  check_link(costs.link);
  const int workers = static_cast<int>(schedule.workers.size()) * pipelines;
  for (const LinkCost& l : costs.pairs) {
    check_link(l);
    require(l.from >= 0 && l.to >= 0 && l.from < workers && l.to < workers,
            "link from worker {} to {}: the workers are 0…{}", l.from, l.to, workers - 1);
  }
  check_number(costs.allreduce, "all-reduce time");
  check_number(costs.reduce_scalars, "time of the scalar sum");
  check_count(costs.speed.size(), schedule, pipelines, "speed");
  for (const double s : costs.speed)
    require(std::isfinite(s) && s >= kLeastSpeed && s <= kMostSpeed,
            "speed must be a finite number from {} to {}, got {}", kLeastSpeed, kMostSpeed, s);
  check_count(costs.memory_limit.size(), schedule, pipelines, "memory limit");
  for (const double b : costs.memory_limit) check_number(b, "memory limit");
}

}  // namespace hetu
