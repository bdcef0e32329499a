#include <algorithm>
#include <numeric>

#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"
#include "pipeline/generate/row.h"

namespace hetu {
namespace {

// Returns the number of micro-batches among 0…all-1 that replica `replica` of `degree` runs.
int own_of(int all, int replica, int degree) {
  return all / degree + (all % degree > replica ? 1 : 0);
}

// Returns a row that begins with `ahead` forwards of the replica's own micro-batches and then runs
// a backward before each further forward. An UPDATE follows every `period` backwards; 0: no
// updates.
std::vector<Instr> row_of(int stage, int own, int first, int degree, int ahead, int period) {
  std::vector<Instr> row;
  for (int forward = 0, backward = 0; backward < own;) {
    if (forward < own && forward - backward < ahead) {
      row.push_back(forward_of(stage, first + degree * forward++));
      continue;
    }
    row.push_back(backward_of(stage, first + degree * backward++));
    if (period > 0 && backward % period == 0) row.push_back({.kind = Kind::Update, .stage = stage});
  }
  return row;
}

enum class Order : std::uint8_t { AllForwardsFirst, OneForwardOneBackward, WithoutFlush };

Schedule replicated(const char* method, const Sizes& sizes, Order order) {
  Schedule s = cyclic_stages(method, sizes);
  const bool runs_on = order == Order::WithoutFlush;
  if (runs_on) s.steps = sizes.steps;
  const int micros = sizes.micro_batches, all = total_micros(s);
  int cycle = 1;
  for (const int degree : sizes.replicas) cycle = std::lcm(cycle, degree);
  for (std::size_t i = 0; i < s.placements.size(); ++i) {
    const Placement& p = s.placements[i];
    const int degree = sizes.replicas[p.model_stage];
    const auto from = sizes.replicas.begin() + p.model_stage;
    const int workers = std::accumulate(from, sizes.replicas.end(), 0);
    const int own = own_of(all, p.replica, degree), id = static_cast<int>(i);
    // As many micro-batches in progress as there are workers from this stage on, shared by the
    // copies of this stage.
    const int ahead = order == Order::AllForwardsFirst ? own : (workers + degree - 1) / degree;
    const int period = runs_on ? micros / degree : 0;
    const std::vector<Instr> row = row_of(id, own, p.replica, degree, ahead, period);
    // A body raises its micro-batch ids by whole cycles, so that it has the same peers in each
    // repetition.
    s.workers[p.workers[0]] = order == Order::AllForwardsFirst ? Program{row, {}, 0, 0, {}}
                              : runs_on                        ? folded(row, 2 * period + 1, micros)
                                        : folded(row, 2 * cycle / degree, cycle);
    if (runs_on) s.most_versions = std::max(s.most_versions, ahead + 1);
  }
  return s;
}

}  // namespace

Schedule gpipe_replicated(const Sizes& sizes) {
  return replicated("gpipe", sizes, Order::AllForwardsFirst);
}

Schedule one_f_one_b_replicated(const Sizes& sizes) {
  return replicated("1f1b", sizes, Order::OneForwardOneBackward);
}

Schedule pipedream_replicated(const Sizes& sizes) {
  return replicated("pipedream", sizes, Order::WithoutFlush);
}

}  // namespace hetu
