// Partial reduce, the policy of SD-PIPE. Per stage, a spanning tree of the newest common groups
// (recency_tree.h) gives the age of the synchronisation graph: the updates since two parts of the
// pipelines were last joined. The invariant is that every window of P N + N updates of a stage
// joins all N pipelines. docs/partial-reduce.md lists the rules.
//
// A stage decides by its age:
// - below `soft`: a group closes as soon as no further arrival is near;
// - from `soft` on: the tree is cut at its oldest edge, and the smaller part waits for the larger
//   part for at most `patience` intervals;
// - from `hard` on, or if a group would leave too little time for the other old edges: only groups
//   that join the two parts close, and all other requests are held without a deadline.
//
// Held requests could block each other across stages, because a pipeline that is held at one stage
// soon sends no requests at other stages. free_stuck() detects this and releases one request.
//
// Example with N = 4, P = 10: after {0,1} and {2,3} have met only among themselves for a while, the
// oldest edge joins {0,1} and {2,3}. Once its age, with the waiting requests, is above 0.6 * 40 =
// 24 updates, a request of pipeline 0 waits for pipeline 2 or 3 if {0,1} is the slower part.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "pipeline/groups/recency_tree.h"
#include "pipeline/groups/rule.h"

namespace hetu::groups {
namespace {

using Time = std::int64_t;

// Stamp before a run's first update, at which all pipelines are joined.
constexpr std::int64_t kBeforeAll = -1;

// Requests that wait at a stage. The last request of a pipeline delays no further work of its
// pipeline. It is kept as a partner for pipelines that still run.
struct Here {
  std::vector<int> running, last;
  int oldest = -1;  // the running pipeline that has waited the longest
  int size() const { return static_cast<int>(running.size() + last.size()); }
};

// The graph, cut at its oldest edge. The smaller part waits for the larger part.
struct Cut {
  std::vector<char> in_smaller;  // 1 for pipelines of the smaller part
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
    for (State& s : states_) s = {RecencyTree(board_.pipelines(), alive, kBeforeAll), {}, {}, {}};
  }

  void on_arrival(int stage, int) override {
    examine(stage);
    free_stuck();
  }

  void on_time() override {
    for (int s = 0; s < board_.stages(); ++s)
      if (states_[s].wakes && *states_[s].wakes <= board_.now_us()) examine(s);
    free_stuck();
  }

  void on_death(int dead) override {
    int alive = 0;
    for (int p = 0; p < board_.pipelines(); ++p) alive += board_.is_alive(p) ? 1 : 0;
    set_limits(alive);
    for (State& s : states_) s.tree.remove(dead);
    for (int s = 0; s < board_.stages(); ++s) examine(s);
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
    RecencyTree tree;  // over the pipelines that are expected in this run
    std::optional<Time> wakes;
    std::vector<int> held;       // requests held without a deadline,
    std::vector<int> waits_for;  // and the pipelines of which one must arrive
  };

  void set_limits(int pipelines) {
    const double round = static_cast<double>(o_.sync_period) * pipelines;
    window_ = static_cast<std::int64_t>(round) + pipelines;
    soft_ = std::max(o_.soft * round, static_cast<double>(pipelines));
    hard_ = std::max(o_.hard * static_cast<double>(window_), pipelines + 1.0);
  }

  // Returns true if this group leaves enough updates to renew every edge within its window. The
  // renewal takes a pair per edge, the oldest edge first.
  bool leaves_time(int stage, const std::vector<int>& group) const {
    const auto size = static_cast<std::int64_t>(group.size());
    const auto pairs = static_cast<std::int64_t>(states_[stage].tree.edges().size());
    if (age(stage) + size + 2 * pairs <= window_) return true;
    RecencyTree tree = states_[stage].tree;
    tree.join(group, board_.count(stage));
    std::int64_t end = board_.count(stage) + size;
    for (auto e = tree.edges().rbegin(); e != tree.edges().rend(); ++e) {
      end += 2;
      if (end - e->stamp - 1 > window_) return false;
    }
    return age(stage) + size - 1 <= window_;
  }

  Here who_is_here(int stage) const {
    Here here;
    for (const int p : board_.pending(stage)) {
      (board_.is_last(stage, p) ? here.last : here.running).push_back(p);
      if (board_.is_last(stage, p)) continue;
      if (here.oldest < 0 ||
          board_.state(stage, p).arrived_us < board_.state(stage, here.oldest).arrived_us)
        here.oldest = p;
    }
    return here;
  }

