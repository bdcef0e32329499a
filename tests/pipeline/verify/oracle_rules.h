// The oracle's rules that don't depend on the order of execution: contents, sums, updates,
// versions.
#pragma once
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "pipeline/ir/schedule.h"

namespace hetu::oracle {

using Rows = std::vector<std::vector<Instr>>;

/// A result: kind, stage, micro-batch, part. B is entered as I and as W.
using Key = std::tuple<Kind, int, int, int>;

struct RowPosition {
  int worker = 0;
  int index = 0;
};

struct Edge {
  int from = 0, to = 0, part = 0;
  bool crosses = false;
};

inline bool micro_level(Kind k) { return k <= Kind::RecvBackward; }
inline bool forward_id(Kind k) {
  return k == Kind::Forward || k == Kind::SendForward || k == Kind::RecvForward;
}

/// The plan as lists, and its errors that don't depend on the order.
class Facts {
 public:
  explicit Facts(const Schedule& schedule) : s(schedule) {
    for (const Program& p : s.workers) {
      std::vector<Instr>& row = rows.emplace_back(p.prologue);
      for (int r = 0; r < p.repeat; ++r)
        for (Instr i : p.body) {
          if (micro_level(i.kind)) i.micro += r * p.shift;
          row.push_back(i);
        }
      row.insert(row.end(), p.drain.begin(), p.drain.end());
    }
    for (const auto& row : rows)
      for (const Instr& i : row) {
        lowered |= is_send(i.kind) || is_recv(i.kind);
        updates |= i.kind == Kind::Update;
        reduces |= i.kind == Kind::ReduceGrad;
      }
    halves = s.half_micros ? 2 : 1;
    micros = s.micro_batches * s.steps;
    for (const Placement& p : s.placements) model = std::max(model, p.model_stage + 1);
    for (std::size_t a = 0; a < s.placements.size(); ++a)
      for (std::size_t b = 0; b < s.placements.size(); ++b) add_edges(int(a), int(b));
  }

  const Schedule& s;
  Rows rows;
  std::vector<Edge> edges;
  std::map<Key, RowPosition> at;
  bool lowered = false, updates = false, reduces = false;
  int halves = 1, micros = 0, model = 0;

  int worker(int stage) const { return s.placements[stage].workers[0]; }
  bool has(Kind k, int stage, int micro, int part = 0) const {
    return at.count({k, stage, micro, part}) > 0;
  }

  std::string contents() {
    for (std::size_t w = 0; w < rows.size(); ++w)
      for (std::size_t k = 0; k < rows[w].size(); ++k) {
        std::string wrong = enter(int(w), int(k));
        if (!wrong.empty()) return wrong;
      }
    std::int64_t wanted = 0;
    for (int m = 0; m < micros; ++m) {
      std::set<int> homes;
      for (std::size_t i = 0; i < s.placements.size(); ++i)
        if (has(Kind::Forward, int(i), m)) homes.insert(s.placements[i].replica);
      if (homes.size() != 1)
        return "a micro-batch in " + std::to_string(homes.size()) + " replicas";
      for (std::size_t i = 0; i < s.placements.size(); ++i)
        if (s.placements[i].replica == *homes.begin() && !complete(int(i), m, wanted))
          return "something of micro-batch " + std::to_string(m) + " is missing";
    }
    return wanted == std::int64_t(at.size()) ? "" : "more than is wanted";
  }

 private:
  void add_edges(int a, int b) {
    const Placement &from = s.placements[a], &to = s.placements[b];
    if (from.replica != to.replica) return;
    const bool crosses = from.workers[0] != to.workers[0];
    if (to.model_stage == from.model_stage + 1) edges.push_back({a, b, 0, crosses});
    for (std::size_t k = 0; k < s.lowering.extra_edges.size(); ++k) {
      const StagePair& e = s.lowering.extra_edges[k];
      if (e.first == from.model_stage && e.second == to.model_stage)
        edges.push_back({a, b, int(k) + 1, crosses});
    }
  }

