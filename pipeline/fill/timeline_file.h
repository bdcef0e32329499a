// Recorded timelines of nodes, as Chimera's and PipeFisher's scripts write them, and orders of work
// as these read them.
#pragma once
#include <string>
#include <vector>

#include "pipeline/fill/fill.h"

namespace hetu {

/// The last iteration of a recorded timeline: a JSON object or a pickled dictionary of lists of
/// [start, end] in ns, null where nothing was recorded, by label; `start_end` has an entry per
/// iteration. Throws Io for a file that cannot be read or is neither, or whose lists do not fit.
NodeTimeline read_timeline(const std::string& path);

/// Per node, per iteration, labels in order; as a pickle where the path ends in .pickle or .pkl,
/// else as JSON. Throws Io.
void write_orders(const std::string& path, const std::vector<FilledNode>& nodes);

}  // namespace hetu