  void examine(int stage) {
    while (step(stage)) {
    }
  }

  // Closes a group if one must be closed at this time, and returns true. Otherwise records what the
  // stage waits for.
  bool step(int stage) {
    State& state = states_[stage];
    state.wakes.reset();
    state.held.clear();
    const Here here = who_is_here(stage);
    if (here.size() == 0) return false;
    if (here.size() == board_.expected(stage) && may_be_one(stage, here))
      return close_all(stage, here);
    if (o_.sync_period == 1 || here.running.empty()) return false;
    const auto age_if_closed =
        static_cast<double>(age(stage)) + static_cast<double>(here.running.size());
    const bool hard =
        age_if_closed >= hard_ || !leaves_time(stage, narrowed(stage, here.running, o_.max_group));
    if (hard || age_if_closed > soft_) return join_or_wait(stage, here, hard);
    return close_if_nobody_is_near(stage, here);
  }

  std::int64_t age(int stage) const {
    const auto& edges = states_[stage].tree.edges();
    return edges.empty() ? 0 : board_.count(stage) - edges.back().stamp;
  }

  // Returns true if all expected pipelines may form one group. The last requests of all pipelines
  // always may, because all weights are averaged after a run.
  bool may_be_one(int stage, const Here& here) const {
    if (o_.sync_period == 1 || here.running.empty()) return true;
    return here.size() <= o_.max_group && is_in_time(stage, here.size());
  }

  bool close_all(int stage, const Here& here) {
    std::vector<int> all = here.running;
    all.insert(all.end(), here.last.begin(), here.last.end());
    if (all.size() == 1) return close(stage, all, Reason::Last);
    if (o_.sync_period > 1 && !is_in_time(stage, here.size()))
      return close(stage, all, Reason::Joins, 2);  // a pair uses the fewest updates
    return close(stage, all, Reason::All, here.size());
  }

  // Returns true if a group of this size renews the oldest edge within the window.
  bool is_in_time(int stage, int size) const { return age(stage) + size - 1 <= window_; }

  // Joins the two parts of the graph, or waits for it. The smaller part waits for the larger one;
  // with `hard`, all requests wait for a partner from the other part.
  bool join_or_wait(int stage, const Here& here, bool hard) {
    State& state = states_[stage];
    const Cut cut = cut_of(stage);
    const Board::RequestState& oldest = board_.state(stage, here.oldest);
    if (cut.is_joined_by(here.running, here.last)) {
      if (static_cast<int>(here.running.size()) < o_.min_group &&
          cut.is_joined_by(here.running, {}))
        state.wakes = next_arrival(stage, oldest.arrived_us + share(oldest, o_.wait));
      return !state.wakes && join(stage, here, cut);
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
      slowest[side] = std::max(slowest[side], board_.state(stage, p).interval_us);
    }
    // If the parts are equal, the slower one waits, because the faster one's next request is near.
    if (size[1] > size[0] || (size[1] == size[0] && slowest[1] < slowest[0]))
      for (char& side : cut.in_smaller) side = side == 0 ? 1 : 0;
    return cut;
  }

  bool join(int stage, const Here& here, const Cut& cut) {
    std::vector<int> group = here.running;
    int kept = -1;  // a last request from the other part
    if (!cut.is_joined_by(group, {})) {
      for (const int p : here.last)
        if (cut.is_joined_by(group, {p})) kept = p;
      group.insert(group.end(), here.last.begin(), here.last.end());
    }
    // A wide group uses updates, one per member, that other old edges may need.
    const bool spare = static_cast<int>(group.size()) <= o_.max_group && leaves_time(stage, group);
    if (kept >= 0 && !spare) group = {here.oldest, kept};
    return close(stage, group, Reason::Joins, spare ? o_.max_group : 2);
  }

  // Rule 2 of docs/partial-reduce.md: a group that is wide enough waits only for arrivals that are
  // very near. A smaller group also waits for arrivals that are less near.
  bool close_if_nobody_is_near(int stage, const Here& here) {
    const int size = static_cast<int>(here.running.size());
    const bool wide = size >= o_.min_group;
    if (size < o_.max_group) {
      const Board::RequestState& oldest = board_.state(stage, here.oldest);
      const Time before = oldest.arrived_us + share(oldest, wide ? o_.horizon : o_.wait);
      states_[stage].wakes = next_arrival(stage, before);
      if (states_[stage].wakes) return false;
    }
    return close(stage, here.running, wide ? Reason::Wide : Reason::Alone);
  }

