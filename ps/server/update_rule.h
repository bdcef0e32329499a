// What a server does with what it is pushed: adds it, or takes it for a gradient and lets an
// optimizer apply it, push by push or round by round. Told by whoever opens a table; the same on
// all members. Read by store.h and by ps/client.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/optimizer.h"

namespace hetu::ps {

/// When pushes become an update.
enum class Rule : std::uint8_t {
  /// Each push is one, in the order in which they come (ASP, SSP, waves).
  Each,
  /// Push number k of every member together are update k, once all have come: their mean, added in
  /// the order of the members whatever order they came in, float32. Who has left counts as none.
  RoundMean,
  /// The same with their sum: what an all-reduce applies.
  RoundSum,
};
inline constexpr int kRules = static_cast<int>(Rule::RoundSum) + 1;

/// Elements begin <= i < end of a table.
struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const Span&) const = default;
};

/// An optimizer that servers run. One step of Adam's bias correction is one update of the table.
struct ServerOptimizer {
  Optimizer settings;
  std::vector<Span> undecayed;  ///< ascending: neither l2 nor weight_decay (biases, norms)
  bool operator==(const ServerOptimizer&) const = default;
};

struct UpdateRule {
  Rule rule = Rule::Each;
  std::optional<ServerOptimizer> optimizer;  ///< without one, updates are added
  bool operator==(const UpdateRule&) const = default;

  /// Tensors of a part: values, and what the optimizer keeps.
  int planes() const { return optimizer ? 1 + optimizer_states(optimizer->settings.kind) : 1; }
};

/// How far values that servers change have come.
struct UpdateCounts {
  std::int64_t pushes = 0;   ///< that were applied, of all members together
  std::int64_t rounds = 0;   ///< likewise
  std::int64_t updates = 0;  ///< since the values were new, those before this table included
};

inline constexpr std::size_t kMostSpans = 3000;
/// What planes() can be.
inline constexpr int kMostPlanes = 1 + kMostStates;

/// "adam, rounds by mean"; "adds".
std::string describe(const UpdateRule& rule);

/// What is wrong with a rule for a table of so many elements, in one sentence; "" if nothing is.
std::string fault_of(const UpdateRule& rule, std::int64_t elements);

}  // namespace hetu::ps