  std::string enter(int w, int k) {
    const Instr& i = rows[w][k];
    if (i.kind != Kind::ReduceScalars &&
        (i.stage < 0 || i.stage >= int(s.placements.size()) || worker(i.stage) != w))
      return to_string(i) + " on the wrong worker";
    if (i.with_next) {
      if (k + 1 == int(rows[w].size())) return "a pair of one";
      const Instr& next = rows[w][k + 1];
      if (!is_compute(i.kind) || !is_compute(next.kind) || next.with_next) return "an odd pair";
    }
    if (!micro_level(i.kind)) return "";
    if (i.micro < 0 || i.micro >= micros * (forward_id(i.kind) ? 1 : halves))
      return to_string(i) + " of an unknown micro-batch";
    std::vector<Kind> kinds = {i.kind};
    if (i.kind == Kind::Backward) kinds = {Kind::InputGrad, Kind::WeightGrad};
    for (const Kind kind : kinds)
      if (!at.insert({{kind, i.stage, i.micro, i.part}, {w, k}}).second)
        return to_string(i) + " twice";
    return "";
  }

  // Adds the number of required and allowed instructions to `wanted`. Returns true if the required
  // ones are there.
  bool complete(int stage, int m, std::int64_t& wanted) const {
    bool whole = has(Kind::Forward, stage, m);
    ++wanted;
    for (int h = m * halves; h < (m + 1) * halves; ++h) {
      whole &= has(Kind::InputGrad, stage, h) && has(Kind::WeightGrad, stage, h);
      wanted += 2 + (has(Kind::Recompute, stage, h) ? 1 : 0);
    }
    for (const Edge& e : edges) {
      if (!lowered || !e.crosses || e.from != stage) continue;
      whole &= has(Kind::SendForward, e.from, m, e.part) && has(Kind::RecvForward, e.to, m, e.part);
      for (int h = m * halves; h < (m + 1) * halves; ++h)
        whole &=
            has(Kind::SendBackward, e.to, h, e.part) && has(Kind::RecvBackward, e.from, h, e.part);
      wanted += 2 + 2 * halves;
    }
    return whole;
  }
};

/// Checks reductions, updates and weight versions along each row, independent of the order.
class Steps {
 public:
  explicit Steps(const Facts& facts) : f(facts), s(facts.s) {
    for (std::size_t i = 0; i < s.placements.size(); ++i) {
      copies_[s.placements[i].model_stage] += pipelines_sharing_gradients();
      updates_[int(i)] = 0;
    }
  }

  /// Returns the identity of a reduction's group.
  std::string group(const Instr& i) const {
    if (i.kind == Kind::ReduceScalars) return "scalars";
    const int stage = s.placements[i.stage].model_stage, tie = i.part - buckets(stage);
    return tie < 0 ? std::to_string(stage) + "." + std::to_string(i.part)
                   : "tie " + std::to_string(tie);
  }

  std::set<int> members(const Instr& i) const {
    std::set<int> out;
    for (std::size_t w = 0; w < f.rows.size(); ++w)
      if (i.kind == Kind::ReduceScalars) out.insert(int(w));
    if (i.kind == Kind::ReduceScalars) return out;
    const int own = s.placements[i.stage].model_stage, tie = i.part - buckets(own);
    for (const Placement& p : s.placements) {
      const bool in = tie < 0 ? p.model_stage == own : in_tie(tie, p.model_stage);
      if (in) out.insert(p.workers[0]);
    }
    return out;
  }

  std::string wrong() {
    for (std::size_t w = 0; w < f.rows.size(); ++w) {
      std::string why = row(int(w));
      if (!why.empty()) return why;
    }
    std::set<int> counts;
    for (const auto& [stage, n] : updates_) counts.insert(n);
    if (!f.updates) return "";
    if (s.most_versions == 1 && (counts.size() != 1 || *counts.begin() != s.steps))
      return "updates other than one per step";
    return "";
  }

 private:
  // Returns the number of pipelines that sum together. Pipelines with servers don't sum.
  int pipelines_sharing_gradients() const {
    return s.lowering.has_servers() ? 1 : s.lowering.pipelines;
  }
  int buckets(int model_stage) const {
    const auto& b = s.lowering.gradient_buckets;
    return b.empty() ? 1 : b[model_stage];
  }
  bool in_tie(int tie, int model_stage) const {
    if (tie >= int(s.lowering.tied.size())) return false;
    const StagePair& t = s.lowering.tied[tie];
    return t.first == model_stage || t.second == model_stage;
  }

