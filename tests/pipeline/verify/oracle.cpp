// The search of the oracle. A state is the position of every worker in its row, and a bit per
// reduction that has completed. From each state, the search tries every step that some worker or
// reduction could take next, and remembers the states that it has seen. A plan deadlocks if it
// reaches a state with no next step that is not the end. Small plans have few enough states to try
// all of them: the product of (row length + 1) over the workers, times two per reduction.
//
// Messages depend on the number of send slots. With none, a send and its receive are one step of
// both workers. With N slots, a worker may be at most N messages ahead of each receiver.
#include "tests/pipeline/verify/oracle.h"

#include <algorithm>
#include <tuple>

#include "tests/pipeline/verify/oracle_rules.h"

namespace hetu {
namespace {

using namespace oracle;  // NOLINT: the rules are the other half of this file

/// Searches all orders of execution. A state holds the position of each worker and the completed
/// reductions.
class Search {
 public:
  Search(const Facts& facts, const Steps& steps, int slots) : f(facts), slots_(slots) {
    needs_.resize(f.rows.size());
    ends_.resize(f.rows.size());
    for (std::size_t w = 0; w < f.rows.size(); ++w)
      for (const Instr& i : f.rows[w]) {
        needs_[w].push_back(needs_of(i));
        ends_[w].push_back(is_send(i.kind) || is_recv(i.kind) ? other_end(i) : RowPosition{});
      }
    find_collectives(steps);
    for (const auto& row : f.rows) {
      radix_.push_back(states_);
      states_ *= double(row.size() + 1);
    }
    states_ *= double(std::int64_t{1} << std::min<std::size_t>(collectives_.size(), 40));
  }

  double states() const { return states_; }
  /// Returns true if a member of a group posts the group's reduction less often than the others.
  bool lacks_members() const { return lacks_members_; }

  // Returns true if no order gets stuck.
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
    std::uint64_t over = 0;  // completed reductions
  };
  struct Post {
    int worker = 0, index = 0, order = 0;  // order: number of earlier posts of the worker
  };

  std::size_t code_of(const State& s) const {
    double code = 0;
    for (std::size_t w = 0; w < s.at.size(); ++w) code += radix_[w] * s.at[w];
    const double rows = radix_.back() * double(f.rows.back().size() + 1);
    return std::size_t(code + rows * double(s.over));
  }

  std::vector<RowPosition> needs_of(const Instr& i) const {
    std::vector<RowPosition> places;
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

  RowPosition other_end(const Instr& i) const {
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

  // Returns true if everything that a worker has posted before `index` is complete.
  bool all_over(const State& s, int worker, int index) const {
    for (std::size_t c = 0; c < collectives_.size(); ++c)
      for (const Post& p : collectives_[c])
        if (p.worker == worker && p.index < index && !over(s, c)) return false;
    return true;
  }

  static bool done(const State& s, const RowPosition& p) { return s.at[p.worker] > p.index; }

  bool ready(const State& s, int w, int index) const {
    // In the worker's own row, everything before `index` is complete, so the first instruction of a
    // pair may feed the second.
    for (const RowPosition& p : needs_[w][index])
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

  // Returns the number of messages from one worker to another that a worker has passed.
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
      const RowPosition there = ends_[w][at];
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
  std::vector<std::vector<std::vector<RowPosition>>> needs_;
  std::vector<std::vector<RowPosition>> ends_;  // positions of the other ends of messages
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
