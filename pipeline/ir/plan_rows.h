// What the two readers of plans share. Part of plan_file; nobody else includes it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/ir/plan_file.h"

namespace hetu {

/// Appends the instructions of one cell: one, two for an overlap pair, none for what torch
/// writes of its own runtime and for an empty cell. Throws InvalidArgument.
void parse_cell(std::string_view cell, std::vector<Instr>& out);

/// The cell of an instruction; of a pair when it runs as one with `next`.
std::string to_cell(const Instr& instr, const Instr* next);

/// Of rows that do not say (Lowering::flush): whether they hold what lowering adds, and no compute
/// follows an update.
bool ends_in_flush(const Schedule& schedule);

/// Fills in what the rows and the facts tell: placements (if there are none), sizes, chunks, and
/// what lowering must have been told. Throws Config.
void complete_plan(Schedule& schedule, const PlanFacts& facts, const std::string& origin);

/// Pairs as `PlanFacts::pair_semantics` tells. Throws Config.
void set_pairs(Schedule& schedule, const std::string& semantics, const std::string& origin);

Schedule parse_plan_csv(const std::string& text, const std::string& origin, const PlanFacts& facts);
Schedule parse_plan_json(const std::string& text, const std::string& origin,
                         const PlanFacts& facts);

}  // namespace hetu
