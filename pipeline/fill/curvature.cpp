// Builds a K-FAC cycle from the rows of one step. The rows of other steps are copies with larger
// micro-batch ids. With FillRule::After, a worker's row of the first step becomes, for 2
// micro-batches:
//
//   F0 F1 B0 B1 | CURVATURE_A.. CURVATURE_B.. | SYNC_A SYNC_B | INVERT_A INVERT_B | GATHER |
//   PRECONDITION | UPDATE
//
// With the other rules, class Bubbles distributes CURVATURE, SYNC, INVERT and GATHER over the
// bubbles of several steps. Every step has its PRECONDITION before the norm or the update.

#include "pipeline/fill/curvature.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "pipeline/fill/bubbles.h"
#include "pipeline/ir/reduction.h"

namespace hetu {
namespace {

using Row = std::vector<Instr>;

Instr of_layer(Kind kind, int stage, int layer, int micro = -1) {
  return {kind, false, static_cast<std::int16_t>(layer), stage, micro};
}

void check(const Schedule& step, const CurvatureOptions& how) {
  const char* found = !step.lowering.flush          ? "has no flush at the end of its step"
                      : step.steps != 1             ? "has several steps"
                      : step.half_micros            ? "splits backwards into half micro-batches"
                      : step.lowering.has_servers() ? "leaves its updates to servers"
                      : step.run_policy != RunPolicy::AsPlanned ? "is reordered at run time"
                                                                : nullptr;
  require(found == nullptr,
          "K-FAC needs a plan of one step with a flush, such as 1f1b, zb-h1 or chimera; '{}' {}",
          step.method, found);
  require(static_cast<int>(how.layers.size()) == model_stages(step),
          "layers with factors: expected {} numbers, one per model stage, got {}",
          model_stages(step), how.layers.size());
  require(std::any_of(how.layers.begin(), how.layers.end(), [](int n) { return n > 0; }) &&
              std::all_of(how.layers.begin(), how.layers.end(),
                          [](int n) { return n >= 0 && n <= INT16_MAX; }),
          "layers with factors: expected at least 0 on each stage, and more than 0 on one of them");
  require(how.every >= 1, "steps between two refreshes must be at least 1, got {}", how.every);
  require(how.slack >= 1, "slack must be at least 1, got {}", how.slack);
  for (const std::vector<int>& here : stages_by_worker(step)) {
    for (std::size_t k = 1; k < here.size(); ++k)
      require(step.placements[here[k]].model_stage != step.placements[here[k - 1]].model_stage,
              "'{}' has two copies of stage {} on one worker, but K-FAC sums factors over workers",
              step.method, step.placements[here[k]].model_stage);
  }
}

// Returns the position for work that needs complete gradients: before the norm or, without one,
// before the first update.
std::size_t end_of_step(const Row& row) {
  const auto at = std::find_if(row.begin(), row.end(), [](const Instr& i) {
    return i.kind == Kind::ReduceScalars || i.kind == Kind::Update;
  });
  return static_cast<std::size_t>(at - row.begin());
}

/// A step's rows, and their arrangement as a cycle.
class Cycle {
 public:
  Cycle(const Schedule& step, const CurvatureOptions& how)
      : how_(how), cycle_(step), stages_(stages_by_worker(step)) {
    check(step, how);
    cycle_.lowering.factor_layers = how.layers;
    const Reductions reductions(cycle_);
    for (int s = 0; s < static_cast<int>(cycle_.placements.size()); ++s)
      cycle_.lowering.owners |=
          how.makers == InverseMakers::Owners && reductions.syncs_factors(s) && layers(s) > 0;
    for (const Program& p : step.workers) rows_.push_back(unroll(p));
    for (std::size_t w = 0; w < rows_.size(); ++w)
      for (const int stage : stages_[w])
        require(layers(stage) == 0 || !micros(w, stage).empty(),
                "'{}' has a copy of stage {} that runs no micro-batch, so K-FAC can't compute its "
                "factors; use more micro-batches",
                step.method, step.placements[stage].model_stage);
  }

  Schedule after() {
    Bubbles::Extra first(rows_.size());
    const Reductions reductions(cycle_);
    for (std::size_t w = 0; w < rows_.size(); ++w) {
      Row work;
      for (const int stage : stages_[w]) {
        for (int layer = 0; layer < layers(stage); ++layer) {
          for (const Kind kind : {Kind::CurvatureA, Kind::CurvatureB})
            for (const int micro : micros(w, stage))
              work.push_back(of_layer(kind, stage, layer, micro));
        }
      }
      add_sums(w, reductions, work);
      add_inversions(w, reductions, work);
      first[w][end_of_step(rows_[w])] = std::move(work);
    }
    std::vector<Bubbles::Extra> steps(static_cast<std::size_t>(how_.every),
                                      Bubbles::Extra(rows_.size()));
    steps.front() = std::move(first);
    return laid_out(steps);
  }

  Schedule best(const Costs& costs) {
    Schedule made = in_bubbles(costs, Bubbles::kNoWrap);
    if (how_.rule == FillRule::Best) return made;
    Schedule wrapped = in_bubbles(costs, how_.every);
    if (wrapped.steps >= made.steps) return made;
    wrapped.lowering.wraps = wraps_work(wrapped);
    return wrapped;
  }

 private:
  Schedule in_bubbles(const Costs& costs, std::int64_t before_wrapping) {
    // A cycle step multiplies its gradients, so its bubbles are those of a row with PRECONDITION.
    const Schedule plain = laid_out({Bubbles::Extra(rows_.size())});
    Bubbles bubbles(plain, rows_, costs, how_.slack, before_wrapping);
    std::vector<Bubbles::Extra> steps = bubbles.fill(pieces());
    steps.resize(std::max(steps.size(), static_cast<std::size_t>(how_.every)),
                 Bubbles::Extra(rows_.size()));
    return laid_out(steps);
  }

