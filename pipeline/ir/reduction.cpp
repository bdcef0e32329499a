// A reduction waits for the reductions that each member launched before it. If one worker launched
// reductions a, b and another one b, a, both would wait forever. in_order() therefore sorts by a
// key that depends only on the group of a reduction and not on the worker: descending model stage,
// then the buckets of the stage, then the tied pairs for which the stage is the lower one.
//
// Example for 3 model stages on one worker, with two pipelines and the pair (0, 2) tied:
//   2REDUCE_GRAD, 1REDUCE_GRAD, 0REDUCE_GRAD, 0REDUCE_GRAD:1
// The tied pair comes last because the gradient of stage 0, which it contains, is complete last.
#include "pipeline/ir/reduction.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"

namespace hetu {

void check_pipelines(const Schedule& schedule, const Lowering& how) {
  require(how.pipelines >= 1, "pipelines must be at least 1, got {}", how.pipelines);
  const bool waves = schedule.version_rule == VersionRule::Wave;
  require(how.pipelines == 1 || !waves || how.has_servers(),
          "'{}' on {} pipelines has weight versions by waves, so the pipelines must share weights "
          "through servers (sync method hetpipe), not by sums or averages at each update",
          schedule.method, how.pipelines);
  require(how.staleness() >= kAnyStaleness,
          "staleness must be at least 0 waves, or {} for any, got {}", kAnyStaleness,
          how.staleness());
  if (!how.has_servers() || waves) return;
  require(!schedule.lowering.flush,
          "servers need updates in the rows, but '{}' updates once per step after its flush; use "
          "sync method ps",
          schedule.method);
  require(schedule.version_rule == VersionRule::Newest && schedule.most_versions == 1,
          "servers take waves of updates, but '{}' has neither weight versions by waves nor a "
          "flush after each step",
          schedule.method);
  require(schedule.placements.size() == static_cast<std::size_t>(model_stages(schedule)),
          "'{}' has several copies of a stage in a pipeline, but servers take one gradient per "
          "stage and pipeline",
          schedule.method);
}

std::vector<std::vector<int>> stages_by_worker(const Schedule& s) {
  std::vector<std::vector<int>> of(s.workers.size());
  for (std::size_t i = 0; i < s.placements.size(); ++i)
    of[s.placements[i].workers[0]].push_back(static_cast<int>(i));
  for (auto& list : of) {
    std::sort(list.begin(), list.end(), [&](int a, int b) {
      const Placement &x = s.placements[a], &y = s.placements[b];
      return x.model_stage != y.model_stage ? x.model_stage > y.model_stage : a < b;
    });
  }
  return of;
}

Reductions::Reductions(const Schedule& schedule) : schedule_(schedule) {
  const Lowering& how = schedule.lowering;
  const int n = model_stages(schedule);
  check_pipelines(schedule, how);
  require(how.gradient_buckets.empty() || static_cast<int>(how.gradient_buckets.size()) == n,
          "gradient buckets: expected {} numbers, one per model stage, or none, got {}", n,
          how.gradient_buckets.size());
  require(how.factor_layers.empty() || static_cast<int>(how.factor_layers.size()) == n,
          "layers with factors: expected {} numbers, one per model stage, or none, got {}", n,
          how.factor_layers.size());
  require(!how.owners || (!how.averages() && !how.has_servers()),
          "the pipelines of '{}' share no gradients, so the copies of a stage can't divide "
          "inversions among owners of layers",
          schedule.method);
  copies_.assign(n, 0);
  const int per_placement = how.averages() || how.has_servers() ? 1 : how.pipelines;
  for (const Placement& p : schedule.placements) copies_[p.model_stage] += per_placement;
  parts_.resize(schedule.placements.size());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const int s = schedule.placements[i].model_stage;
    require(buckets(s) >= 1 && buckets(s) <= 1024,
            "gradient buckets of model stage {}: expected 1 to 1024, got {}", s, buckets(s));
    if (copies_[s] > 1)
      for (int b = 0; b < buckets(s); ++b) parts_[i].push_back(b);
  }
  for (std::size_t t = 0; t < how.tied.size(); ++t) {
    const StagePair& pair = how.tied[t];
    require(0 <= pair.first && pair.first < pair.second && pair.second < n,
            "tied stages ({}, {}): expected first < second, both below the number of model stages, "
            "{}",
            pair.first, pair.second, n);
    const int part = buckets(pair.first) + static_cast<int>(t);
    const std::vector<int> all = members(placement_of(schedule, pair.first, 0), part);
    // the only member adds both gradients itself
    if (static_cast<int>(all.size()) * per_placement < 2) continue;
    for (const int stage : all)
      parts_[stage].push_back(buckets(schedule.placements[stage].model_stage) +
                              static_cast<int>(t));
  }
  scalars_ = how.reduce_scalars;
}

int Reductions::buckets(int model_stage) const {
  const auto& list = schedule_.lowering.gradient_buckets;
  return list.empty() ? 1 : list[model_stage];
}

