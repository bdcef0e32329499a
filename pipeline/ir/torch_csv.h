// The CSV forms of torch.distributed.pipelining that differ from ours: rows that its runtime
// executes, and the names of kinds that PyTorch before 2.6 wrote.
#pragma once
#include <string>

#include "pipeline/ir/schedule.h"

namespace hetu {

/// Returns a lowered plan as PyTorch 2.6 and later executes it:
/// `_PipelineScheduleRuntime._load_csv(path, format="compute_comms")`. The rows are those of the
/// plan, with these differences. A receive may stand earlier, because PyTorch matches the messages
/// of two workers by their order. A WAIT_SEND stands after each send: after the backward that
/// answers it, or at the end of the row. REDUCE_GRAD and WAIT_REDUCE_GRAD stand after the last
/// backward of each stage; PyTorch scales gradients there. There is no UPDATE: the optimizer is the
/// caller's. UNSHARD and RESHARD of FSDP stages are left out. Throws InvalidArgument: the plan has
/// no messages, or it has what PyTorch's runtime lacks (recomputes, copies of a stage, several
/// steps, K-FAC, servers).
std::string to_torch_csv(const Schedule& lowered);

/// Returns a CSV text with the present names of kinds. PyTorch before 2.6 wrote BW for a whole
/// backward and B for the gradient of the input. A text with a BW cell is taken as such.
std::string with_present_names(std::string text);

/// The same for a text of that age that has no BW cell: if every B has a W of the same stage and
/// micro-batch and there is no I, every B becomes an I. In the present names such a plan would
/// compute each weight gradient twice.
void split_old_backwards(Schedule& schedule);

}  // namespace hetu