  // Returns the earliest time at which one of the arrivals predicted up to `before` counts as not
  // coming; nullopt if there is no such arrival.
  std::optional<Time> next_arrival(int stage, Time before) const {
    std::optional<Time> first;
    for (int p = 0; p < board_.pipelines(); ++p) {
      const Board::RequestState& s = board_.state(stage, p);
      if (s.open || !s.seen || s.interval_us == 0 || !board_.is_expected(stage, p)) continue;
      const Time predicted = board_.predicted_us(stage, p);
      if (predicted > before) continue;
      const Time soon = predicted + std::min(o_.late_us, share(s, o_.late_share));
      const auto spread = static_cast<Time>(std::llround(s.spread_us * o_.late_spread));
      const Time late = std::max(soon, std::min(predicted + spread, before));
      if (late <= board_.now_us()) continue;
      if (!first || late < *first) first = late;
    }
    return first;
  }

  static Time share(const Board::RequestState& state, double intervals) {
    return static_cast<Time>(std::llround(state.interval_us * intervals));
  }

  // Returns the group, or, if it has more than `most` members, the two that were joined the longest
  // ago and the earliest of the others.
  std::vector<int> narrowed(int stage, std::vector<int> group, int most) const {
    if (static_cast<int>(group.size()) <= most) return group;
    const auto [a, b] = states_[stage].tree.longest_apart(group);
    const auto rank = [&, first = a, second = b](int p) {
      return p == first || p == second ? Time{-1} : board_.state(stage, p).arrived_us;
    };
    std::stable_sort(group.begin(), group.end(), [&](int x, int y) { return rank(x) < rank(y); });
    group.resize(most);
    return group;
  }

  bool close(int stage, std::vector<int> group, Reason reason, int most = 0) {
    State& state = states_[stage];
    group = narrowed(stage, std::move(group), most == 0 ? o_.max_group : most);
    std::sort(group.begin(), group.end());
    state.tree.join(group, board_.count(stage));
    board_.close(stage, group, reason);
    for (const int p : group)
      if (!board_.is_expected(stage, p)) state.tree.remove(p);
    return true;
  }

  // Stages may wait for each other's pipelines, because a pipeline that is held at one stage soon
  // arrives at no other stage. If no pipeline that a stage waits for can ever arrive, the stage
  // with the youngest graph releases one request. The windows leave room for such releases.
  void free_stuck() {
    for (int s = youngest_stuck(); s >= 0; s = youngest_stuck()) {
      close(s, {states_[s].held.front()}, Reason::Frees);
      examine(s);
    }
  }

  int youngest_stuck() const {
    std::vector<int> stuck;
    for (int s = 0; s < board_.stages(); ++s)
      if (!states_[s].held.empty()) stuck.push_back(s);
    for (auto s = stuck.begin(); s != stuck.end();) {
      const std::vector<int>& others = states_[*s].waits_for;
      if (std::any_of(others.begin(), others.end(),
                      [&](int p) { return can_arrive(*s, p, stuck); })) {
        stuck.erase(s);
        s = stuck.begin();
      } else {
        ++s;
      }
    }
    const auto younger = [&](int s, int t) { return age(s) < age(t); };
    const auto youngest = std::min_element(stuck.begin(), stuck.end(), younger);
    return youngest == stuck.end() ? -1 : *youngest;
  }

  // Returns true if a pipeline can send its next request at `stage` although the stages in
  // `holding` hold its requests. Let u be the update of the request held at stage t. In PipeDream's
  // order, the stages before t can still come to update u, and a stage s after t to update u + s -
  // t. This holds because of two positions in the rows: backward u + 1 of stage t stands after its
  // forward u + n - t. Backward v of stage s stands after its forward v + n - s - 1. With a flush,
  // all stages come to u. With overlapped averaging they come to u + 1, which stage t then computes
  // while its request is held.
  bool can_arrive(int stage, int pipeline, const std::vector<int>& holding) const {
    const std::int64_t next = board_.state(stage, pipeline).answered + 1;
    return std::all_of(holding.begin(), holding.end(), [&](int t) {
      const std::vector<int>& held = states_[t].held;
      if (!std::binary_search(held.begin(), held.end(), pipeline)) return true;
      const int ahead = o_.flushes ? (o_.overlapped ? 1 : 0) : std::max(0, stage - t);
      return next <= board_.state(t, pipeline).answered + 1 + ahead;
    });
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
