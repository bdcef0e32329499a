#include "executor/job/stage_memory.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text_file.h"

namespace hetu {
namespace {

using nlohmann::json;

void correct(std::vector<BlockCost>& blocks, std::size_t first, std::size_t end,
             const json& stage) {
  double weights = 0, activations = 0;
  for (std::size_t b = first; b < end; ++b) {
    weights += blocks[b].cost.weight_bytes;
    activations += blocks[b].cost.activation_bytes;
  }
  const double packed = stage.at("packed"), saved = stage.at("saved");
  for (std::size_t b = first; b < end; ++b) {
    StageCost& c = blocks[b].cost;
    if (weights > 0) c.weight_bytes += packed * c.weight_bytes / weights;
    if (activations > 0) c.activation_bytes *= std::max(1.0, saved / activations);
    c.working_bytes = stage.at("scratch");
  }
}

}  // namespace

std::string memory_json(const WorkerMemory& memory) {
  json out = json::array();
  for (const auto& [stage, m] : memory.stages)
    out.push_back({{"stage", stage},
                   {"packed", m.packed + m.rounded + m.buffers},
                   {"saved", m.saved + m.held},
                   {"scratch", m.scratch}});
  return out.dump();
}

void correct_memory(std::vector<BlockCost>& blocks, const std::vector<int>& first_block,
                    const std::vector<Trace>& workers) {
  std::vector<char> done(first_block.size(), 0);
  for (const Trace& worker : workers) {
    const json metadata = json::parse(bounded_json(worker.metadata_json, "a trace's metadata"));
    if (!metadata.is_object() || !metadata.contains("memory")) continue;
    for (const json& stage : metadata["memory"]) {
      const auto s = stage.at("stage").get<std::size_t>();
      if (s >= first_block.size() || done[s] != 0) continue;  // copies of a stage are alike
      done[s] = 1;
      const std::size_t end =
          s + 1 < first_block.size() ? static_cast<std::size_t>(first_block[s + 1]) : blocks.size();
      correct(blocks, static_cast<std::size_t>(first_block[s]), end, stage);
    }
  }
}

}  // namespace hetu
