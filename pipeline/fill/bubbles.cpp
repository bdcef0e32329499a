#include "pipeline/fill/bubbles.h"

#include <algorithm>
#include <tuple>

#include "graph/base/error.h"
#include "pipeline/cost/timing.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {
namespace {

constexpr int kMostSteps = 1 << 12;
constexpr double kRounding = 1e-9;  // of the step, by which sums of times may be off

}  // namespace

Bubbles::Bubbles(const Schedule& step, const std::vector<std::vector<Instr>>& rows,
                 const Costs& costs, double slack)
    : step_(step),
      rows_(rows),
      costs_(costs),
      slack_(slack),
      bubbles_(rows.size()),
      made_at_(rows.size()) {
  SimulateOptions options;
  options.events = true;
  const double unit = unit_us(costs);
  std::vector<Times> times(rows.size());
  for (const TraceEvent& e : simulate(step, costs, options).events) {
    if (e.worker >= static_cast<int>(rows.size())) continue;  // other pipelines do the same
    times[e.worker][{e.kind, e.stage, e.micro}] = {e.start_us / unit,
                                                   (e.start_us + e.duration_us) / unit};
  }
  for (std::size_t w = 0; w < rows.size(); ++w) find_gaps(w, times[w]);
}

double Bubbles::time_of(const Instr& instr) const { return instr_time(costs_, step_, instr); }

// Between what a worker computes it idles: before what it waits for there, and behind what it only
// posts. The last gap ends where multiplying must begin for the update to come no later.
void Bubbles::find_gaps(std::size_t w, const Times& times) {
  const std::vector<Instr>& row = rows_[w];
  double busy_until = 0;
  std::size_t before = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (!is_compute(row[i].kind)) continue;
    if (row[i].kind == Kind::Forward) made_at_[w][{true, row[i].stage, row[i].micro}] = i;
    if (row[i].kind == Kind::Backward || row[i].kind == Kind::InputGrad)
      made_at_[w][{false, row[i].stage, row[i].micro}] = i;
    const auto [start, end] = times.at({kind_name(row[i].kind), row[i].stage, row[i].micro});
    if (start > busy_until) bubbles_[w].push_back({before, busy_until, start});
    busy_until = std::max(busy_until, end);
    before = i + 1;
    while (before < row.size() && (is_send(row[before].kind) || row[before - 1].with_next ||
                                   row[before].kind == Kind::ReduceGrad))
      ++before;
  }
  double update = 0, multiplied = 0;
  for (const auto& [what, time] : times) {
    const std::string& kind = std::get<0>(what);
    if (kind == kind_name(Kind::Update)) update = std::max(update, time.first);
    if (kind == kind_name(Kind::Precondition)) multiplied += time.second - time.first;
  }
  bubbles_[w].push_back({before, busy_until, std::max(busy_until, update - multiplied)});
}

void Bubbles::begin_step() {
  require(
      steps_.size() < kMostSteps,
      "K-FAC's work needs the bubbles of more than {} steps: refresh by another rule (after), or "
      "give costs whose bubbles hold more",
      kMostSteps);
  steps_.emplace_back(rows_.size());
  left_.push_back(bubbles_);
}

// In the first step a piece follows what it reads.
bool Bubbles::is_made(std::size_t worker, const Gap& gap, const Instr& piece) const {
  if (!is_curvature(piece.kind)) return true;
  const bool inputs = piece.kind == Kind::CurvatureA;
  return made_at_[worker].at({inputs, piece.stage, piece.micro}) < gap.before;
}

bool Bubbles::place(std::size_t worker, int step, const Instr& instr, double ready, double* end) {
  const double time = time_of(instr);
  for (Gap& gap : left_[step][worker]) {
    const double at = std::max(gap.at, ready);
    if (at + time * slack_ > gap.end * (1 + kRounding)) continue;
    if (step == 0 && !is_made(worker, gap, instr)) continue;
    gap.at = *end = at + time;
    steps_[step][worker][gap.before].push_back(instr);
    return true;
  }
  return false;
}

// At the end of the newest step, which becomes longer.
void Bubbles::force(std::size_t worker, const Instr& instr) {
  const Gap& last = left_.back()[worker].back();
  steps_.back()[worker][last.before].push_back(instr);
}

