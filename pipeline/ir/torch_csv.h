// The CSV forms of torch.distributed.pipelining that differ from Hetu's: the rows that its runtime
// executes, and the names of kinds that PyTorch before 2.6 wrote.
#pragma once
#include <string>

#include "pipeline/ir/schedule.h"

namespace hetu {

/// Returns a lowered plan in the form that PyTorch 2.6 and later executes:
/// `_PipelineScheduleRuntime._load_csv(path, format="compute_comms")`. The rows are those of the
/// plan, with these differences:
/// - A receive may stand earlier, because PyTorch matches the messages of two workers by their
///   order.
/// - Each send of an activation has a WAIT_SEND after the backward of its stage and micro-batch.
///   All other sends have theirs at the end of the row.
/// - REDUCE_GRAD and WAIT_REDUCE_GRAD stand after the last backward of each stage; PyTorch scales
///   gradients there.
/// - There is no UPDATE: the caller owns the optimizer.
/// - UNSHARD and RESHARD of FSDP stages are left out.
///
/// Throws InvalidArgument if the plan has no messages, or if it has something that PyTorch's
/// runtime lacks: recomputes, copies of a stage, half micro-batches, several steps, K-FAC, weight
/// averaging or servers.
std::string to_torch_csv(const Schedule& lowered);

/// Returns the CSV text with Hetu's names of kinds. PyTorch before 2.6 wrote BW for a whole
/// backward and B for the gradient of the input. A text is taken to be of that age if it has a BW
/// cell.
std::string with_present_names(std::string text);

/// Converts a plan of that age whose text has no BW cell. If every B has a W of the same stage and
/// micro-batch and there is no I, every B becomes an I. Without the conversion such a plan would
/// compute each weight gradient twice.
void split_old_backwards(Schedule& schedule);

}  // namespace hetu