std::vector<Instr> Reductions::in_order(const std::vector<int>& stages) const {
  // sorted by (-model stage, -1 for a bucket or else the tied pair)
  std::vector<std::pair<std::pair<int, int>, Instr>> sums;
  for (const int stage : stages) {
    for (const int part : parts_[stage]) {
      const int s = schedule_.placements[stage].model_stage, tie = part - buckets(s);
      const int lowest = tie < 0 ? s : schedule_.lowering.tied[tie].first;
      sums.push_back({{-lowest, std::max(tie, -1)},
                      {Kind::ReduceGrad, false, static_cast<std::int16_t>(part), stage, -1}});
    }
  }
  std::stable_sort(sums.begin(), sums.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Instr> found;
  for (const auto& [rank, sum] : sums) found.push_back(sum);
  return found;
}

bool Reductions::exists(int stage, int part) const {
  const int s = schedule_.placements[stage].model_stage, tie = part - buckets(s);
  if (tie < 0) return true;
  const auto& tied = schedule_.lowering.tied;
  return tie < static_cast<int>(tied.size()) && (tied[tie].first == s || tied[tie].second == s);
}

std::int64_t Reductions::group(int stage, int part) const {
  const int s = schedule_.placements[stage].model_stage;
  const int tie = part - buckets(s);
  if (tie >= 0) return -1 - tie;
  return static_cast<std::int64_t>(s) * 1024 + part;
}

// Groups of factors and inverses lie above those of all buckets, of which a model stage has at most
// 1024.
std::int64_t Reductions::group(const Instr& sum) const {
  if (!is_factor_exchange(sum.kind)) return group(sum.stage, sum.part);
  constexpr std::int64_t kFactors = std::int64_t{1} << 48, kInverses = kFactors << 1;
  const int layer = 2 * sum.part + (is_of_inputs(sum.kind) ? 0 : 1);
  return (sum.kind == Kind::Gather ? kInverses : kFactors) +
         schedule_.placements[sum.stage].model_stage * (std::int64_t{1} << 17) + layer;
}

std::vector<int> Reductions::members(const Instr& sum) const {
  return members(sum.stage, is_factor_exchange(sum.kind) ? 0 : sum.part);
}

int Reductions::factor_layers(int stage) const {
  const auto& layers = schedule_.lowering.factor_layers;
  return layers.empty() ? 0 : layers[schedule_.placements[stage].model_stage];
}

int Reductions::copies_sharing_inversions(int stage) const {
  return schedule_.lowering.owners ? copies_[schedule_.placements[stage].model_stage] : 1;
}

int Reductions::rounds(int stage) const {
  return (factor_layers(stage) + copies_sharing_inversions(stage) - 1) /
         copies_sharing_inversions(stage);
}

Reductions::Layers Reductions::layers_of(int stage, int round) const {
  const std::int64_t each = copies_sharing_inversions(stage), all = factor_layers(stage);
  const auto below = [&](std::int64_t layer) { return static_cast<int>(std::min(all, layer)); };
  return {below(round * each), below((round + 1) * each)};
}

int Reductions::inverted_layer(const Instr& inversion, int pipeline) const {
  const auto [first, end] = layers_of(inversion.stage, inversion.part);
  if (copies_sharing_inversions(inversion.stage) == 1) return first < end ? first : -1;
  const Placement& copy = schedule_.placements[inversion.stage];
  const int in_pipeline = copies_[copy.model_stage] / schedule_.lowering.pipelines;
  const int layer = first + pipeline * in_pipeline + copy.replica;
  return layer < end ? layer : -1;
}

std::vector<bool> Reductions::of_cycle_before(const std::vector<Instr>& row) const {
  std::set<std::pair<int, int>> begun;  // placement, layer
  std::vector<bool> before;
  for (const Instr& i : row) {
    if (is_curvature(i.kind)) begun.insert({i.stage, i.part});
    bool none = is_inversion(i.kind) || i.kind == Kind::Gather;
    if (none) {
      const auto [first, end] = layers_of(i.stage, i.part);
      for (int layer = first; layer < end; ++layer)
        none = none && begun.count({i.stage, layer}) == 0;
    }
    before.push_back(none);
  }
  return before;
}

bool wraps_work(const Schedule& schedule) {
  const Reductions reductions(schedule);
  return std::any_of(schedule.workers.begin(), schedule.workers.end(), [&](const Program& p) {
    const std::vector<bool> before = reductions.of_cycle_before(unroll(p));
    return std::find(before.begin(), before.end(), true) != before.end();
  });
}

std::vector<int> Reductions::members(int stage, int part) const {
  const int s = schedule_.placements[stage].model_stage;
  const int tie = part - buckets(s);
  const auto wanted = [&](int model_stage) {
    if (tie < 0) return model_stage == s;
    require(tie < static_cast<int>(schedule_.lowering.tied.size()),
            "model stage {} has no gradient part {}", s, part);
    const StagePair& pair = schedule_.lowering.tied[tie];
    return model_stage == pair.first || model_stage == pair.second;
  };
  // A worker that holds both stages of a tied pair adds their gradients itself. It takes part once,
  // with its lowest stage, because the gradient of that stage is complete last.
  std::vector<int> of_worker(schedule_.workers.size(), -1);
  for (std::size_t i = 0; i < schedule_.placements.size(); ++i) {
    const Placement& p = schedule_.placements[i];
    if (!wanted(p.model_stage)) continue;
    int& best = of_worker[p.workers[0]];
    if (best < 0 || p.model_stage < schedule_.placements[best].model_stage)
      best = static_cast<int>(i);
  }
  std::vector<int> found;
  for (const int id : of_worker)
    if (id >= 0) found.push_back(id);
  return found;
}

}  // namespace hetu
