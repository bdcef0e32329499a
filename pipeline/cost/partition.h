// The cut of a chain of blocks into stages, by one rule for training, simulations and costs.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"

namespace hetu {

/// Properties in which the devices of stages may differ.
struct StageDevices {
  std::vector<double> speed = {};  ///< Speed by stage; empty: all 1.
  /// Returns true if a stage may have the blocks from `first` up to `end`; null: it may have any
  /// blocks.
  std::function<bool(int stage, int first, int end)> fits = {};
};

/// Returns the first block of each stage such that the most expensive stage costs as little as
/// possible. If several cuts are equal, it returns the one with the lighter later stages. Throws
/// InvalidArgument with both numbers unless 1 <= stages <= blocks.
std::vector<int> balance_blocks(const std::vector<double>& block_costs, int stages);

/// As above, for devices: a stage of half the speed takes twice as long. Returns nullopt if no cut
/// fits.
std::optional<std::vector<int>> balance_blocks(const std::vector<double>& block_costs, int stages,
                                               const StageDevices& devices);

/// The user's choice of cuts: by operations, by the measured times of blocks, or by explicit
/// numbers of blocks per stage, for all pipelines or for each.
struct Partition {
  enum class By { Operations, Times, Blocks };
  By by = By::Operations;
  std::vector<std::vector<int>> blocks;  ///< For By::Blocks: one list, or one per pipeline.
};

/// Parses "operations", "times", "3,5,2" or "3,5,2/4,4,2". Throws InvalidArgument.
Partition parse_partition(const std::string& text);
std::string to_text(const Partition& partition);

/// The devices that hold pipelines of `stages` stages.
struct PipelineDevices {
  int stages = 1;
  int pipelines = 1;
  /// Speed of the workers: one number for all, one per worker of a pipeline, or one per worker of
  /// all pipelines, pipeline by pipeline. Empty: all 1.
  std::vector<double> speed = {};
  bool apart = false;  ///< True if each pipeline may have its own cuts.
};

/// Checks the speeds. Throws InvalidArgument if their number doesn't fit, or if one is not above 0.
void check_speeds(const PipelineDevices& devices);

/// Returns the speeds by which the stages of a pipeline are cut: those of its own devices or, if
/// all pipelines have the same cuts, each stage's slowest.
std::vector<double> stage_speeds(const PipelineDevices& devices, int pipeline);

/// Returns the first block of each stage for explicit numbers of blocks, by pipeline. Throws
/// InvalidArgument if the numbers of stages, pipelines or blocks don't match, or if cuts differ
/// although `apart` is false.
std::vector<std::vector<int>> explicit_cuts(const Partition& partition, int blocks,
                                            const PipelineDevices& devices);

/// Returns the first block of each stage, by pipeline. Equal cuts are repeated for each pipeline.
/// `costs` are the costs of the blocks by the measure that the partition uses. Throws
/// InvalidArgument.
std::vector<std::vector<int>> cut_pipelines(const Partition& partition,
                                            const std::vector<double>& costs,
                                            const PipelineDevices& devices);

/// Returns the options --partition and --speed, for all programs that cut pipelines.
OptionField partition_field(Partition& partition);
OptionField speed_field(std::vector<double>& speed);

}  // namespace hetu