  // Returns the version that a forward uses, by the rules of schedule.h.
  int version_of(int micro, int now) const {
    if (s.version_rule == VersionRule::Lag1) return std::max(0, micro / s.micro_batches - 1);
    if (s.version_rule == VersionRule::Wave) return std::max(0, micro - s.micro_batches + 1);
    return now;
  }
  // micro-batches per update, and updates per wave
  int share() const { return s.version_rule == VersionRule::Wave ? 1 : s.micro_batches; }
  int wave() const { return s.version_rule == VersionRule::Wave ? s.micro_batches : 1; }

  // Returns the parts that must be summed between a stage's last gradient and its update.
  std::set<int> required(int stage) const {
    std::set<int> parts;
    const int own = s.placements[stage].model_stage;
    if (copies_.at(own) > 1)
      for (int b = 0; b < buckets(own); ++b) parts.insert(b);
    for (std::size_t t = 0; t < s.lowering.tied.size(); ++t) {
      if (!in_tie(int(t), own)) continue;
      Instr i{.kind = Kind::ReduceGrad, .stage = stage};
      i.part = std::int16_t(buckets(own) + int(t));
      const bool several = members(i).size() > 1 || pipelines_sharing_gradients() > 1;
      if (several && lowest_of_tie(int(t), stage)) parts.insert(i.part);
    }
    return parts;
  }

  // A worker with both stages of a tied pair, or with several copies, takes part once, by its
  // lowest stage.
  bool lowest_of_tie(int tie, int stage) const {
    for (std::size_t i = 0; i < s.placements.size(); ++i) {
      if (f.worker(int(i)) != f.worker(stage) || !in_tie(tie, s.placements[i].model_stage))
        continue;
      const int a = s.placements[i].model_stage, b = s.placements[stage].model_stage;
      if (a < b || (a == b && int(i) < stage)) return false;
    }
    return true;
  }

  struct Stage {
    std::map<int, int> in_use;  // version -> micro-batches between F and W
    std::map<int, int> left;    // micro-batch -> halves of its W that are missing
    std::map<int, int> used;    // micro-batch -> version
    std::map<int, int> sums;    // part -> index of its sum since the update
    bool gradient = false;      // a gradient to apply
    int next = 0;               // micro-batch after the highest that is forward
    int backwards = 0;          // complete backwards
    int fresh = 0;              // updates since the last push
    int away = 0, pulled = 0;   // waves that were pushed and not pulled, and pulled waves
  };
  struct Row {
    std::map<int, Stage> stages;
    int scalars = -1, last_gradient = -1, last_update = -1;  // indices in the row
  };

  std::string row(int w) {
    Row row;
    for (int k = 0; k < int(f.rows[w].size()); ++k) {
      const Instr& i = f.rows[w][k];
      Stage& at = row.stages[i.stage];
      std::string why = instruction(row, at, i, k);
      if (!why.empty()) return why;
      if (!f.updates || i.stage < 0) continue;
      if ((i.kind == Kind::Forward || i.kind == Kind::Update) && s.most_versions > 0 &&
          versions(at, i.stage) > s.most_versions)
        return "too many weight versions";
    }
    bool idle = true;  // a worker without a stage takes part only in the scalars
    for (const Placement& p : s.placements) idle &= p.workers[0] != w;
    return end_of_row(row.stages, !idle && row.scalars > row.last_update);
  }

