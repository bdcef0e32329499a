#include "pipeline/render/refused.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace hetu {
namespace {

/// Returns the number after `word` in a line, or -1. Sets `end` to the position after the number.
int number_after(const std::string& line, const std::string& word, std::size_t& end) {
  const std::size_t at = line.find(word);
  if (at == std::string::npos) return -1;
  const char* from = line.data() + at + word.size();
  int value = -1;
  const auto read = std::from_chars(from, line.data() + line.size(), value);
  if (read.ec != std::errc()) return -1;
  end = read.ptr - line.data();
  return value;
}

/// A plan's rows as flat lists, from which cells can be removed. `steps` holds the original indices
/// of the remaining cells.
struct Rows {
  explicit Rows(const Schedule& plan) {
    for (const Program& program : plan.workers) {
      cells.push_back(unroll(program));
      steps.emplace_back(cells.back().size());
      for (std::size_t i = 0; i < cells.back().size(); ++i) steps.back()[i] = static_cast<int>(i);
    }
  }

  void take(int worker, int index) {
    auto& row = cells[worker];
    if (index > 0) row[index - 1].with_next = false;
    row.erase(row.begin() + index);
    steps[worker].erase(steps[worker].begin() + index);
  }

  void put_into(Schedule& plan) const {
    for (std::size_t w = 0; w < cells.size(); ++w) {
      plan.workers[w] = Program{};
      plan.workers[w].prologue = cells[w];
    }
  }

  std::vector<std::vector<Instr>> cells;
  std::vector<std::vector<int>> steps;
};

/// Returns the index of the instruction that a line names, or -1. Cells count from 1, and a pair
/// that runs as one is one cell.
int index_of(const DiagnosisLine& line, const std::vector<Instr>& row) {
  int cell = 1;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const bool is_second = i > 0 && row[i - 1].with_next;
    if (i > 0 && !is_second) ++cell;
    const bool is_named =
        !row[i].with_next || line.text.find(": " + to_string(row[i])) != std::string::npos;
    if (cell == line.cell && is_named) return static_cast<int>(i);
  }
  return -1;
}

/// Removes a cell so that the plan may run: the last one that the refusal names. Returns false if
/// it names none.
bool take_named(Rows& rows, const std::string& refusal) {
  const std::vector<DiagnosisLine> lines = diagnosis_lines(refusal);
  const auto named = std::find_if(lines.rbegin(), lines.rend(), [&](const DiagnosisLine& p) {
    return p.worker < static_cast<int>(rows.cells.size()) && index_of(p, rows.cells[p.worker]) >= 0;
  });
  if (named == lines.rend()) return false;
  rows.take(named->worker, index_of(*named, rows.cells[named->worker]));
  return true;
}

// The simulator refuses a plan with invalid cells and names them. They are removed one by one until
// the rest can be simulated.
std::vector<TraceEvent> events_of(Schedule& left, Rows& rows, const Costs& costs,
                                  const SimulateOptions& run) {
  while (true) {
    rows.put_into(left);
    try {
      return simulate(left, costs, run).events;
    } catch (const Error& e) {
      if (e.code() != Code::Plan || !take_named(rows, e.what())) throw;
    }
  }
}

bool ran(const TraceEvent& e, int worker, const Instr& i) {
  return e.worker == worker && e.kind == kind_name(i.kind) && e.stage == i.stage &&
         e.micro == i.micro && e.part == i.part;
}

/// Returns the mark for a diagnosed line. If its instruction has not run, adds an event without
/// length.
Mark mark_of(const DiagnosisLine& diagnosed, const std::vector<Instr>& row, bool left_out,
             std::vector<TraceEvent>& events) {
  Mark mark;
  mark.worker = diagnosed.worker;
  mark.text = diagnosed.text;
  mark.time_us = 0;
  const int length = static_cast<int>(row.size());
  const int named = index_of(diagnosed, row), known = named >= 0 ? named : length;
  for (const TraceEvent& e : events) {
    if (!left_out && known < length && ran(e, diagnosed.worker, row[known])) {
      mark.time_us = e.start_us + e.duration_us / 2;
      return mark;
    }
    const bool before = std::any_of(row.begin(), row.begin() + known,
                                    [&](const Instr& i) { return ran(e, diagnosed.worker, i); });
    if (before) mark.time_us = std::max(mark.time_us, e.start_us + e.duration_us);
  }
  if (known == length) return mark;
  const Instr& i = row[known];
  events.push_back({TraceSource::Predicted, diagnosed.worker, kind_name(i.kind), i.stage, i.micro,
                    i.part, 0, mark.time_us, 0});
  return mark;
}

}  // namespace

std::vector<DiagnosisLine> diagnosis_lines(const std::string& diagnosis) {
  std::vector<DiagnosisLine> lines;
  for (std::size_t at = diagnosis.find('\n'); at != std::string::npos;) {
    const std::size_t end = diagnosis.find('\n', at + 1);
    const std::string line = diagnosis.substr(at + 1, end - at - 1);
    at = end;
    std::size_t behind = 0, unused = 0;
    DiagnosisLine diagnosed;
    diagnosed.worker = number_after(line, "worker ", behind);
    if (diagnosed.worker < 0) continue;
    diagnosed.cell = number_after(line, " at cell ", unused);
    diagnosed.text = line.substr(std::min(line.size(), behind + 1));
    lines.push_back(std::move(diagnosed));
  }
  return lines;
}

RefusedRun run_refused(const Schedule& plan, const std::string& diagnosis, const Costs& costs,
                       SimulateOptions run) {
  run.events = true;
  run.partly = true;
  Schedule left = plan;
  const Rows whole(plan);
  Rows rows(plan);
  RefusedRun out;
  out.set.title = "as far as it runs";
  out.set.events = events_of(left, rows, costs, run);
  for (const DiagnosisLine& diagnosed : diagnosis_lines(diagnosis)) {
    if (diagnosed.worker >= static_cast<int>(whole.cells.size())) continue;
    const std::vector<Instr>& row = whole.cells[diagnosed.worker];
    const auto& kept = rows.steps[diagnosed.worker];
    const int named = index_of(diagnosed, row);
    const bool left_out = named >= 0 && !std::binary_search(kept.begin(), kept.end(), named);
    out.marks.push_back(mark_of(diagnosed, row, left_out, out.set.events));
  }
  add_inputs(out.set, left);
  return out;
}

}  // namespace hetu
