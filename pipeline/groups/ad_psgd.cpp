#include <algorithm>
#include <map>
#include <vector>

#include "base/mix.h"
#include "pipeline/groups/rule.h"

namespace hetu::groups {
namespace {

// Returns random bits. They depend only on the arguments, not on the order of events.
std::uint64_t draw(std::uint64_t seed, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  return mix(mix(mix(mix(seed) ^ a) ^ b) ^ c);
}

// The rule of AD-PSGD. Active pipelines have even numbers and passive pipelines odd numbers. Only
// active pipelines initiate, so two pipelines never wait for each other. If all pipelines of one
// side are dead, the survivors are divided again in their order.
// Source: Lian, Zhang, Zhang, Liu 2018, "Asynchronous Decentralized Parallel Stochastic Gradient
// Descent", section 3 and the deadlock remark there.
class AdPsgd : public Rule {
 public:
  explicit AdPsgd(Board& board) : board_(board), active_(board.pipelines()) { divide(); }

  void begin_run() override {}

  void on_arrival(int stage, int pipeline) override {
    std::vector<int> neighbours;
    for (int p = 0; p < board_.pipelines() && active_[pipeline]; ++p)
      if (!active_[p] && board_.is_expected(stage, p)) neighbours.push_back(p);
    if (neighbours.empty()) {
      board_.close(stage, {pipeline}, active_[pipeline] ? Reason::Last : Reason::Drawn);
      return;
    }
    const std::uint64_t bits =
        draw(board_.options().seed, static_cast<std::uint64_t>(stage),
             static_cast<std::uint64_t>(pipeline),
             static_cast<std::uint64_t>(board_.next_update(stage, pipeline)));
    board_.close_pair(stage, pipeline, neighbours[bits % neighbours.size()]);
  }

  void on_time() override {}

  void on_death(int) override {
    bool side[2] = {false, false};
    for (int p = 0; p < board_.pipelines(); ++p)
      if (board_.is_alive(p)) side[active_[p] ? 1 : 0] = true;
    if (!side[0] || !side[1]) divide();
  }

  std::optional<std::int64_t> wakes_at_us() const override { return std::nullopt; }

 private:
  void divide() {
    bool next = true;
    for (int p = 0; p < board_.pipelines(); ++p) {
      if (!board_.is_alive(p)) continue;
      active_[p] = next;
      next = !next;
    }
  }

  Board& board_;
  std::vector<bool> active_;
};

// The rule of lockstep pairs. The pairs of an update are the same in all stages and can be computed
// in advance. The first pipeline of a pair to arrive waits for the other. All stages take the pairs
// in the order of updates, so waits never form a cycle.
class Lockstep : public Rule {
 public:
  explicit Lockstep(Board& board) : board_(board) {}

  void begin_run() override { partners_.clear(); }

  void on_arrival(int stage, int pipeline) override {
    const std::int64_t update = board_.state(stage, pipeline).answered + 1;
    const int partner = partners(update)[pipeline];
    if (partner < 0 || !board_.is_alive(partner)) {
      board_.close(stage, {pipeline}, Reason::Drawn);
    } else if (board_.state(stage, partner).open &&
               board_.state(stage, partner).answered + 1 == update) {
      board_.close(stage, {std::min(pipeline, partner), std::max(pipeline, partner)},
                   Reason::Drawn);
    }
    forget();
  }

  void on_time() override {}

  void on_death(int dead) override {
    for (int s = 0; s < board_.stages(); ++s) {
      for (const int p : board_.pending(s))
        if (partners(board_.state(s, p).answered + 1)[p] == dead)
          board_.close(s, {p}, Reason::Drawn);
    }
  }

  std::optional<std::int64_t> wakes_at_us() const override { return std::nullopt; }

 private:
  // Returns the partner of each pipeline at an update; -1: no partner, as for one of an odd number
  // of pipelines.
  const std::vector<int>& partners(std::int64_t update) {
    const auto [it, fresh] = partners_.try_emplace(update);
    if (!fresh) return it->second;
    std::vector<int> order;
    for (int p = 0; p < board_.pipelines(); ++p)
      if (board_.is_alive(p)) order.push_back(p);
    const std::uint64_t seed = board_.options().seed;
    const auto counted = static_cast<std::uint64_t>(
        board_.next_update(0, order[0]) - board_.state(0, order[0]).answered - 1 + update);
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[draw(seed, counted, i, 0) % i]);
    it->second.assign(board_.pipelines(), -1);
    for (std::size_t i = 0; i + 1 < order.size(); i += 2) {
      it->second[order[i]] = order[i + 1];
      it->second[order[i + 1]] = order[i];
    }
    return it->second;
  }

  // Drops the pairs that every stage of every pipeline has passed.
  void forget() {
    std::int64_t least = kRunsOn;
    for (int s = 0; s < board_.stages(); ++s) {
      for (int p = 0; p < board_.pipelines(); ++p)
        if (board_.is_alive(p)) least = std::min(least, board_.state(s, p).answered);
    }
    partners_.erase(partners_.begin(), partners_.upper_bound(least));
  }

  Board& board_;
  std::map<std::int64_t, std::vector<int>> partners_;
};

}  // namespace

std::unique_ptr<Rule> ad_psgd(Board& board) { return std::make_unique<AdPsgd>(board); }
std::unique_ptr<Rule> ad_psgd_lockstep(Board& board) { return std::make_unique<Lockstep>(board); }

}  // namespace hetu::groups
