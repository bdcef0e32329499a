// Figures of a plan that verify refuses: the part that runs, and marks where it is wrong.
#pragma once
#include <string>
#include <vector>

#include "pipeline/cost/cost.h"
#include "pipeline/render/render.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {

/// A line of a diagnosis: "  worker 1 at cell 3: 1B0" or "  worker 1 never runs 1B0".
struct DiagnosisLine {
  int worker = 0;
  int cell = -1;  ///< in the worker's row, counted from 1; -1: the line names no cell
  std::string text;
};

/// Returns the places that a Plan error names after its first line, in order. Returns none for a
/// message of one line.
std::vector<DiagnosisLine> diagnosis_lines(const std::string& diagnosis);

/// The part of a refused plan that runs, and its diagnosis as marks.
struct RefusedRun {
  TimelineRowSet set;
  std::vector<Mark> marks;  ///< marks of row set 0
};

/// Runs a refused plan as far as it goes and marks the places of its diagnosis. A mark is on the
/// instruction where it ran. If it did not run, the mark is where its row stopped, at an event
/// without length. Cells that can't be run at all (duplicates, cells on a wrong worker, unknown
/// cells) are removed first. Throws Plan if no part of the plan can be run, because its placements
/// are invalid.
RefusedRun run_refused(const Schedule& plan, const std::string& diagnosis, const Costs& costs,
                       SimulateOptions run);

}  // namespace hetu
