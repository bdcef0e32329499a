// Cutting a chain of blocks into stages: the one rule of training, simulations and costs.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"

namespace hetu {

/// What stages may differ in.
struct StageDevices {
  std::vector<double> speed = {};  ///< by stage; empty: all 1
  /// Whether a stage may have the blocks from `first` up to `end`; null: any may.
  std::function<bool(int stage, int first, int end)> fits = {};
};

/// First block of each stage such that the most expensive stage costs as little as possible; of
/// equal cuts, the one whose later stages are the lighter. Throws InvalidArgument, naming both
/// numbers, unless 1 <= stages <= blocks.
std::vector<int> balance_blocks(const std::vector<double>& block_costs, int stages);

/// The same where a stage of half the speed takes twice as long. Nothing if no cut fits.
std::optional<std::vector<int>> balance_blocks(const std::vector<double>& block_costs, int stages,
                                               const StageDevices& devices);

/// Where pipelines are to be cut, as told: by operations, by the measured times of blocks, or as
/// many blocks per stage as it says, for all pipelines or for each.
struct Partition {
  enum class By { Operations, Times, Blocks };
  By by = By::Operations;
  std::vector<std::vector<int>> blocks;  ///< of By::Blocks: 1 list, or one per pipeline
};

/// "operations", "times", "3,5,2" or "3,5,2/4,4,2". Throws InvalidArgument.
Partition parse_partition(const std::string& text);
std::string to_text(const Partition& partition);

/// The devices that pipelines of `stages` stages stand on.
struct PipelineDevices {
  int stages = 1;
  int pipelines = 1;
  /// Of each worker: one for all, those of one pipeline, or of all, pipeline by pipeline; empty:
  /// all 1.
  std::vector<double> speed = {};
  bool apart = false;  ///< each pipeline may be cut in its own way
};

/// Throws InvalidArgument: numbers of speeds that do not fit, or not above 0.
void check_speeds(const PipelineDevices& devices);

/// What the stages of a pipeline are cut for: its own devices or, where all are cut alike, each
/// stage's slowest.
std::vector<double> stage_speeds(const PipelineDevices& devices, int pipeline);

/// The first block of each stage as told by numbers of blocks. Throws InvalidArgument: other
/// numbers of stages, pipelines or blocks; cuts that differ where `apart` is false.
std::vector<std::vector<int>> told_cuts(const Partition& told, int blocks,
                                        const PipelineDevices& devices);

/// First block of each stage, by pipeline; alike ones as often as there are pipelines. `costs` are
/// of blocks, by what the partition goes by. Throws InvalidArgument.
std::vector<std::vector<int>> cut_pipelines(const Partition& partition,
                                            const std::vector<double>& costs,
                                            const PipelineDevices& devices);

/// --partition and --speed, of whoever cuts pipelines.
OptionField partition_field(Partition& partition);
OptionField speed_field(std::vector<double>& speed);

}  // namespace hetu
