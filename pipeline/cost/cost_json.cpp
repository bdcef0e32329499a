// Writer of costs as JSON; cost_file.cpp reads it. Part of cost.h.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "pipeline/cost/cost.h"

namespace hetu {
namespace {

nlohmann::ordered_json stage_json(const StageCost& c, double chunk) {
  nlohmann::ordered_json out = {{"forward", c.forward * chunk},
                                {"input_grad", c.input_grad * chunk},
                                {"weight_grad", c.weight_grad * chunk},
                                {"recompute", c.recompute * chunk},
                                {"update", c.update},
                                {"bytes_out", c.bytes_out},
                                {"activation_bytes", c.activation_bytes},
                                {"weight_bytes", c.weight_bytes},
                                {"gradient_bytes", c.gradient_bytes},
                                {"feed_bytes", c.feed_bytes},
                                {"reduce_grad", c.reduce_grad}};
  if (c.working_bytes > 0) out["working_bytes"] = c.working_bytes;
  const CurvatureCost& k = c.curvature;
  if (k != CurvatureCost())
    out["curvature"] = {{"factors", k.factors},
                        {"inversion", k.inversion},
                        {"precondition", k.precondition},
                        {"saved_bytes", k.saved_bytes},
                        {"factor_bytes", k.factor_bytes}};
  return out;
}

}  // namespace

std::string to_json(const Costs& costs, const Schedule& schedule) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array(), pairs = stages, workers = stages;
  nlohmann::ordered_json blocks = stages;
  const double chunk = costs.per_worker ? 1.0 / schedule.chunks : 1.0;
  const int pipelines = std::max(1, static_cast<int>(costs.cuts.size()));
  for (int s = 0; s < model_stages(schedule) * pipelines; ++s) {
    const int per = model_stages(schedule);
    stages.push_back(stage_json(stage_cost(costs, s % per, s / per), chunk));
  }
  for (const BlockCost& b : costs.blocks) {
    blocks.push_back(stage_json(b.cost, 1));
    blocks.back()["weight"] = b.weight;
  }
  for (const LinkCost& l : costs.pairs)
    pairs.push_back(
        {{"from", l.from}, {"to", l.to}, {"latency", l.latency}, {"bandwidth", l.bandwidth}});
  for (std::size_t w = 0; w < std::max(costs.speed.size(), costs.memory_limit.size()); ++w)
    workers.push_back(
        {{"speed", w < costs.speed.size() ? costs.speed[w] : 1},
         {"memory_limit", w < costs.memory_limit.size() ? costs.memory_limit[w] : 0}});
  nlohmann::ordered_json out = {
      {"unit", "ms"},
      {"stages", stages},
      {"link",
       {{"latency", costs.link.latency}, {"bandwidth", costs.link.bandwidth}, {"pairs", pairs}}},
      {"allreduce", costs.allreduce},
      {"reduce_scalars", costs.reduce_scalars},
      {"workers", workers}};
  if (!costs.cuts.empty()) out["cuts"] = costs.cuts;
  if (!blocks.empty()) out["blocks"] = std::move(blocks);
  return out.dump();
}

}  // namespace hetu
