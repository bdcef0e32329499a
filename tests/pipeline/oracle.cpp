#include "tests/pipeline/oracle.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace hetu {
namespace {

using Rows = std::vector<std::vector<Instr>>;

/// A result: kind, stage, micro-batch, part. B is entered as I and as W.
using Key = std::tuple<Kind, int, int, int>;

struct Place {
  int worker = 0;
  int index = 0;
};

struct Edge {
  int from = 0, to = 0, part = 0;
  bool crosses = false;
};

bool micro_level(Kind k) { return k <= Kind::RecvBackward; }
bool forward_id(Kind k) {
  return k == Kind::Forward || k == Kind::SendForward || k == Kind::RecvForward;
}

/// The plan as lists, and what is wrong with it whatever the order.
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
  std::map<Key, Place> at;
  bool lowered = false, updates = false, reduces = false;
  int halves = 1, micros = 0, model = 0;

  int worker(int stage) const { return s.placements[stage].workers[0]; }
  bool has(Kind k, int stage, int micro, int part = 0) const {
    return at.count({k, stage, micro, part}) > 0;
  }

  std::string contents() {
    for (std::size_t w = 0; w < rows.size(); ++w)
      for (std::size_t k = 0; k < rows[w].size(); ++k) {
        const std::string wrong = enter(int(w), int(k));
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

  // Counts into `wanted` what must be there, and what may.
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

/// Reductions, updates and weight versions along each row: what is wrong whatever the order.
class Steps {
 public:
  explicit Steps(const Facts& facts) : f(facts), s(facts.s) {
    for (std::size_t i = 0; i < s.placements.size(); ++i) {
      copies_[s.placements[i].model_stage] += s.lowering.pipelines;
      updates_[int(i)] = 0;
    }
  }

  /// Members of a reduction as (worker), and its identity.
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
      const std::string why = row(int(w));
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
  int buckets(int model_stage) const {
    const auto& b = s.lowering.gradient_buckets;
    return b.empty() ? 1 : b[model_stage];
  }
  bool in_tie(int tie, int model_stage) const {
    if (tie >= int(s.lowering.tied.size())) return false;
    const StagePair& t = s.lowering.tied[tie];
    return t.first == model_stage || t.second == model_stage;
  }

  // The version that a forward uses, and micro-batches per update, as schedule.h states the rules.
  int version_of(int micro, int now) const {
    if (s.version_rule == VersionRule::Lag1) return std::max(0, micro / s.micro_batches - 1);
    if (s.version_rule == VersionRule::Wave) return std::max(0, micro - s.micro_batches + 1);
    return now;
  }
  int share() const { return s.version_rule == VersionRule::Lag1 ? s.micro_batches : 1; }

  // Parts that must be summed between a stage's last gradient and its update.
  std::set<int> required(int stage) const {
    std::set<int> parts;
    const int own = s.placements[stage].model_stage;
    if (copies_.at(own) > 1)
      for (int b = 0; b < buckets(own); ++b) parts.insert(b);
    for (std::size_t t = 0; t < s.lowering.tied.size(); ++t) {
      if (!in_tie(int(t), own)) continue;
      Instr i{.kind = Kind::ReduceGrad, .stage = stage};
      i.part = std::int16_t(buckets(own) + int(t));
      const bool several = members(i).size() > 1 || s.lowering.pipelines > 1;
      if (several && lowest_of_tie(int(t), stage)) parts.insert(i.part);
    }
    return parts;
  }

  // A worker with both stages of a tied pair, or several copies, takes part once, by its earliest.
  bool lowest_of_tie(int tie, int stage) const {
    for (std::size_t i = 0; i < s.placements.size(); ++i) {
      if (f.worker(int(i)) != f.worker(stage) || !in_tie(tie, s.placements[i].model_stage))
        continue;
      const int a = s.placements[i].model_stage, b = s.placements[stage].model_stage;
      if (a < b || (a == b && int(i) < stage)) return false;
    }
    return true;
  }

  std::string row(int w) {
    struct Stage {
      std::map<int, int> in_use;  // version -> micro-batches between F and W
      std::map<int, int> left;    // micro-batch -> halves of its W to come
      std::map<int, int> used;    // micro-batch -> version
      std::map<int, int> sums;    // part -> where it was summed since the update
      bool gradient = false;      // something to apply
      int next = 0;               // micro-batch after the highest that is forward
      int backwards = 0;          // whole ones
    };
    std::map<int, Stage> stages;
    int scalars = -1, last_gradient = -1, last_update = -1;
    for (int k = 0; k < int(f.rows[w].size()); ++k) {
      const Instr& i = f.rows[w][k];
      Stage& at = stages[i.stage];
      const int now = i.stage >= 0 ? updates_[i.stage] : 0;
      const int micro = i.micro < 0 || forward_id(i.kind) ? i.micro : i.micro / f.halves;
      switch (i.kind) {
        case Kind::Forward: {
          const int version = version_of(micro, now);
          if (f.updates && version > now) return "a weight version that is still to come";
          at.used[micro] = version;
          at.in_use[version]++;
          at.left[micro] = f.halves;
          at.next = std::max(at.next, micro + 1);
          break;
        }
        case Kind::Backward:
        case Kind::WeightGrad: {
          at.gradient = true;
          last_gradient = k;
          if (!at.sums.empty()) return "a sum before the gradient is whole";
          if (f.updates && !applied_by_.try_emplace(micro, now).second && applied_by_[micro] != now)
            return "one micro-batch in two updates";
          if (--at.left[micro] == 0) {
            ++at.backwards;
            if (--at.in_use[at.used[micro]] == 0) at.in_use.erase(at.used[micro]);
          }
          break;
        }
        case Kind::ReduceGrad:
          if (const int own = s.placements[i.stage].model_stage;
              i.part >= buckets(own) && !in_tie(i.part - buckets(own), own))
            return "a part that there is not";
          if (!required(i.stage).count(i.part)) break;
          if (!at.sums.try_emplace(i.part, k).second) return "a sum twice";
          break;
        case Kind::ReduceScalars:
          if (scalars > last_update) return "scalars twice";
          scalars = k;
          break;
        case Kind::Update: {
          // A copy that has run nothing gets its gradient from the sum.
          if (!at.gradient && required(i.stage).empty()) return "an update without a gradient";
          for (const int part : required(i.stage)) {
            if (at.sums.count(part) == 0) return "an update before a sum";
            if (s.lowering.reduce_scalars && at.sums[part] > scalars) return "scalars before a sum";
          }
          if (s.lowering.reduce_scalars && last_gradient > scalars)
            return "an update before the scalars";
          at.sums.clear();
          at.gradient = false;
          last_update = k;
          ++updates_[i.stage];
          if (at.backwards != updates_[i.stage] * share() && s.version_rule != VersionRule::Newest)
            return "an update of another number of micro-batches";
          break;
        }
        default:
          break;
      }
      if (!f.updates || i.stage < 0) continue;
      std::set<int> alive = {updates_[i.stage]};
      for (const auto& [version, n] : at.in_use) alive.insert(version);
      if (at.next < f.micros)
        for (int v = version_of(at.next, updates_[i.stage]); v < updates_[i.stage]; ++v)
          alive.insert(v);
      if ((i.kind == Kind::Forward || i.kind == Kind::Update) && s.most_versions > 0 &&
          int(alive.size()) > s.most_versions)
        return "too many weight versions";
    }
    bool idle = true;  // a worker without a stage takes part in the scalars alone
    for (const Placement& p : s.placements) idle &= p.workers[0] != w;
    return end_of_row(stages, !idle && scalars > last_update);
  }

  template <class Stages>
  std::string end_of_row(Stages& stages, bool scalars_open) {
    for (auto& [stage, at] : stages) {
      if (stage < 0) continue;
      if (f.updates && at.gradient) return "a gradient that is never applied";
      if (f.updates && !at.sums.empty()) return "a sum after the update";
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

/// All orders of execution. A state is where each worker stands and which reductions are over.
class Search {
 public:
  Search(const Facts& facts, const Steps& steps, int slots) : f(facts), slots_(slots) {
    needs_.resize(f.rows.size());
    ends_.resize(f.rows.size());
    for (std::size_t w = 0; w < f.rows.size(); ++w)
      for (const Instr& i : f.rows[w]) {
        needs_[w].push_back(needs_of(i));
        ends_[w].push_back(is_send(i.kind) || is_recv(i.kind) ? other_end(i) : Place{});
      }
    find_collectives(steps);
    for (const auto& row : f.rows) {
      radix_.push_back(states_);
      states_ *= double(row.size() + 1);
    }
    states_ *= double(std::int64_t{1} << std::min<std::size_t>(collectives_.size(), 40));
  }

  double states() const { return states_; }
  /// A group of which some member never posts it as often as the others.
  bool lacks_members() const { return lacks_members_; }

  // True if no order gets stuck.
  bool runs(std::int64_t& visited) {
    seen_.assign(std::size_t(states_), false);
    std::vector<State> open = {State{std::vector<int>(f.rows.size(), 0), 0}};
    seen_[0] = true;
    visited = 0;
    while (!open.empty()) {
      const State state = open.back();
      open.pop_back();
      ++visited;
      bool moved = false;
      const auto go = [&](const State& next) {
        moved = true;
        const auto code = code_of(next);
        if (!seen_[code]) open.push_back(next);
        seen_[code] = true;
      };
      for (std::size_t w = 0; w < f.rows.size(); ++w) step(state, int(w), go);
      for (std::size_t c = 0; c < collectives_.size(); ++c) complete(state, int(c), go);
      if (!moved && !finished(state)) return false;
    }
    return true;
  }

 private:
  struct State {
    std::vector<int> at;
    std::uint64_t over = 0;  // reductions
  };
  struct Post {
    int worker = 0, index = 0, order = 0;  // order: how many the worker posts before
  };

  std::size_t code_of(const State& s) const {
    double code = 0;
    for (std::size_t w = 0; w < s.at.size(); ++w) code += radix_[w] * s.at[w];
    const double rows = radix_.back() * double(f.rows.back().size() + 1);
    return std::size_t(code + rows * double(s.over));
  }

  std::vector<Place> needs_of(const Instr& i) const {
    std::vector<Place> places;
    for (const Key& key : keys_of(i)) places.push_back(f.at.at(key));
    return places;
  }

  std::vector<Key> keys_of(const Instr& i) const {
    std::vector<Key> out;
    const int fm = forward_id(i.kind) ? i.micro : i.micro / f.halves;
    const bool back = i.kind == Kind::Backward || i.kind == Kind::InputGrad;
    if (back || i.kind == Kind::Recompute || i.kind == Kind::SendForward)
      out.push_back({Kind::Forward, i.stage, fm, 0});
    if (back && f.has(Kind::Recompute, i.stage, i.micro))
      out.push_back({Kind::Recompute, i.stage, i.micro, 0});
    if (i.kind == Kind::WeightGrad || i.kind == Kind::SendBackward)
      out.push_back({Kind::InputGrad, i.stage, i.micro, 0});
    for (const Edge& e : f.edges) {
      const bool by_message = f.lowered && e.crosses;
      if (i.kind == Kind::Forward && e.to == i.stage)
        out.push_back(by_message ? Key{Kind::RecvForward, i.stage, i.micro, e.part}
                                 : Key{Kind::Forward, e.from, i.micro, 0});
      if (back && e.from == i.stage)
        out.push_back(by_message ? Key{Kind::RecvBackward, i.stage, i.micro, e.part}
                                 : Key{Kind::InputGrad, e.to, i.micro, 0});
    }
    return out;
  }

  Place other_end(const Instr& i) const {
    const bool ahead = i.kind == Kind::SendForward || i.kind == Kind::RecvBackward;
    const Kind kinds[] = {Kind::RecvForward, Kind::SendForward, Kind::RecvBackward,
                          Kind::SendBackward};
    for (const Edge& e : f.edges)
      if (e.part == i.part && (ahead ? e.from : e.to) == i.stage)
        return f.at.at(
            {kinds[int(i.kind) - int(Kind::SendForward)], ahead ? e.to : e.from, i.micro, i.part});
    return {};
  }

  void find_collectives(const Steps& steps) {
    std::map<std::pair<std::string, int>, std::vector<Post>> found;
    std::map<std::pair<std::string, int>, std::set<int>> wanted;
    for (std::size_t w = 0; w < f.rows.size(); ++w) {
      std::map<std::string, int> times;
      int order = 0;
      for (std::size_t k = 0; k < f.rows[w].size(); ++k) {
        const Instr& i = f.rows[w][k];
        if (!is_collective(i.kind)) continue;
        const std::string group = steps.group(i);
        const auto key = std::make_pair(group, times[group]++);
        found[key].push_back({int(w), int(k), order++});
        wanted[key] = steps.members(i);
      }
    }
    for (const auto& [key, posts] : found) {
      lacks_members_ |= posts.size() != wanted[key].size();
      collectives_.push_back(posts);
    }
  }

  bool over(const State& s, std::size_t c) const { return (s.over >> c & 1) != 0; }

  // Of what a worker has posted before `index`, is everything over?
  bool all_over(const State& s, int worker, int index) const {
    for (std::size_t c = 0; c < collectives_.size(); ++c)
      for (const Post& p : collectives_[c])
        if (p.worker == worker && p.index < index && !over(s, c)) return false;
    return true;
  }

  static bool done(const State& s, const Place& p) { return s.at[p.worker] > p.index; }

  bool ready(const State& s, int w, int index) const {
    // Of its own row: all that stands before it, so that the first of a pair may give to the
    // second.
    for (const Place& p : needs_[w][index])
      if (p.worker == w ? p.index >= index : !done(s, p)) return false;
    const Instr& i = f.rows[w][index];
    if (index > 0 && f.rows[w][index - 1].kind == Kind::ReduceScalars &&
        !scalars_over(s, w, index - 1))
      return false;
    return i.kind != Kind::Update || all_over(s, w, index);
  }

  bool scalars_over(const State& s, int w, int index) const {
    for (std::size_t c = 0; c < collectives_.size(); ++c)
      for (const Post& p : collectives_[c])
        if (p.worker == w && p.index == index) return over(s, c);
    return true;
  }

  // Messages from one worker to another that a worker has passed.
  int passed(const State& s, int w, bool sends, int from, int to) const {
    int count = 0;
    for (int k = 0; k < s.at[w]; ++k) {
      const Instr& i = f.rows[w][k];
      if (sends ? !is_send(i.kind) : !is_recv(i.kind)) continue;
      const int other = ends_[w][k].worker;
      count += (sends ? w == from && other == to : w == to && other == from) ? 1 : 0;
    }
    return count;
  }

  template <class Go>
  void step(const State& s, int w, Go&& go) const {
    const int at = s.at[w];
    if (at == int(f.rows[w].size())) return;
    const Instr& i = f.rows[w][at];
    State next = s;
    next.at[w] += i.with_next ? 2 : 1;
    if (!ready(s, w, at) || (i.with_next && !ready(s, w, at + 1))) return;
    if (is_recv(i.kind)) {
      if (slots_ == 0) return;  // taken together with its send
      if (!done(s, ends_[w][at])) return;
    } else if (is_send(i.kind)) {
      const Place there = ends_[w][at];
      const int to = there.worker;
      if (slots_ == 0) {
        if (s.at[to] != there.index || !ready(s, to, there.index)) return;
        ++next.at[to];
      } else if (slots_ > 0 && passed(s, w, true, w, to) - passed(s, to, false, w, to) >= slots_) {
        return;
      }
    }
    go(next);
  }

  template <class Go>
  void complete(const State& s, int c, Go&& go) const {
    if (over(s, c)) return;
    for (const Post& p : collectives_[c])
      if (s.at[p.worker] <= p.index || !all_over(s, p.worker, p.index)) return;
    State next = s;
    next.over |= std::uint64_t{1} << c;
    go(next);
  }

  bool finished(const State& s) const {
    for (std::size_t w = 0; w < f.rows.size(); ++w)
      if (s.at[w] != int(f.rows[w].size())) return false;
    return s.over + 1 == std::uint64_t{1} << collectives_.size();
  }

  const Facts& f;
  const int slots_;
  std::vector<std::vector<std::vector<Place>>> needs_;
  std::vector<std::vector<Place>> ends_;  // of messages: where the other end stands
  std::vector<std::vector<Post>> collectives_;
  bool lacks_members_ = false;
  double states_ = 1;
  std::vector<double> radix_;
  std::vector<bool> seen_;
};

}  // namespace

std::optional<Verdict> judge(const Schedule& schedule, int send_slots, double most_states) {
  Verdict v;
  Facts facts(schedule);
  v.wrong = facts.contents();
  if (!v.wrong.empty()) return v;
  Steps steps(facts);
  Search search(facts, steps, send_slots);
  v.wrong = search.lacks_members() ? "a reduction without all its members" : steps.wrong();
  if (search.states() > most_states) {
    if (v.wrong.empty()) return std::nullopt;
    return v;
  }
  if (search.lacks_members()) return v;
  v.deadlocks = !search.runs(v.states);
  if (v.deadlocks && v.wrong.empty()) v.wrong = "some order gets stuck";
  return v;
}

}  // namespace hetu