  int layers(int stage) const { return how_.layers[cycle_.placements[stage].model_stage]; }

  std::vector<int> micros(std::size_t worker, int stage) const {
    std::vector<int> out;
    for (const Instr& i : rows_[worker])
      if (i.kind == Kind::Forward && i.stage == stage) out.push_back(i.micro);
    return out;
  }

  void add_sums(std::size_t w, const Reductions& reductions, Row& out) const {
    for (const int stage : stages_[w]) {
      if (!reductions.syncs_factors(stage)) continue;
      for (int layer = 0; layer < layers(stage); ++layer)
        for (const Kind kind : {Kind::SyncA, Kind::SyncB})
          out.push_back(of_layer(kind, stage, layer));
    }
  }

  // The gather of a round overlaps the inversions of the next one.
  void add_inversions(std::size_t w, const Reductions& reductions, Row& out) const {
    for (const int stage : stages_[w]) {
      for (int round = 0; round < reductions.rounds(stage); ++round) {
        for (const Kind kind : {Kind::InvertA, Kind::InvertB}) {
          const Instr i = of_layer(kind, stage, round);
          if (reductions.inverted_layer(i, 0) >= 0) out.push_back(i);
        }
        if (reductions.copies_sharing_inversions(stage) > 1)
          out.push_back(of_layer(Kind::Gather, stage, round));
      }
    }
  }

  // Returns, by worker, the pieces to place. They are ordered by micro-batch, so that the saved
  // tensors of a micro-batch are freed early.
  std::vector<Row> pieces() const {
    std::vector<Row> all(rows_.size());
    for (std::size_t w = 0; w < rows_.size(); ++w) {
      for (const int stage : stages_[w]) {
        for (const int micro : micros(w, stage)) {
          for (const Kind kind : {Kind::CurvatureA, Kind::CurvatureB})
            for (int layer = 0; layer < layers(stage); ++layer)
              all[w].push_back(of_layer(kind, stage, layer, micro));
        }
      }
    }
    return all;
  }

  // Concatenates the steps, each with its additional work inserted before the given indices.
  Schedule laid_out(const std::vector<Bubbles::Extra>& steps) const {
    Schedule s = cycle_;
    s.steps = static_cast<int>(steps.size());
    for (std::size_t w = 0; w < rows_.size(); ++w) {
      Row row;
      for (int k = 0; k < s.steps; ++k) {
        const std::size_t end = end_of_step(rows_[w]);
        for (std::size_t i = 0; i < rows_[w].size(); ++i) {
          if (const auto extra = steps[k][w].find(i); extra != steps[k][w].end())
            row.insert(row.end(), extra->second.begin(), extra->second.end());
          if (i == end) multiply(w, row);
          row.push_back(rows_[w][i]);
          if (row.back().micro >= 0) row.back().micro += k * s.micro_batches;
        }
      }
      s.workers[w] = {{}, {}, 0, 0, std::move(row)};
    }
    return s;
  }

  void multiply(std::size_t worker, Row& row) const {
    for (const int stage : stages_[worker])
      if (layers(stage) > 0) row.push_back({.kind = Kind::Precondition, .stage = stage});
  }

  const CurvatureOptions& how_;
  Schedule cycle_;
  std::vector<std::vector<int>> stages_;  // by worker
  std::vector<Row> rows_;                 // rows of one step
};

}  // namespace

Schedule with_curvature(const Schedule& step, const CurvatureOptions& how, const Costs& costs) {
  Cycle cycle(step, how);
  return how.rule == FillRule::After ? cycle.after() : cycle.best(costs);
}

std::vector<Schedule> steps_of(const Schedule& cycle) {
  require(holds(cycle, Kind::Precondition), "'{}' has no K-FAC work", cycle.method);
  std::vector<Schedule> steps(cycle.steps, cycle);
  const int micros = cycle.micro_batches;
  for (Schedule& s : steps) {
    s.steps = 1;
    for (Program& p : s.workers) p = {};
  }
  for (std::size_t w = 0; w < cycle.workers.size(); ++w) {
    int step = 0;
    const Row row = unroll(cycle.workers[w]);
    for (std::size_t i = 0; i < row.size(); ++i) {
      Instr instr = row[i];
      if (instr.micro >= 0)
        instr.micro -= (is_curvature(instr.kind) ? instr.micro / micros : step) * micros;
      steps[step].workers[w].drain.push_back(instr);
      const bool last =
          instr.kind == Kind::Update && (i + 1 == row.size() || row[i + 1].kind != Kind::Update);
      if (last && step + 1 < cycle.steps) ++step;
    }
  }
  return steps;
}

Schedule first_of(const Schedule& cycle) {
  Schedule first = cycle;
  first.lowering.wraps = false;
  const Reductions reductions(cycle);
  for (Program& p : first.workers) {
    const Row row = unroll(p);
    const std::vector<bool> before = reductions.of_cycle_before(row);
    p = {};
    for (std::size_t i = 0; i < row.size(); ++i)
      if (!before[i]) p.drain.push_back(row[i]);
  }
  return first;
}

bool feeds_factors(const Schedule& cycle, int step) {
  return any_instr(cycle, [&](const Instr& i) {
    return is_curvature(i.kind) && i.micro / cycle.micro_batches == step;
  });
}

}  // namespace hetu