void Bubbles::place_pieces(const std::vector<Work>& work) {
  std::vector<std::vector<Instr>> open;
  for (const Work& w : work) open.push_back(w.pieces);
  const auto is_open = [&] {
    return std::any_of(open.begin(), open.end(), [](const auto& list) { return !list.empty(); });
  };
  while (is_open()) {
    begin_step();
    const int step = static_cast<int>(steps_.size()) - 1;
    bool any = false;
    const auto note = [&](const Instr& piece, double end) {
      Place& p = whole_[{piece.stage, piece.part}];
      if (step > p.step || end > p.end) p = {step, end};
    };
    for (std::size_t w = 0; w < open.size(); ++w) {
      std::vector<Instr> later;
      for (const Instr& piece : open[w]) {
        double end = 0;
        if (!place(w, step, piece, 0, &end)) {
          later.push_back(piece);
          continue;
        }
        note(piece, end);
        any = true;
      }
      open[w] = std::move(later);
    }
    if (any || step == 0) continue;
    for (std::size_t w = 0; w < open.size(); ++w) {
      for (const Instr& piece : std::exchange(open[w], {})) {
        force(w, piece);
        note(piece, left_[step][w].back().end);
      }
    }
  }
}

// At the beginning of the step after that in which the last copy is done, so that they run beside
// it, by all copies in one order.
void Bubbles::place_sums(const std::vector<Work>& work) {
  std::map<std::pair<int, int>, int> step_of;  // by model stage and layer
  const auto key = [&](int stage, int layer) {
    return std::pair(step_.placements[stage].model_stage, layer);
  };
  for (const auto& [at, place] : whole_) {
    int& step = step_of[key(at.first, at.second)];
    step = std::max(step, place.step + 1);
  }
  for (std::size_t w = 0; w < work.size(); ++w) {
    std::map<int, std::vector<Instr>> sums;  // by step
    for (const auto& [stage, layer] : work[w].summed) {
      for (const Kind kind : {Kind::SyncA, Kind::SyncB})
        sums[step_of.at(key(stage, layer))].push_back(
            {kind, false, static_cast<std::int16_t>(layer), stage, -1});
    }
    for (const auto& [step, list] : sums) {
      while (static_cast<int>(steps_.size()) <= step) begin_step();
      std::vector<Instr>& first = steps_[step][w][0];
      first.insert(first.begin(), list.begin(), list.end());
    }
  }
  // Whole once those before it at that step are, too.
  const Stragglers none;
  const Timing timing(step_, costs_, none);
  for (std::size_t w = 0; w < work.size(); ++w) {
    std::map<int, double> until;  // by step
    for (const auto& [stage, layer] : work[w].summed) {
      const int step = step_of.at(key(stage, layer));
      const Instr sum{Kind::SyncA, false, static_cast<std::int16_t>(layer), stage, -1};
      until[step] += 2 * timing.collective(sum);
      whole_[{stage, layer}] = {step, until[step]};
    }
  }
}

// Both inverses of a layer in one step: no gradient meets half of a refresh.
bool Bubbles::invert(std::size_t worker, int step, const Instr& a, double ready) {
  Instr b = a;
  b.kind = Kind::InvertB;
  const Gaps gaps = left_[step][worker];
  const auto extra = steps_[step][worker];
  double end = 0;
  if (place(worker, step, a, ready, &end) && place(worker, step, b, end, &end)) return true;
  left_[step][worker] = gaps;
  steps_[step][worker] = extra;
  return false;
}

// What does not fit the bubbles of a step of its own fits none, and stands in the last one, of all
// workers in the same.
void Bubbles::place_inversions(const std::vector<Work>& work) {
  std::vector<std::pair<std::size_t, Instr>> forced;
  for (std::size_t w = 0; w < work.size(); ++w) {
    for (const Instr& a : work[w].inversions) {
      const Place whole = whole_.at({a.stage, a.part});
      bool placed = false, alone = false;
      for (int step = whole.step; !placed && !alone; ++step) {
        alone = step == static_cast<int>(steps_.size()) && step > whole.step;
        while (static_cast<int>(steps_.size()) <= step) begin_step();
        placed = invert(w, step, a, step == whole.step ? whole.end : 0);
      }
      if (placed) continue;
      for (const Kind kind : {Kind::InvertA, Kind::InvertB}) {
        Instr i = a;
        i.kind = kind;
        forced.emplace_back(w, i);
      }
    }
  }
  for (const auto& [w, i] : forced) force(w, i);
}

std::vector<Bubbles::Extra> Bubbles::fill(const std::vector<Work>& work) {
  place_pieces(work);
  place_sums(work);
  place_inversions(work);
  return std::move(steps_);
}

}  // namespace hetu
