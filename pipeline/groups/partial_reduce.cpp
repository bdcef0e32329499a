#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "pipeline/groups/recency_tree.h"
#include "pipeline/groups/rule.h"

namespace hetu::groups {
namespace {

using Time = std::int64_t;

// What waits at a stage. The last request of a pipeline holds up nothing behind it: it is kept as a
// partner for those that still run.
struct Here {
  std::vector<int> running, last;
  int oldest = -1;  // of the running ones
  int size() const { return static_cast<int>(running.size() + last.size()); }
};

// The graph cut at its oldest edge: the smaller part waits for the larger.
struct Cut {
  std::vector<char> in_smaller;  // per pipeline
  bool is_joined_by(const std::vector<int>& x, const std::vector<int>& y) const {
    bool seen[2] = {false, false};
    for (const auto* list : {&x, &y})
      for (const int p : *list) seen[in_smaller[p] ? 1 : 0] = true;
    return seen[0] && seen[1];
  }
};

class PartialReduce : public Rule {
 public:
  explicit PartialReduce(Board& board)
      : board_(board), o_(board.options()), states_(board.stages()) {}

  void begin_run() override {
    std::vector<int> alive;
    for (int p = 0; p < board_.pipelines(); ++p)
      if (board_.is_alive(p)) alive.push_back(p);
    set_limits(static_cast<int>(alive.size()));
    for (State& s : states_) s = {RecencyTree(board_.pipelines(), alive, 0), {}, {}, {}};
  }

  void on_arrival(int stage, int) override {
    look(stage);
    free_stuck();
  }

  void on_time() override {
    for (int s = 0; s < board_.stages(); ++s)
      if (states_[s].wakes && *states_[s].wakes <= board_.now_us()) look(s);
    free_stuck();
  }

  void on_death(int dead) override {
    int alive = 0;
    for (int p = 0; p < board_.pipelines(); ++p) alive += board_.is_alive(p) ? 1 : 0;
    set_limits(alive);
    for (State& s : states_) s.tree.remove(dead);
    for (int s = 0; s < board_.stages(); ++s) look(s);
    free_stuck();
  }

  std::optional<Time> wakes_at_us() const override {
    std::optional<Time> first;
    for (const State& s : states_)
      if (s.wakes && (!first || *s.wakes < *first)) first = s.wakes;
    return first;
  }

 private:
  struct State {
    RecencyTree tree;  // over the pipelines that are still expected in this run
    std::optional<Time> wakes;
    std::vector<int> held;       // waiting without a deadline for someone who joins the parts,
    std::vector<int> waits_for;  // any one of these
  };

  // Ages from which the parts seek each other, and from which nothing else is released. Joining N
  // parts may take N - 1 pairs: beyond `hard` there is room for them within P * N + N.
  void set_limits(int pipelines) {
    const double round = static_cast<double>(o_.sync_period) * pipelines;
    window_ = static_cast<std::int64_t>(round) + pipelines;
    soft_ = std::max(o_.soft * round, static_cast<double>(pipelines));
    hard_ = std::max(std::min(o_.hard * round, round - pipelines + 2), pipelines + 1.0);
  }

  Here who_is_here(int stage) const {
    Here here;
    for (const int p : board_.pending(stage)) {
      (board_.is_last(stage, p) ? here.last : here.running).push_back(p);
      if (board_.is_last(stage, p)) continue;
      if (here.oldest < 0 ||
          board_.seat(stage, p).arrived_us < board_.seat(stage, here.oldest).arrived_us)
        here.oldest = p;
    }
    return here;
  }

  void look(int stage) {
    while (step(stage)) {
    }
  }

  // Closes one group if one is to be closed now; else notes what is waited for.
  bool step(int stage) {
    State& state = states_[stage];
    state.wakes.reset();
    state.held.clear();
    const Here here = who_is_here(stage);
    if (here.size() == 0) return false;
    if (here.size() == board_.expected(stage)) return close_all(stage, here);
    if (o_.sync_period == 1 || here.running.empty()) return false;
    const std::int64_t reach = age(stage) + static_cast<std::int64_t>(here.running.size());
    if (static_cast<double>(reach) > soft_) return seek(stage, here, reach);
    return close_if_nobody_is_near(stage, here);
  }

  std::int64_t age(int stage) const {
    const auto& edges = states_[stage].tree.edges();
    return edges.empty() ? 0 : board_.count(stage) - edges.back().stamp;
  }

  bool close_all(int stage, const Here& here) {
    std::vector<int> all = here.running;
    all.insert(all.end(), here.last.begin(), here.last.end());
    const Reason reason = board_.expected(stage) == 1 ? Reason::Last : Reason::All;
    return close(stage, all, reason);
  }

  // The parts of the graph seek each other: the smaller one waits for the larger, and in the end
  // everyone waits for those who join them.
  bool seek(int stage, const Here& here, std::int64_t reach) {
    State& state = states_[stage];
    const Cut cut = cut_of(stage);
    const bool hard = static_cast<double>(reach) >= hard_;
    const Board::Seat& oldest = board_.seat(stage, here.oldest);
    if (cut.is_joined_by(here.running, here.last)) {
      const Time until = oldest.arrived_us + share(oldest, o_.wait);
      const bool wide = static_cast<int>(here.running.size()) >= o_.min_group;
      if (hard || wide || !cut.is_joined_by(here.running, {}) || until <= board_.now_us())
        return join(stage, here, cut);
      state.wakes = until;
      return false;
    }
    const bool smaller = cut.in_smaller[here.oldest] != 0;
    if (hard) {
      state.held = here.running;
      state.waits_for.clear();
      for (int p = 0; p < board_.pipelines(); ++p)
        if (board_.is_expected(stage, p) && (cut.in_smaller[p] != 0) != smaller)
          state.waits_for.push_back(p);
      return false;
    }
    const Time until = oldest.arrived_us + share(oldest, o_.patience);
    if (!smaller || until <= board_.now_us()) return close_if_nobody_is_near(stage, here);
    state.wakes = until;
    return false;
  }

