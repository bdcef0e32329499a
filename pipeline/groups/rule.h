// A rule of grouping: inspects the board when something has changed, and closes groups on it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "pipeline/groups/board.h"

namespace hetu::groups {

/// The interface of a method of grouping.
class Rule {
 public:
  virtual ~Rule() = default;
  /// Called at the start of a run, after Board::begin_run().
  virtual void begin_run() = 0;
  /// Called after the request of a pipeline was opened.
  virtual void on_arrival(int stage, int pipeline) = 0;
  /// Called when time has passed.
  virtual void on_time() = 0;
  /// Called after a pipeline was removed from the board.
  virtual void on_death(int pipeline) = 0;
  /// Returns the time at which on_time() must be called, if any.
  virtual std::optional<std::int64_t> wakes_at_us() const = 0;
};

/// Creates the rule of a method. The board must outlive it.
std::unique_ptr<Rule> partial_reduce(Board& board);
std::unique_ptr<Rule> ad_psgd(Board& board);
std::unique_ptr<Rule> ad_psgd_lockstep(Board& board);

}  // namespace hetu::groups
