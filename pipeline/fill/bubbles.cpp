// Places K-FAC's work in the bubbles of a simulated step, by first fit, in three passes:
//
// 1. place_pieces: curvature of each micro-batch and layer, per worker, into the first gap that is
//    long enough. In the first step, the gap must come after the computation that feeds the piece.
//    When a step is full, another step is opened.
// 2. place_sums: sums of factors over the copies of a stage, once all copies have all pieces.
// 3. place_inversions (bubbles_inversions.cpp): both inversions of a layer, by all copies in the
//    same step, then the gather of the inverses.
//
// For example, bubbles hold 3 units per step, and there are 7 pieces of one unit. Pieces 1-3 go
// into step 0, 4-6 into step 1 and 7 into step 2. The remaining 2 units of step 2 are for
// inversions. Work in a gap doesn't delay the step. The difficulty is in the collectives. If two of
// them share two or more workers, all these workers must post them in the same order. The gradient
// sums that the plan has already (spots_of) count, too.

#include "pipeline/fill/bubbles.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {
namespace {

constexpr int kMostSteps = 1 << 12;
constexpr double kRounding = 1e-9;  // share of the step that rounding of summed times may cause

}  // namespace

Bubbles::Bubbles(const Schedule& step, const std::vector<std::vector<Instr>>& rows,
                 const Costs& costs, double slack, std::int64_t before_wrapping)
    : step_(step),
      rows_(rows),
      costs_(costs),
      slack_(slack),
      before_wrapping_(before_wrapping),
      reductions_(step),
      timing_(step, costs, none_),
      gaps_(rows.size()),
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

// A worker idles between its computations. A gap begins after messages that the worker only posts,
// and ends before messages that it waits for. The last gap ends where preconditioning must begin so
// that it doesn't delay the update.
void Bubbles::find_gaps(std::size_t w, const Times& times) {
  const std::vector<Instr>& row = rows_[w];
  const auto add = [&](std::size_t before, double begin, double end) {
    Gap gap = {before, begin, begin, std::max(begin, end)};
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (row[i].kind != Kind::ReduceGrad) continue;
      const int stage = step_.placements[row[i].stage].model_stage;
      int& edge = i < before ? gap.posted : gap.open;
      edge = i < before ? std::min(edge, stage) : std::max(edge, stage);
    }
    gaps_[w].push_back(gap);
  };
  double busy_until = 0;
  std::size_t before = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (!is_compute(row[i].kind)) continue;
    if (row[i].kind == Kind::Forward) made_at_[w][{true, row[i].stage, row[i].micro}] = i;
    if (row[i].kind == Kind::Backward || row[i].kind == Kind::InputGrad)
      made_at_[w][{false, row[i].stage, row[i].micro}] = i;
    const auto [start, end] = times.at({kind_name(row[i].kind), row[i].stage, row[i].micro});
    add(before, busy_until, start);
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
  add(before, busy_until, update - multiplied);
}

void Bubbles::begin_step() {
  require(
      steps_.size() < kMostSteps,
      "K-FAC's work needs the bubbles of more than {} steps; use the rule 'after', or costs with "
      "larger bubbles",
      kMostSteps);
  const std::size_t workers = rows_.size();
  steps_.push_back(
      {gaps_, std::vector<std::vector<Placed>>(workers), std::vector<Floor>(workers), 0});
}

Bubbles::Step& Bubbles::step_at(int number) {
  while (static_cast<int>(steps_.size()) <= number) begin_step();
  return steps_[number];
}

// In the first step, a piece must follow the computation that makes its input.
bool Bubbles::is_made(std::size_t worker, const Gap& gap, const Instr& piece) const {
  if (!is_curvature(piece.kind)) return true;
  const bool inputs = piece.kind == Kind::CurvatureA;
  return made_at_[worker].at({inputs, piece.stage, piece.micro}) < gap.before;
}

