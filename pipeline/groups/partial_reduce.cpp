#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "pipeline/groups/recency_tree.h"
#include "pipeline/groups/rule.h"

namespace hetu::groups {
namespace {

using Time = std::int64_t;

// Everyone is joined by what came before a run's first update.
constexpr std::int64_t kBeforeAll = -1;

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
    for (State& s : states_) s = {RecencyTree(board_.pipelines(), alive, kBeforeAll), {}, {}, {}};
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

  void set_limits(int pipelines) {
    const double round = static_cast<double>(o_.sync_period) * pipelines;
    window_ = static_cast<std::int64_t>(round) + pipelines;
    soft_ = std::max(o_.soft * round, static_cast<double>(pipelines));
    hard_ = std::max(o_.hard * static_cast<double>(window_), pipelines + 1.0);
  }

  // Whether this group leaves time to renew every edge within its window, the oldest first, by a
  // pair each.
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
    if (here.size() == board_.expected(stage) && may_be_one(stage, here))
      return close_all(stage, here);
    if (o_.sync_period == 1 || here.running.empty()) return false;
    const auto reach = static_cast<double>(age(stage)) + static_cast<double>(here.running.size());
    const bool hard =
        reach >= hard_ || !leaves_time(stage, narrowed(stage, here.running, o_.max_group));
    if (hard || reach > soft_) return seek(stage, here, hard);
    return close_if_nobody_is_near(stage, here);
  }

  std::int64_t age(int stage) const {
    const auto& edges = states_[stage].tree.edges();
    return edges.empty() ? 0 : board_.count(stage) - edges.back().stamp;
  }

  // Whether everyone may be one group. The last of all requests always are: all weights are
  // averaged after a run.
  bool may_be_one(int stage, const Here& here) const {
    if (o_.sync_period == 1 || here.running.empty()) return true;
    return here.size() <= o_.max_group && is_in_time(stage, here.size());
  }

  bool close_all(int stage, const Here& here) {
    std::vector<int> all = here.running;
    all.insert(all.end(), here.last.begin(), here.last.end());
    if (all.size() == 1) return close(stage, all, Reason::Last);
    if (o_.sync_period > 1 && !is_in_time(stage, here.size()))
      return close(stage, all, Reason::Joins, 2);  // two that are joined first cost the fewest
    return close(stage, all, Reason::All, here.size());
  }

  // Whether a group of this size renews the oldest edge within the window.
  bool is_in_time(int stage, int size) const { return age(stage) + size - 1 <= window_; }

  // The parts of the graph seek each other: the smaller one waits for the larger, and in the end
  // everyone waits for those who join them.
  bool seek(int stage, const Here& here, bool hard) {
    State& state = states_[stage];
    const Cut cut = cut_of(stage);
    const Board::Seat& oldest = board_.seat(stage, here.oldest);
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
      slowest[side] = std::max(slowest[side], board_.seat(stage, p).interval_us);
    }
    // Of two equal parts the slower one waits: the faster one's next request is near.
    if (size[1] > size[0] || (size[1] == size[0] && slowest[1] < slowest[0]))
      for (char& side : cut.in_smaller) side = side == 0 ? 1 : 0;
    return cut;
  }

  bool join(int stage, const Here& here, const Cut& cut) {
    std::vector<int> group = here.running;
    int kept = -1;  // a last request of the other part
    if (!cut.is_joined_by(group, {})) {
      for (const int p : here.last)
        if (cut.is_joined_by(group, {p})) kept = p;
      group.insert(group.end(), here.last.begin(), here.last.end());
    }
    // A wide group takes its members' updates out of what is left for other old edges.
    const bool spare = static_cast<int>(group.size()) <= o_.max_group && leaves_time(stage, group);
    if (kept >= 0 && !spare) group = {here.oldest, kept};
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

  static Time share(const Board::Seat& seat, double intervals) {
    return static_cast<Time>(std::llround(seat.interval_us * intervals));
  }

  // These, or, if they are more than `most`, the two longest apart and the first of the rest.
  std::vector<int> narrowed(int stage, std::vector<int> group, int most) const {
    if (static_cast<int>(group.size()) <= most) return group;
    const auto [a, b] = states_[stage].tree.longest_apart(group);
    const auto rank = [&, first = a, second = b](int p) {
      return p == first || p == second ? Time{-1} : board_.seat(stage, p).arrived_us;
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

  // Stages may wait for each other's pipelines: whoever is held at one stage soon comes to no
  // other. If nobody that a stage waits for can ever come, the one with the youngest graph lets one
  // request go, which is what the windows are left with room for.
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
    for (auto s = stuck.begin(); s != stuck.end();) {
      const std::vector<int>& others = states_[*s].waits_for;
      if (std::any_of(others.begin(), others.end(), [&](int p) { return comes(*s, p, stuck); })) {
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

  // Whether a pipeline asks at `stage` again although these stages hold its requests there. What is
  // held at stage t after u updates lets the stages before it reach update u, those behind it one
  // more for each stage between: in PipeDream's order backward u + 1 of stage t stands behind its
  // forward u + n - t, and backward v of stage s behind its forward v + n - s - 1. Behind a flush
  // all reach u, and one more if stage t still computes that one.
  bool comes(int stage, int pipeline, const std::vector<int>& holding) const {
    const std::int64_t next = board_.seat(stage, pipeline).answered + 1;
    return std::all_of(holding.begin(), holding.end(), [&](int t) {
      const std::vector<int>& held = states_[t].held;
      if (!std::binary_search(held.begin(), held.end(), pipeline)) return true;
      const int ahead = o_.flushes ? (o_.overlapped ? 1 : 0) : std::max(0, stage - t);
      return next <= board_.seat(t, pipeline).answered + 1 + ahead;
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
