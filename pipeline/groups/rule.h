// A rule of grouping: looks at the board when something has happened and closes groups on it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "pipeline/groups/board.h"

namespace hetu::groups {

class Rule {
 public:
  virtual ~Rule() = default;
  virtual void begin_run() = 0;
  /// The request of a pipeline has been opened.
  virtual void on_arrival(int stage, int pipeline) = 0;
  virtual void on_time() = 0;
  /// A pipeline is gone from the board.
  virtual void on_death(int pipeline) = 0;
  virtual std::optional<std::int64_t> wakes_at_us() const = 0;
};

/// The board must outlive the rule.
std::unique_ptr<Rule> partial_reduce(Board& board);
std::unique_ptr<Rule> ad_psgd(Board& board);
std::unique_ptr<Rule> ad_psgd_lockstep(Board& board);

}  // namespace hetu::groups
