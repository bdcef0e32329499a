#include "pipeline/generate/choose.h"

#include <algorithm>

#include "base/error.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {
namespace {

constexpr double kMib = 1 << 20;

// Returns the limit of a worker in bytes: the smaller of the one for all workers and its own, or 0
// if neither is set.
double byte_limit(const Sizes& sizes, int worker) {
  const std::vector<double>& of = costs_to_choose_by(sizes).memory_limit;
  const double own = of.empty() ? 0 : of[worker % of.size()];
  const double all = sizes.memory_bytes;
  return own > 0 && all > 0 ? std::min(own, all) : std::max(own, all);
}

}  // namespace

const Costs& costs_to_choose_by(const Sizes& sizes) {
  static const Costs kDefault;
  return sizes.costs != nullptr ? *sizes.costs : kDefault;
}

std::vector<ActivationLimit> activation_limits(const Schedule& placed, const Sizes& sizes,
                                               double otherwise) {
  const Costs& costs = costs_to_choose_by(sizes);
  check_costs(costs, placed, placed.lowering.pipelines);
  require(sizes.memory_limit == 0 || sizes.memory_limit >= 1,
          "memory limit must be at least 1 micro-batch, got {}", sizes.memory_limit);
  std::vector<ActivationLimit> limits;
  for (int w = 0; w < placed.stages; ++w) {
    ActivationLimit limit;
    limit.counted = sizes.memory_limit > 0 ? sizes.memory_limit : otherwise;
    double weights = 0, one = 0, largest = 0;  // `one`: one micro-batch on all stages of the worker
    for (const Placement& p : placed.placements) {
      if (p.workers[0] != w) continue;
      const StageCost& c = stage_cost(costs, p.model_stage);
      weights += c.weight_bytes;
      one += c.activation_bytes;
      largest = std::max(largest, c.activation_bytes);
    }
    const double bytes = byte_limit(sizes, w);
    if (bytes > 0) {
      require(bytes >= weights + one,
              "memory limit of {:.1f} MiB is too small: worker {} needs at least {:.1f} MiB for "
              "weights and one micro-batch",
              bytes / kMib, w, (weights + one) / kMib);
      // The number of micro-batches that fit in addition to the weights, by the largest of the
      // worker's stages.
      const double fit = (bytes - weights) / (largest * placed.chunks);
      if (largest > 0) limit.live = std::max(1.0, fit);
    }
    limits.push_back(limit);
  }
  return limits;
}

std::optional<Candidate> candidate(Schedule plan, const Sizes& sizes, double otherwise) {
  const Simulation run =
      simulate(sizes.with_recompute ? with_recompute(plan) : plan, costs_to_choose_by(sizes));
  const double most = sizes.memory_limit > 0 ? sizes.memory_limit : otherwise;
  for (int w = 0; w < plan.stages; ++w) {
    const WorkerTiming& worker = run.workers[w];
    const double bytes = byte_limit(sizes, w);
    if (worker.peak_activations > most + 1e-9) return std::nullopt;
    if (bytes > 0 && worker.peak_bytes > bytes) return std::nullopt;
  }
  return Candidate{std::move(plan), run.makespan, run.span};
}

}  // namespace hetu
