// Functions that the CSV and the JSON reader share. Private to plan_csv.cpp, plan_json.cpp and
// torch_csv.cpp.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/ir/plan_file.h"

namespace hetu {

/// Appends the instructions of one cell: one instruction, or two for an overlap pair. An empty cell
/// and torch's runtime actions, such as UNSHARD, add no instruction. Throws InvalidArgument.
void parse_cell(std::string_view cell, std::vector<Instr>& out);

/// Returns the cell of an instruction, or of a pair if it runs as one with `next`.
std::string to_cell(const Instr& instr, const Instr* next);

/// Guesses Lowering::flush for a file that doesn't state it. Returns true if the rows hold updates
/// and instructions that lowering adds, and no compute follows an update. Plans with PUSH have no
/// flush. Plans with PRECONDITION always have one.
bool ends_in_flush(const Schedule& schedule);

/// Fills in what follows from the rows and the facts: placements if there are none, sizes, chunks,
/// and the options that lowering must have had. Throws Config.
void complete_plan(Schedule& schedule, const PlanFacts& facts, const std::string& origin);

/// Applies PlanFacts::pair_semantics to the marked pairs. Throws Config.
void set_pairs(Schedule& schedule, const std::string& semantics, const std::string& origin);

/// Parses a plan in one of the two forms. Both throw Config, as read_plan().
Schedule parse_plan_csv(const std::string& text, const std::string& origin, const PlanFacts& facts);
Schedule parse_plan_json(const std::string& text, const std::string& origin,
                         const PlanFacts& facts);

}  // namespace hetu
