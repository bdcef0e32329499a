// A folder that a training will save into, looked at before its first step: one worker locks it,
// and all workers see it.
#pragma once
#include <memory>
#include <string>

#include "executor/state/folder_lock.h"
#include "net/transport/transport.h"

namespace hetu {

/// Every worker calls it, with the same folder, which need not exist yet. Worker 0 puts an empty
/// file beside or into it for a moment, where the job has several hosts. Throws Io on all of them,
/// in the same words, if a worker does not see it. Blocks.
void check_shared_folder(const std::string& folder, comm::Transport& transport);

/// Makes and locks the folder in worker 0, and checks that it can be written and that all workers
/// see it. Every worker calls it. Returns the lock in worker 0 and null in the others. `job`: as in
/// FolderLock. Throws Io on all workers, in the same words. Blocks.
std::unique_ptr<FolderLock> claim_folder(const std::string& folder, const std::string& job,
                                         comm::Transport& transport);

}  // namespace hetu
