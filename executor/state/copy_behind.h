// Files copied behind whatever computes: for uploads in the background of a training.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace hetu {

/// Copies files, each from its first path to its second, and syncs them; blocks until they stand.
/// The work is a thread's that stands behind all others for processor and disk, goes in pieces that
/// have left for the disk before the next one, rests in between twenty times as long as it works,
/// and leaves nothing in the page cache: what goes on meanwhile loses hardly any processor or
/// memory to it. Throws Io, naming the file.
void copy_behind(const std::vector<std::pair<std::string, std::string>>& files);

}  // namespace hetu
