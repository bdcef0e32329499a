#include "pipeline/planner/export_parts.h"

#include <numeric>

#include "base/error.h"

namespace hetu {

ModelBlocks blocks_for(const Exporting& e, const char* system) {
  require(!e.blocks_are.empty(),
          "--export {} needs --blocks-are: embedding,layers,head if the first of the {} blocks is "
          "the embedding and the last one the head, or layers if all are transformer layers",
          system, e.blocks());
  return parse_model_blocks(e.blocks_are, e.blocks(), "--blocks-are");
}

std::vector<int> bounds_of(const PlanChoice& plan) {
  std::vector<int> bounds = plan.cut.first_block;
  bounds.push_back(static_cast<int>(plan.costs.blocks.size()));
  return bounds;
}

std::vector<int> workers_by_rank(const Exporting& e) {
  std::vector<int> workers;
  for (int stage = 0; stage < e.stages(); ++stage)
    for (int pipeline = 0; pipeline < e.pipelines(); ++pipeline)
      workers.push_back(e.plan().assignment[pipeline * e.stages() + stage]);
  return workers;
}

std::string heading(const Exporting& e, const char* system) {
  const std::string& unit = e.answer.time_unit;
  return fmt::format(
      "# Made by `hetu plan` for {}: {}.\n# Predicted step: {:.4g} {}. Processes: {} ({} x {}).\n",
      system, to_text(e.plan().configuration), e.plan().cut.step_time,
      unit.empty() ? "units" : unit, e.stages() * e.pipelines(), e.stages(), e.pipelines());
}

std::string further_arguments(const Exporting& e) {
  const std::vector<int> workers = workers_by_rank(e);
  std::vector<int> in_order(workers.size());
  std::iota(in_order.begin(), in_order.end(), 0);
  std::string text;
  if (e.pipelines() * e.stages() != e.request.machines.workers())
    text += fmt::format(" --pipelines {}", e.pipelines());
  if (workers != in_order) text += " --ranks " + listed(workers);
  return text;
}

std::string listed(const std::vector<int>& numbers) {
  return fmt::format("{}", fmt::join(numbers, ","));
}

}  // namespace hetu
