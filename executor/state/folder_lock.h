// A lock on a folder that a job saves into, so that a second job can't save there at the same time.
// Used by checkpoint.cpp for each save, and by shared_folder.cpp for a whole training.
#pragma once
#include <string>

namespace hetu {

/// Locks a folder until the object is destroyed.
///
/// The lock is a lock of the operating system on the file `.hetu-lock` in the folder. It ends with
/// the process that holds it, however that process ends; a file that remains is unlocked and is
/// reused. The lock works across hosts if the file server supports locks (NFS 4, NFS 3 with lockd).
/// A file system without locks is used with a warning.
///
/// The holder writes the name of its job into the file shortly after it gets the lock. A process
/// that finds the folder locked waits up to two seconds for the name of its own job before it gives
/// up.
class FolderLock {
 public:
  /// Creates the folder if it does not exist. Shares the lock if this process, or another process
  /// of the same job, already holds the folder. `job` is the name of the job, "" if it has none.
  /// Throws Io if the folder can't be created or written, or if another job holds it. The message
  /// then names the process and host of the holder.
  explicit FolderLock(const std::string& folder, const std::string& job = "");
  /// Removes the file, and also the folder if it was created for the lock and is empty.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::string key_;  ///< key in the process's table of locks
};

}  // namespace hetu
