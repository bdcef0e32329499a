// Copies files with low priority, for uploads in the background of a training.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace hetu {

/// Copies files, each from its first path to its second, and syncs them. Blocks until all copies
/// are on disk.
///
/// The work runs in a thread with the lowest priority for processor and disk. It copies in chunks,
/// and waits until a chunk is on disk before it reads the next one. After each chunk it sleeps
/// twenty times as long as it has worked, and it leaves nothing in the page cache. Concurrent
/// compute therefore loses hardly any processor time or memory. Throws Io, naming the file.
void copy_behind(const std::vector<std::pair<std::string, std::string>>& files);

}  // namespace hetu
