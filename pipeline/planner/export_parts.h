// Parts that the exports of plans share. Read by export_….cpp only.
#pragma once
#include <string>
#include <vector>

#include "pipeline/planner/exported_file.h"
#include "pipeline/planner/model_blocks.h"
#include "pipeline/planner/planner.h"

namespace hetu {

/// A plan to export.
struct Exporting {
  const PlanAnswer& answer;
  const PlanRequest& request;
  const std::string& blocks_are;

  const PlanChoice& plan() const { return *answer.best; }
  const Sizes& sizes() const { return plan().configuration.sizes; }
  /// Number of workers of a pipeline.
  int stages() const { return static_cast<int>(plan().lowered.workers.size()); }
  int pipelines() const { return plan().configuration.pipelines; }
  int blocks() const { return static_cast<int>(plan().costs.blocks.size()); }
};

/// The exports to each system. Each throws InvalidArgument if the system can't run the plan.
std::vector<ExportedFile> export_to_megatron(const Exporting& e);
std::vector<ExportedFile> export_to_torch(const Exporting& e);
std::vector<ExportedFile> export_to_torchtitan(const Exporting& e);
std::vector<ExportedFile> export_to_deepspeed(const Exporting& e);
std::vector<ExportedFile> export_devices(const Exporting& e);

/// Returns the content of the blocks. Throws InvalidArgument if the user didn't state it.
ModelBlocks blocks_for(const Exporting& e, const char* system);

/// Returns the first block of each stage, and then the number of blocks.
std::vector<int> bounds_of(const PlanChoice& plan);

/// Returns the workers in the order of ranks by which Megatron-LM, DeepSpeed and torchtitan number
/// them: the ranks of a stage's pipelines follow each other.
std::vector<int> workers_by_rank(const Exporting& e);

/// Returns comment lines that name the plan, its predicted step and the number of processes. Each
/// begins with "# ".
std::string heading(const Exporting& e, const char* system);

/// Returns the arguments of --compare-with that import needs beyond the file, such as
/// " --pipelines 2 --ranks 1,0"; "" if the file is enough.
std::string further_arguments(const Exporting& e);

/// Returns numbers as "0,1,2".
std::string listed(const std::vector<int>& numbers);

}  // namespace hetu
