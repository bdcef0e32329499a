// A lock on a folder that a job saves into, so that a second job can't save there at the same time.
// Read by checkpoint.cpp for each save, and by shared_folder.cpp for a whole training.
#pragma once
#include <string>

namespace hetu {

/// Holds a folder until it is destroyed. The lock is a lock of the operating system on the file
/// `.hetu-lock` in the folder, so it ends with the process that holds it, however that process
/// ends; the file then says nothing and is used again. It holds between the hosts of a file server
/// that has locks (NFS 4, NFS 3 with lockd). A file system without locks is used with a warning.
/// The file holds the name of the job, which comes a moment after the lock: a process that finds
/// the folder locked waits up to two seconds for the name of its own job before it gives up.
class FolderLock {
 public:
  /// Makes the folder if it is not there. Shares the lock if this process holds the folder already,
  /// or another process of the same job (`job` is its name, "" if it has none). Throws Io:
  /// the folder cannot be made or written, or another job holds it; then the message names its
  /// process and host.
  explicit FolderLock(const std::string& folder, const std::string& job = "");
  /// Removes the file, and the folder if it was made for the lock and nothing was put into it.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::string key_;  ///< in the table of this process
};

}  // namespace hetu
