#include "pipeline/cost/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>

#include "base/error.h"
#include "pipeline/cost/limits.h"

namespace hetu {

std::vector<int> balance_blocks(const std::vector<double>& block_costs, int stages) {
  return *balance_blocks(block_costs, stages, {});
}

// Dynamic programming over prefixes of the chain. best[s][b] is the least possible cost of the most
// expensive of s stages over the first b blocks. cut[s][b] is the first block of the last of these
// stages.
std::optional<std::vector<int>> balance_blocks(const std::vector<double>& block_costs, int stages,
                                               const StageDevices& devices) {
  const int blocks = static_cast<int>(block_costs.size());
  require(stages >= 1 && stages <= blocks,
          "{} stages do not fit: the model's cut-points (hetu.cut) give {} block{}, so {} possible",
          stages, blocks, blocks == 1 ? "" : "s",
          blocks == 1 ? "one stage is" : fmt::format("1 to {} stages are", blocks));
  std::vector<double> before(blocks + 1, 0);
  for (int b = 0; b < blocks; ++b) before[b + 1] = before[b] + block_costs[b];
  const double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(blocks + 1, kNever));
  std::vector<std::vector<int>> cut(stages + 1, std::vector<int>(blocks + 1, 0));
  best[0][0] = 0;
  for (int s = 1; s <= stages; ++s) {
    const double speed = devices.speed.empty() ? 1 : devices.speed[s - 1];
    for (int b = s; b <= blocks; ++b) {
      for (int c = s - 1; c < b; ++c) {
        if (best[s - 1][c] == kNever || (devices.fits && !devices.fits(s - 1, c, b))) continue;
        const double cost = std::max(best[s - 1][c], (before[b] - before[c]) / speed);
        if (cost <= best[s][b]) {
          best[s][b] = cost;
          cut[s][b] = c;
        }
      }
    }
  }
  if (best[stages][blocks] == kNever) return std::nullopt;
  std::vector<int> first(stages);
  for (int s = stages, b = blocks; s > 0; --s) {
    b = cut[s][b];
    first[s - 1] = b;
  }
  return first;
}

Partition parse_partition(const std::string& text) {
  if (text == "operations") return {};
  if (text == "times") return {Partition::By::Times, {}};
  Partition partition{Partition::By::Blocks, {}};
  std::istringstream pipelines(text);
  for (std::string one; std::getline(pipelines, one, '/');) {
    std::vector<int>& blocks = partition.blocks.emplace_back();
    const OptionField list = {.name = "partition", .value = &blocks, .range = {.least = 1}};
    if (!one.empty()) read_field(list, one);
  }
  const auto is_empty = [](const std::vector<int>& blocks) { return blocks.empty(); };
  require(!partition.blocks.empty() && text.back() != '/' &&
              std::none_of(partition.blocks.begin(), partition.blocks.end(), is_empty),
          "expected operations, times, blocks per stage such as 3,5,2, or such a list per "
          "pipeline, 3,5,2/4,4,2; got '{}'",
          text);
  return partition;
}

std::string to_text(const Partition& partition) {
  if (partition.by != Partition::By::Blocks)
    return partition.by == Partition::By::Times ? "times" : "operations";
  std::string text;
  for (const std::vector<int>& blocks : partition.blocks)
    text += fmt::format("{}{}", text.empty() ? "" : "/", fmt::join(blocks, ","));
  return text;
}

void check_speeds(const PipelineDevices& devices) {
  const std::size_t stages = devices.stages, all = stages * devices.pipelines;
  const std::size_t count = devices.speed.size();
  require(count == 0 || count == 1 || count == stages || count == all,
          "--speed: {} numbers for {} workers; give 1, {} or {}", count, all, stages, all);
  for (const double s : devices.speed)
    require(std::isfinite(s) && s > 0, "--speed: each must be a finite number above 0, got {}", s);
}

std::vector<double> stage_speeds(const PipelineDevices& devices, int pipeline) {
  std::vector<double> speeds;
  const auto of = [&](int d, int stage) {
    const std::size_t worker = static_cast<std::size_t>(d) * devices.stages + stage;
    return devices.speed.empty() ? 1 : devices.speed[worker % devices.speed.size()];
  };
  for (int s = 0; s < devices.stages; ++s) {
    double slowest = of(pipeline, s);
    for (int d = 0; d < devices.pipelines && !devices.apart; ++d)
      slowest = std::min(slowest, of(d, s));
    speeds.push_back(slowest);
  }
  return speeds;
}

std::vector<std::vector<int>> explicit_cuts(const Partition& partition, int blocks,
                                            const PipelineDevices& devices) {
  const auto lists = static_cast<int>(partition.blocks.size());
  require(lists == 1 || lists == devices.pipelines,
          "--partition {}: {} lists for {} pipelines; give 1 list, or one per pipeline",
          to_text(partition), lists, devices.pipelines);
  std::vector<std::vector<int>> cuts;
  for (int d = 0; d < devices.pipelines; ++d) {
    const std::vector<int>& each = partition.blocks[lists == 1 ? 0 : d];
    require(static_cast<int>(each.size()) == devices.stages,
            "--partition {}: {} numbers for {} stages", to_text(partition), each.size(),
            devices.stages);
    const int sum = std::accumulate(each.begin(), each.end(), 0);
    require(sum == blocks, "--partition {}: {} blocks in total, but the model has {}",
            to_text(partition), sum, blocks);
    std::vector<int>& cut = cuts.emplace_back();
    for (int s = 0, first = 0; s < devices.stages; first += each[s++]) cut.push_back(first);
    require(devices.apart || cut == cuts.front(),
            "--partition {}: different lists per pipeline need hetpipe on at least 2 pipelines, "
            "which share weights through servers; give one list for all pipelines",
            to_text(partition));
  }
  return cuts;
}

std::vector<std::vector<int>> cut_pipelines(const Partition& partition,
                                            const std::vector<double>& costs,
                                            const PipelineDevices& devices) {
  check_speeds(devices);
  if (partition.by == Partition::By::Blocks)
    return explicit_cuts(partition, static_cast<int>(costs.size()), devices);
  std::vector<std::vector<int>> cuts;
  for (int d = 0; d < devices.pipelines; ++d)
    cuts.push_back(*balance_blocks(costs, devices.stages, {stage_speeds(devices, d), {}}));
  return cuts;
}

OptionField partition_field(Partition& partition) {
  const TextAccess access{
      [&partition] { return to_text(partition); },
      [&partition](const std::string& text) { partition = parse_partition(text); }};
  return {.name = "partition",
          .value = access,
          .argument = "HOW",
          .doc =
              "how the model is cut into stages: operations and times balance the stages by "
              "operations or by the times of blocks in --costs; a list such as 3,5,2 gives the "
              "blocks per stage, and 3,5,2/4,4,2 those of each pipeline of hetpipe",
          .otherwise = "operations, or a model's own cut"};
}

OptionField speed_field(std::vector<double>& speed) {
  return {.name = "speed",
          .value = &speed,
          .argument = "LIST",
          .doc = "relative speed of each worker, such as 1,1,0.5; 0.5 is half as fast",
          .range = {kLeastSpeed, kMostSpeed},
          .otherwise = "1 each"};
}

}  // namespace hetu
