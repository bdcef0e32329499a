#include <algorithm>
#include <vector>

#include "pipeline/groups/rule.h"

namespace hetu::groups {
namespace {

class PartialReduce : public Rule {
 public:
  explicit PartialReduce(Board& board) : board_(board) {}

  void begin_run() override {}
  void on_arrival(int stage, int) override { look(stage); }
  void on_time() override {
    for (int s = 0; s < board_.stages(); ++s) look(s);
  }
  void on_death(int) override { on_time(); }

  std::optional<std::int64_t> wakes_at_us() const override {
    std::optional<std::int64_t> first;
    for (int s = 0; s < board_.stages() && board_.options().sync_period > 1; ++s) {
      for (const int p : board_.pending(s)) {
        const std::int64_t at = deadline(s, p);
        if (!first || at < *first) first = at;
      }
    }
    return first;
  }

 private:
  std::int64_t deadline(int stage, int pipeline) const {
    const Board::Seat& s = board_.seat(stage, pipeline);
    return s.arrived_us + static_cast<std::int64_t>(board_.options().wait * s.interval_us);
  }

  void look(int stage) {
    const Options& o = board_.options();
    const std::vector<int> open = board_.pending(stage);
    if (open.empty()) return;
    const int here = static_cast<int>(open.size());
    if (here == board_.expected(stage)) {
      if (o.sync_period == 1 || here <= o.max_group)
        board_.close(stage, open, Reason::All);
      else
        close_in_parts(stage, open, Reason::All);
      return;
    }
    if (o.sync_period == 1) return;
    const bool late = std::any_of(open.begin(), open.end(),
                                  [&](int p) { return deadline(stage, p) <= board_.now_us(); });
    if (here >= o.min_group) close_in_parts(stage, open, Reason::Wide);
    if (here < o.min_group && late) board_.close(stage, open, Reason::Alone);
  }

  void close_in_parts(int stage, const std::vector<int>& open, Reason reason) {
    const auto most = static_cast<std::size_t>(board_.options().max_group);
    for (std::size_t i = 0; i < open.size(); i += most) {
      const auto end = std::min(open.size(), i + most);
      board_.close(stage,
                   {open.begin() + static_cast<std::ptrdiff_t>(i),
                    open.begin() + static_cast<std::ptrdiff_t>(end)},
                   reason);
    }
  }

  Board& board_;
};

}  // namespace

std::unique_ptr<Rule> partial_reduce(Board& board) {
  return std::make_unique<PartialReduce>(board);
}

}  // namespace hetu::groups