bool Bubbles::place(int number, const Instr& instr, Spot& spot, std::size_t end) {
  const double time = time_of(instr);
  const std::size_t worker = worker_of(instr);
  Step& step = steps_[number];
  for (std::size_t g = spot.gap; g < std::min(end, gaps_[worker].size()); ++g) {
    Gap& gap = step.gaps[worker][g];
    const double at = std::max(gap.at, spot.at);
    if (at + time * slack_ > gap.end * (1 + kRounding)) continue;
    if (number == 0 && !is_made(worker, gap, instr)) continue;
    gap.at = at + time;
    step.placed[worker].push_back({{g, at}, time > 0, instr});
    spot = {g, gap.at};
    return true;
  }
  return false;
}

// Puts the instruction at the end of the newest step, which becomes longer.
void Bubbles::force(const Instr& instr) {
  const std::size_t worker = worker_of(instr);
  Gap& last = steps_.back().gaps[worker].back();
  steps_.back().placed[worker].push_back({{gaps_[worker].size() - 1, last.at}, true, instr});
  last.at += time_of(instr);
}

// Returns, for each member, the first position at which all members have their inputs, at the same
// time for all. The time is common because an inversion waits for all sums that its worker has
// posted before. Two collectives that share more than one member must be posted in the same order
// by all of them. Therefore K-FAC's collectives keep the order of their placement, and all members
// post them after the gradient sums of the same model stages: of the stages from the second result
// on.
std::pair<std::vector<Bubbles::Spot>, int> Bubbles::spots_of(const Unit& unit,
                                                             const Step& step) const {
  const std::size_t members = unit.members.size();
  std::vector<Spot> spots(members);
  int stage = kNoStage;
  double at = unit.ready.at;
  for (std::size_t k = 0; k < members; ++k) {
    const Floor& floor = step.floor[worker_of(unit.members[k])];
    spots[k].gap = std::max(floor.spot.gap, unit.after[k]);
    at = std::max(at, floor.spot.at);
    if (members > 1) stage = std::min(stage, floor.stage);
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t k = 0; k < members; ++k) {
      const std::vector<Gap>& gaps = gaps_[worker_of(unit.members[k])];
      std::size_t& g = spots[k].gap;
      while (g + 1 < gaps.size() && (gaps[g].end < at || (members > 1 && gaps[g].open >= stage)))
        ++g;
      moved = moved || gaps[g].begin > at || (members > 1 && gaps[g].posted < stage);
      at = std::max(at, gaps[g].begin);
      if (members > 1) stage = std::min(stage, gaps[g].posted);
    }
  }
  for (Spot& spot : spots) spot.at = at;
  return {spots, stage};
}

// Posts sums and gathers. With `if_hidden`, posts them only if they end before gradients are
// multiplied, because the multiplication waits for them.
bool Bubbles::post(Unit& unit, const std::vector<Kind>& kinds, bool if_hidden) {
  Step& step = step_at(unit.ready.step);
  const auto [spots, stage] = spots_of(unit, step);
  double posted = step.network_free, time = 0;
  double multiplied = std::numeric_limits<double>::infinity();
  for (std::size_t k = 0; k < spots.size(); ++k) {
    posted = std::max(posted, spots[k].at);
    multiplied = std::min(multiplied, gaps_[worker_of(unit.members[k])].back().end);
  }
  for (const Kind kind : kinds) {
    Instr i = unit.members[0];
    i.kind = kind;
    time += timing_.collective(i);
  }
  if (if_hidden && posted + time > multiplied * (1 + kRounding)) return false;
  for (std::size_t k = 0; k < spots.size(); ++k) {
    const std::size_t w = worker_of(unit.members[k]);
    step.floor[w] = {spots[k], stage};
    unit.after[k] = spots[k].gap;
    for (const Kind kind : kinds) {
      Instr i = unit.members[k];
      i.kind = kind;
      step.placed[w].push_back({spots[k], false, i});
    }
  }
  unit.ready.at = step.network_free = posted + time;
  return true;
}

