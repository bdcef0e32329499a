// Checks of tables on parameter servers before a training job starts. Used by train_plan.
#pragma once
#include <vector>

#include "executor/compile/served_tables.h"
#include "executor/job/train_options.h"
#include "executor/stage/optimizer.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// A job's tables on servers, and the plan and optimizer that they are trained with.
struct TableUse {
  const Graph& graph;
  const std::vector<ServedTable>& tables;
  const Schedule& one_step;
  const OptimizerConfig& optimizer;
};

/// Throws InvalidArgument for a method, an optimizer or an option that does not support tables on
/// servers, and for cache settings in a job without such tables.
void check_tables(const TableUse& use, const TrainerOptions& options);

}  // namespace hetu
