// Files of recorded timelines in the format of Chimera's and PipeFisher's scripts, and files of
// work orders in the format that they read.
#pragma once
#include <string>
#include <vector>

#include "pipeline/fill/fill.h"

namespace hetu {

/// Reads the last iteration of a recorded timeline. The file is a JSON object or a pickled
/// dictionary that maps labels to lists of [start, end] in ns. An entry is null if nothing was
/// recorded. `start_end` has one entry per iteration. Throws Io for a file that can't be read, has
/// another format, or has lists of the wrong length.
NodeTimeline read_timeline(const std::string& path);

/// Writes the labels in order, per node and iteration. Writes a pickle if the path ends in .pickle
/// or .pkl, and JSON otherwise. Throws Io.
void write_orders(const std::string& path, const std::vector<FilledNode>& nodes);

}  // namespace hetu
