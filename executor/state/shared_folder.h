// Whether all workers see one folder, asked before a training that will save there.
#pragma once
#include <string>

#include "executor/comm/transport.h"

namespace hetu {

/// Every worker calls it, with the same folder, which need not exist yet. Worker 0 puts an empty
/// file beside or into it for a moment, where the job has several hosts. Throws Io on all of them,
/// in the same words, if a worker does not see it. Blocks.
void check_shared_folder(const std::string& folder, comm::Transport& transport);

}  // namespace hetu
