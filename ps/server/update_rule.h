// The effect of a push on a table: it is added, or it is a gradient that an optimizer applies.
// Pushes apply one by one or round by round. The workers that open a table give the rule, and all
// members give the same one. Read by store.h and by ps/client.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/optimizer.h"

namespace hetu::ps {

/// When pushes become an update.
enum class Rule : std::uint8_t {
  /// Each push is an update, in order of arrival (ASP, SSP, waves).
  Each,
  /// Push number k of all members together is update k, applied once all have arrived. The update
  /// is their float32 mean, summed in pairs of neighbours (add_in_pairs.h). Members that have left
  /// don't count.
  RoundMean,
  /// As RoundMean, but with the sum, as after an all-reduce.
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
  std::vector<Span> undecayed;  ///< ascending ranges without l2 and weight_decay (biases, norms)
  bool operator==(const ServerOptimizer&) const = default;
};

/// The rule of a table: when pushes become an update, and how the update changes the values.
struct UpdateRule {
  Rule rule = Rule::Each;
  std::optional<ServerOptimizer> optimizer;  ///< without an optimizer, updates are added
  bool operator==(const UpdateRule&) const = default;

  /// Returns the number of planes of a part: values, and the optimizer's states.
  int planes() const { return optimizer ? 1 + optimizer_states(optimizer->settings.kind) : 1; }
};

/// Counts of the changes that the values have seen.
struct UpdateCounts {
  std::int64_t pushes = 0;   ///< pushes applied, of all members
  std::int64_t rounds = 0;   ///< rounds applied
  std::int64_t updates = 0;  ///< updates of the values, including those before this table
};

inline constexpr std::size_t kMostSpans = 3000;
/// Largest possible planes().
inline constexpr int kMostPlanes = 1 + kMostStates;

/// Describes a rule for people: "adam, rounds by mean" or "adds".
std::string describe(const UpdateRule& rule);

/// Returns what is wrong with a rule for a table of `elements` elements, in one sentence, or "" if
/// nothing is.
std::string fault_of(const UpdateRule& rule, std::int64_t elements);

}  // namespace hetu::ps