  Cut cut_of(int stage) const {
    Cut cut{states_[stage].tree.cut()};
    int size[2] = {0, 0};
    double slowest[2] = {0, 0};
    for (int p = 0; p < board_.pipelines(); ++p) {
      if (!board_.is_expected(stage, p)) continue;
      const int side = cut.in_smaller[p];
      ++size[side];
      slowest[side] = std::max(slowest[side], board_.seat(stage, p).interval_us);
    }
    // Of two equal parts the slower one waits: the faster one's next request is near.
    if (size[1] > size[0] || (size[1] == size[0] && slowest[1] < slowest[0]))
      for (char& side : cut.in_smaller) side = side == 0 ? 1 : 0;
    return cut;
  }

  bool join(int stage, const Here& here, const Cut& cut) {
    std::vector<int> group = here.running;
    if (!cut.is_joined_by(here.running, {}))
      group.insert(group.end(), here.last.begin(), here.last.end());
    // A group takes its members' updates out of what is left for other old edges.
    const auto left = static_cast<std::int64_t>(2 * states_[stage].tree.edges().size()) - 2;
    const bool spare = age(stage) + static_cast<std::int64_t>(group.size()) - 1 + left <= window_;
    return close(stage, group, Reason::Joins, spare ? o_.max_group : 2);
  }

  // Step 9 and 10 of the policy's page: a group that is wide enough waits for whoever is very near,
  // a smaller one for whoever is near.
  bool close_if_nobody_is_near(int stage, const Here& here) {
    const int size = static_cast<int>(here.running.size());
    const bool wide = size >= o_.min_group;
    if (size < o_.max_group) {
      const Board::Seat& oldest = board_.seat(stage, here.oldest);
      const Time before = oldest.arrived_us + share(oldest, wide ? o_.horizon : o_.wait);
      states_[stage].wakes = next_arrival(stage, before);
      if (states_[stage].wakes) return false;
    }
    return close(stage, here.running, wide ? Reason::Wide : Reason::Alone);
  }

  // When the next arrival that is predicted up to `before` counts as not coming.
  std::optional<Time> next_arrival(int stage, Time before) const {
    std::optional<Time> first;
    for (int p = 0; p < board_.pipelines(); ++p) {
      const Board::Seat& s = board_.seat(stage, p);
      if (s.open || !s.seen || s.interval_us == 0 || !board_.is_expected(stage, p)) continue;
      const Time predicted = s.released_us + share(s, 1);
      const Time late = predicted + std::min(o_.late_us, share(s, o_.late_share));
      if (predicted > before || late <= board_.now_us()) continue;
      if (!first || late < *first) first = late;
    }
    return first;
  }

  static Time share(const Board::Seat& seat, double intervals) {
    return static_cast<Time>(std::llround(seat.interval_us * intervals));
  }

  // Closes these, or, if they are more than `most`, the two longest apart and the first of the
  // rest.
  bool close(int stage, std::vector<int> group, Reason reason, int most = 0) {
    State& state = states_[stage];
    if (most == 0) most = o_.max_group;
    if (static_cast<int>(group.size()) > most) {
      const auto [a, b] = state.tree.longest_apart(group);
      const auto rank = [&, first = a, second = b](int p) {
        return p == first || p == second ? Time{-1} : board_.seat(stage, p).arrived_us;
      };
      std::stable_sort(group.begin(), group.end(), [&](int x, int y) { return rank(x) < rank(y); });
      group.resize(most);
    }
    std::sort(group.begin(), group.end());
    state.tree.join(group, board_.count(stage));
    board_.close(stage, group, reason);
    for (const int p : group)
      if (!board_.is_expected(stage, p)) state.tree.remove(p);
    return true;
  }

  // Stages may wait for each other's pipelines: whoever is held at one stage does not come to
  // another. If nobody that a stage waits for can ever come, the one with the youngest graph lets
  // one request go, which is what the windows are left with room for.
  void free_stuck() {
    for (int s = youngest_stuck(); s >= 0; s = youngest_stuck()) {
      close(s, {states_[s].held.front()}, Reason::Frees);
      look(s);
    }
  }

  int youngest_stuck() const {
    std::vector<int> stuck;
    for (int s = 0; s < board_.stages(); ++s)
      if (!states_[s].held.empty()) stuck.push_back(s);
    if (stuck.empty()) return -1;
    std::vector<int> holds(board_.pipelines(), 0);
    for (const int s : stuck)
      for (const int p : states_[s].held) ++holds[p];
    const auto wakes = [&](int s) {
      const std::vector<int>& others = states_[s].waits_for;
      return std::any_of(others.begin(), others.end(), [&](int p) { return holds[p] == 0; });
    };
    for (auto s = stuck.begin(); s != stuck.end();) {
      if (!wakes(*s)) {
        ++s;
        continue;
      }
      for (const int p : states_[*s].held) --holds[p];
      stuck.erase(s);
      s = stuck.begin();
    }
    const auto younger = [&](int s, int t) { return age(s) < age(t); };
    const auto youngest = std::min_element(stuck.begin(), stuck.end(), younger);
    return youngest == stuck.end() ? -1 : *youngest;
  }

  Board& board_;
  const Options& o_;
  std::vector<State> states_;
  std::int64_t window_ = 0;
  double soft_ = 0, hard_ = 0;
};

}  // namespace

std::unique_ptr<Rule> partial_reduce(Board& board) {
  return std::make_unique<PartialReduce>(board);
}

}  // namespace hetu::groups
