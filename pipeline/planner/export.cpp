#include "pipeline/planner/export.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/words.h"
#include "pipeline/planner/export_parts.h"

namespace hetu {
namespace {

struct System {
  const char* name;
  std::vector<ExportedFile> (*files)(const Exporting& e);
};

const std::vector<System>& systems() {
  static const std::vector<System> kSystems = {{"megatron", export_to_megatron},
                                               {"torch", export_to_torch},
                                               {"torchtitan", export_to_torchtitan},
                                               {"deepspeed", export_to_deepspeed},
                                               {"devices", export_devices}};
  return kSystems;
}

}  // namespace

const std::vector<std::string>& export_systems() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const System& s : systems()) names.emplace_back(s.name);
    return names;
  }();
  return kNames;
}

void check_systems(const std::vector<std::string>& names) {
  const std::vector<std::string>& known = export_systems();
  for (const std::string& name : names)
    require(std::find(known.begin(), known.end(), name) != known.end(),
            "--export {}: unknown system; known systems: {}", shortened(name),
            fmt::join(known, ", "));
}

std::vector<ExportedFile> exported(const std::string& system, const PlanAnswer& answer,
                                   const PlanRequest& request, const std::string& blocks_are) {
  check_systems({system});
  const auto row = std::find_if(systems().begin(), systems().end(),
                                [&](const System& s) { return system == s.name; });
  require(answer.best.has_value(), "--export {}: {}", system,
          answer.unfinished() ? "no plan was found before the search ended" : "no plan fits");
  return row->files({answer, request, blocks_are});
}

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
