// Plans as flags and files of other systems: Megatron-LM, torch.distributed.pipelining, torchtitan,
// DeepSpeed, and a list of devices. `hetu plan --export` writes them. docs/plan.md names the
// versions of these systems.
#pragma once
#include <string>
#include <vector>

#include "pipeline/planner/exported_file.h"
#include "pipeline/planner/planner.h"

namespace hetu {

/// Returns the names of the systems, in the order of --help.
const std::vector<std::string>& export_systems();

/// Throws InvalidArgument for a name that is not one of these systems.
void check_systems(const std::vector<std::string>& names);

/// Returns the chosen plan as files of a system. `blocks_are` states what the blocks of the costs
/// are (parse_model_blocks); only Megatron-LM and torchtitan need it. Throws InvalidArgument as
/// check_systems(), if the answer has no plan, and if the system can't run the plan; the message
/// then says which options lead to a plan that it can run.
std::vector<ExportedFile> exported(const std::string& system, const PlanAnswer& answer,
                                   const PlanRequest& request, const std::string& blocks_are);

}  // namespace hetu
