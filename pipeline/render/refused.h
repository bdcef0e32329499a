// A plan that verify refuses, as far as it can be drawn: what of it runs, and where it is wrong.
#pragma once
#include <string>
#include <vector>

#include "pipeline/cost/cost.h"
#include "pipeline/render/render.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {

/// A line of a diagnosis: "  worker 1 at step 3: 1B0" or "  worker 1 never runs 1B0".
struct DiagnosedPlace {
  int worker = 0;
  int step = -1;  ///< index in the worker's row; -1: the line names none
  std::string text;
};

/// The places that the lines of a Plan error name, in their order; none for a message of one line.
std::vector<DiagnosedPlace> diagnosed_places(const std::string& diagnosis);

/// What runs of a refused plan, and its diagnosis as marks.
struct RefusedRun {
  TimelineRowSet set;
  std::vector<Mark> marks;  ///< of row set 0
};

/// Runs the refused plan as far as it goes and marks what its diagnosis names: the instruction
/// where it ran, else the point where its row stopped (there it stands as an event without length).
/// Cells that cannot be run at all (doubled, on a wrong worker, unknown) are left out first. Throws
/// Plan if nothing of it can be run: placements that are none.
RefusedRun run_refused(const Schedule& plan, const std::string& diagnosis, const Costs& costs,
                       SimulateOptions run);

}  // namespace hetu