void Bubbles::place_pieces(std::vector<std::vector<Instr>> open) {
  const auto is_open = [&] {
    return std::any_of(open.begin(), open.end(), [](const auto& list) { return !list.empty(); });
  };
  while (is_open()) {
    begin_step();
    const int step = static_cast<int>(steps_.size()) - 1;
    bool any = false;
    const auto note = [&](const Instr& piece, const Spot& end) {
      const std::pair layer{piece.stage, static_cast<int>(piece.part)};
      const std::pair first{step, end.gap};
      auto& begun = begun_.try_emplace(layer, first).first->second;
      begun = std::min(begun, first);
      Moment& whole = whole_[layer];
      whole = std::max(whole, Moment{step, end.at, end.gap});
    };
    for (std::vector<Instr>& list : open) {
      std::vector<Instr> later;
      for (const Instr& piece : list) {
        Spot end;
        if (!place(step, piece, end)) {
          later.push_back(piece);
          continue;
        }
        note(piece, end);
        any = true;
      }
      list = std::move(later);
    }
    // Nothing fits a whole step: the remaining pieces are longer than every gap and extend the
    // step.
    if (any || step == 0) continue;
    for (std::vector<Instr>& list : open) {
      for (const Instr& piece : std::exchange(list, {})) {
        force(piece);
        const std::size_t w = worker_of(piece);
        note(piece, {gaps_[w].size() - 1, steps_[step].gaps[w].back().at});
      }
    }
  }
}

std::vector<Bubbles::Unit> Bubbles::sums() const {
  std::map<std::pair<int, int>, Unit> by_layer;  // by model stage and layer
  for (const auto& [at, moment] : whole_) {
    const auto [stage, layer] = at;
    if (!reductions_.syncs_factors(stage)) continue;
    Unit& unit = by_layer[{step_.placements[stage].model_stage, layer}];
    unit.members.push_back({.part = static_cast<std::int16_t>(layer), .stage = stage});
    unit.ready = std::max(unit.ready, moment);
  }
  std::vector<Unit> units;
  for (auto& [at, unit] : by_layer) {
    for (const Instr& i : unit.members)
      unit.after.push_back(gap_in(unit.ready.step, i.stage, i.part));
    units.push_back(std::move(unit));
  }
  std::stable_sort(units.begin(), units.end(),
                   [](const Unit& a, const Unit& b) { return a.ready < b.ready; });
  return units;
}

// Returns the gap of a placement in which a layer's factors are complete, or 0 if that is in
// another step.
std::size_t Bubbles::gap_in(int step, int stage, int layer) const {
  const Moment& whole = whole_.at({stage, layer});
  return whole.step == step ? whole.gap : 0;
}

// Posts each sum as soon as all copies have all pieces. A sum that would not end in that step is
// posted at the beginning of the next one.
void Bubbles::place_sums() {
  for (Unit& unit : sums()) {
    const std::vector<Kind> kinds = {Kind::SyncA, Kind::SyncB};
    if (!post(unit, kinds, /*if_hidden=*/true)) {
      unit.ready = {unit.ready.step + 1, 0};
      unit.after.assign(unit.members.size(), 0);
      post(unit, kinds, /*if_hidden=*/false);
    }
    for (std::size_t k = 0; k < unit.members.size(); ++k)
      whole_[{unit.members[k].stage, unit.members[k].part}] = {unit.ready.step, unit.ready.at,
                                                               unit.after[k]};
  }
}

// Instructions that take no time of the worker go before those that begin at the same moment.
Bubbles::Extra Bubbles::extra_of(const Step& step) const {
  Extra extra(rows_.size());
  for (std::size_t w = 0; w < rows_.size(); ++w) {
    std::vector<Placed> placed = step.placed[w];
    std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
      return std::tie(a.spot.gap, a.spot.at, a.lasts) < std::tie(b.spot.gap, b.spot.at, b.lasts);
    });
    for (const Placed& p : placed) extra[w][gaps_[w][p.spot.gap].before].push_back(p.instr);
  }
  return extra;
}

std::vector<Bubbles::Extra> Bubbles::fill(std::vector<std::vector<Instr>> pieces) {
  place_pieces(std::move(pieces));
  place_sums();
  place_inversions();
  std::vector<Extra> all;
  for (const Step& step : steps_) all.push_back(extra_of(step));
  return all;
}

}  // namespace hetu
