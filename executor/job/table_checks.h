// What tables on parameter servers go with, asked before a training job starts. Read by train_plan.
#pragma once
#include <vector>

#include "executor/compile/served_tables.h"
#include "executor/job/train_options.h"
#include "executor/stage/optimizer.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// A job's tables on servers, and what they are trained with.
struct TableUse {
  const Graph& graph;
  const std::vector<ServedTable>& tables;
  const Schedule& one_step;
  const OptimizerConfig& optimizer;
};

/// Throws InvalidArgument: a method, an optimizer or an option that tables on servers do not go
/// with, or settings of their cache where there are none.
void check_tables(const TableUse& use, const TrainerOptions& options);

}  // namespace hetu
