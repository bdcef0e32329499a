// Checks a folder that a training will save into, before the first step: one worker locks it, and
// all workers can see it.
#pragma once
#include <memory>
#include <string>

#include "executor/state/folder_lock.h"
#include "net/transport/transport.h"

namespace hetu {

/// Checks that all workers see the folder, which need not exist yet. Collective: every worker calls
/// it with the same folder. If the job has several hosts, worker 0 creates an empty file for a
/// moment, in the folder or in its nearest existing parent. Throws the same Io error on all workers
/// if a worker does not see the file. Blocks.
void check_shared_folder(const std::string& folder, comm::Transport& transport);

/// Creates and locks the folder in worker 0, and checks that it is writable and that all workers
/// see it. Collective: every worker calls it. Returns the lock in worker 0 and null in the others.
/// `job` is as in FolderLock. Throws the same Io error on all workers, also for the folder of a
/// saved model. Blocks.
std::unique_ptr<FolderLock> claim_folder(const std::string& folder, const std::string& job,
                                         comm::Transport& transport);

}  // namespace hetu
