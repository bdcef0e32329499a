// Placement of inversions and their gathers, after it is known when factors are complete.
#include <algorithm>
#include <limits>
#include <utility>

#include "pipeline/fill/bubbles.h"

namespace hetu {

// Posts gathers after all other work of a step.
void Bubbles::post_at_end(const Unit& unit, int step) {
  for (Instr i : unit.members) {
    i.kind = Kind::Gather;
    const std::size_t w = worker_of(i);
    const Spot last = {gaps_[w].size() - 1, std::numeric_limits<double>::infinity()};
    steps_[step].placed[w].push_back({last, false, i});
  }
}

// Returns the rounds of inversions. Rounds of the last model stage come first, because its factors
// are complete first.
std::vector<Bubbles::Unit> Bubbles::rounds() const {
  std::map<std::pair<int, int>, Unit> by_round;  // by descending model stage, then by round
  for (int stage = 0; stage < static_cast<int>(step_.placements.size()); ++stage) {
    for (int round = 0; round < reductions_.rounds(stage); ++round) {
      Unit& unit = by_round[{-step_.placements[stage].model_stage, round}];
      unit.members.push_back({.part = static_cast<std::int16_t>(round), .stage = stage});
      const auto [first, end] = reductions_.layers_of(stage, round);
      for (int layer = first; layer < end; ++layer)
        unit.ready = std::max(unit.ready, whole_.at({stage, layer}));
    }
  }
  std::vector<Unit> units;
  for (auto& [at, unit] : by_round) {
    for (const Instr& i : unit.members) {
      std::size_t after = 0;
      const auto [first, end] = reductions_.layers_of(i.stage, i.part);
      for (int layer = first; layer < end; ++layer)
        after = std::max(after, gap_in(unit.ready.step, i.stage, layer));
      unit.after.push_back(after);
    }
    units.push_back(std::move(unit));
  }
  std::stable_sort(units.begin(), units.end(),
                   [](const Unit& a, const Unit& b) { return a.ready.step < b.ready.step; });
  return units;
}

// Places both inverses of a layer, for all copies, in one step. Otherwise a gradient could meet
// half of a refresh, or a copy of a stage could multiply by inverses that another copy doesn't have
// yet.
bool Bubbles::invert(Unit& unit, int number) {
  Step& step = steps_[number];
  const bool at_once = number == unit.ready.step;
  struct Before {
    std::size_t worker;
    std::vector<Gap> gaps;
    std::size_t placed;
  };
  std::vector<Before> before;
  std::vector<std::size_t> after(unit.members.size(), 0);
  double end = 0;
  for (std::size_t k = 0; k < unit.members.size(); ++k) {
    Instr a = unit.members[k];
    a.kind = Kind::InvertA;
    if (reductions_.inverted_layer(a, 0) < 0) continue;
    Instr b = a;
    b.kind = Kind::InvertB;
    const std::size_t w = worker_of(a);
    before.push_back({w, step.gaps[w], step.placed[w].size()});
    Spot spot;
    if (at_once) spot = {unit.after[k], unit.ready.at};
    const std::size_t before_gap = unit.end.empty() ? kNoGap : unit.end[k];
    if (!place(number, a, spot, before_gap) || !place(number, b, spot, before_gap)) {
      for (auto old = before.rbegin(); old != before.rend(); ++old) {
        step.gaps[old->worker] = std::move(old->gaps);
        step.placed[old->worker].resize(old->placed);
      }
      return false;
    }
    after[k] = spot.gap;
    end = std::max(end, spot.at);
  }
  unit.after = std::move(after);
  unit.ready = {number, end};
  return true;
}

void Bubbles::force(const Unit& unit) {
  for (Instr i : unit.members) {
    for (const Kind kind : {Kind::InvertA, Kind::InvertB}) {
      i.kind = kind;
      if (reductions_.inverted_layer(i, 0) >= 0) force(i);
    }
  }
}

// Moves a round to the next cycle, before that cycle's pieces for the same layers. The step is the
// one with the first of these pieces, or an earlier one.
bool Bubbles::wrap(Unit& unit) {
  int last = 0;
  for (const Instr& i : unit.members) {
    const auto [first, end] = reductions_.layers_of(i.stage, i.part);
    for (int layer = first; layer < end; ++layer)
      last = std::max(last, begun_.at({i.stage, layer}).first);
  }
  for (int step = 0; step <= last; ++step)
    if (wrap(unit, step)) return true;
  return false;
}

bool Bubbles::wrap(Unit& unit, int number) {
  Unit early{unit.members, std::vector<std::size_t>(unit.members.size(), 0), {number, 0}, {}};
  for (const Instr& i : unit.members) {
    const auto [first, end] = reductions_.layers_of(i.stage, i.part);
    std::size_t gap = kNoGap;
    for (int layer = first; layer < end; ++layer) {
      const auto [step, at] = begun_.at({i.stage, layer});
      if (step < number) return false;
      if (step == number) gap = std::min(gap, at);
    }
    early.end.push_back(gap);
  }
  const Step before = steps_[number];
  bool fits = invert(early, number);
  if (fits && is_shared(early)) {
    post(early, {Kind::Gather}, /*if_hidden=*/false);
    for (std::size_t k = 0; k < early.members.size(); ++k)
      fits = fits && early.after[k] < early.end[k];
  }
  if (!fits) steps_[number] = before;
  return fits;
}

// Places all rounds. A round that doesn't fit into a new step's bubbles fits nowhere, and goes to
// the end of the last step.
void Bubbles::place_inversions() {
  std::vector<Unit> forced;
  for (Unit& unit : rounds()) {
    bool placed = false, alone = false, wrapped = false;
    const int first = unit.ready.step;
    for (int step = first; !placed && !alone; ++step) {
      const bool is_new = step == static_cast<int>(steps_.size());
      if (is_new && step >= before_wrapping_ && (wrapped = wrap(unit))) break;
      alone = is_new && step > first;
      step_at(step);
      placed = invert(unit, step);
    }
    if (wrapped) continue;
    if (!placed)
      forced.push_back(unit);
    else if (is_shared(unit))
      post(unit, {Kind::Gather}, /*if_hidden=*/false);
  }
  for (const Unit& unit : forced) force(unit);
  for (const Unit& unit : forced)
    if (is_shared(unit)) post_at_end(unit, static_cast<int>(steps_.size()) - 1);
}

}  // namespace hetu