  std::string instruction(Row& row, Stage& at, const Instr& i, int k) {
    switch (i.kind) {
      case Kind::Forward:
        return forward(at, i);
      case Kind::Backward:
      case Kind::WeightGrad:
        row.last_gradient = k;
        return backward(at, i);
      case Kind::ReduceGrad:
        if (const int own = s.placements[i.stage].model_stage;
            i.part >= buckets(own) && !in_tie(i.part - buckets(own), own))
          return "a part that there is not";
        if (required(i.stage).count(i.part) && !at.sums.try_emplace(i.part, k).second)
          return "a sum twice";
        return "";
      case Kind::ReduceScalars:
        if (row.scalars > row.last_update) return "scalars twice";
        row.scalars = k;
        return "";
      case Kind::Update:
        return update(row, at, i, k);
      case Kind::Push:
        if (!s.lowering.has_servers() || at.fresh != wave()) return "a push of no wave";
        at.fresh = 0;
        ++at.away;
        return "";
      case Kind::Pull:
        if (at.away-- == 0) return "a pull of nothing pushed";
        ++at.pulled;
        return "";
      default:
        return "";
    }
  }

  std::string forward(Stage& at, const Instr& i) {
    const int version = version_of(i.micro, updates_[i.stage]);
    if (f.updates && version > updates_[i.stage]) return "a weight version that is still to come";
    // Version v consists of whole waves of updates and some more. It contains the pulls of the
    // whole waves.
    if (s.lowering.has_servers() && version >= (at.pulled + 1) * wave())
      return "a weight version that wants a pull";
    at.used[i.micro] = version;
    at.in_use[version]++;
    at.left[i.micro] = f.halves;
    at.next = std::max(at.next, i.micro + 1);
    return "";
  }

  std::string backward(Stage& at, const Instr& i) {
    const int micro = i.micro < 0 ? i.micro : i.micro / f.halves, now = updates_[i.stage];
    at.gradient = true;
    if (!at.sums.empty()) return "a sum before the gradient is whole";
    if (f.updates && !applied_by_.try_emplace(micro, now).second && applied_by_[micro] != now)
      return "one micro-batch in two updates";
    if (--at.left[micro] == 0) {
      ++at.backwards;
      if (--at.in_use[at.used[micro]] == 0) at.in_use.erase(at.used[micro]);
    }
    return "";
  }

  std::string update(Row& row, Stage& at, const Instr& i, int k) {
    if (s.lowering.has_servers() && ++at.fresh > wave()) return "an update of two waves";
    // A copy that has run nothing gets its gradient from the sum.
    if (!at.gradient && required(i.stage).empty()) return "an update without a gradient";
    for (const int part : required(i.stage)) {
      if (at.sums.count(part) == 0) return "an update before a sum";
      if (s.lowering.reduce_scalars && at.sums[part] > row.scalars) return "scalars before a sum";
    }
    if (s.lowering.reduce_scalars && row.last_gradient > row.scalars)
      return "an update before the scalars";
    at.sums.clear();
    at.gradient = false;
    row.last_update = k;
    ++updates_[i.stage];
    if (at.backwards != updates_[i.stage] * share() &&
        (s.version_rule != VersionRule::Newest || s.lowering.has_servers()))
      return "an update of another number of micro-batches";
    return "";
  }

  /// Returns the number of weight versions that a stage holds: the newest, those in use, and those
  /// that a later forward requires.
  int versions(const Stage& at, int stage) {
    std::set<int> alive = {updates_[stage]};
    for (const auto& [version, n] : at.in_use) alive.insert(version);
    if (at.next < f.micros)
      for (int v = version_of(at.next, updates_[stage]); v < updates_[stage]; ++v) alive.insert(v);
    return int(alive.size());
  }

  std::string end_of_row(std::map<int, Stage>& stages, bool scalars_open) {
    for (auto& [stage, at] : stages) {
      if (stage < 0) continue;
      if (f.updates && at.gradient) return "a gradient that is never applied";
      if (f.updates && !at.sums.empty()) return "a sum after the update";
      if (s.lowering.has_servers() && at.pulled != s.steps) return "a wave that is never pulled";
      if (!f.updates && f.reduces && at.sums.size() != required(stage).size())
        return "a sum is missing";
    }
    return f.updates && scalars_open ? "scalars after the update" : "";
  }

  const Facts& f;
  const Schedule& s;
  std::map<int, int> copies_;      // model stage -> copies in all pipelines
  std::map<int, int> updates_;     // stage -> updates
  std::map<int, int> applied_by_;  // micro-batch -> number of the update with its gradient
};

}  // namespace hetu::oracle
