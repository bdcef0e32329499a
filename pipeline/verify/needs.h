// Results of the proof of a plan: copies, versions and peaks. The stage compiler reads them.
#pragma once
#include <cstdint>
#include <vector>

namespace hetu {

/// The most that one placement needs at any time.
struct StageNeeds {
  /// Copies of the values that F saves: micro-batches between F and B (or I).
  int forward_copies = 0;
  /// Copies of the values that I keeps for W: micro-batches between I and W.
  int split_copies = 0;
  int live_copies = 0;      ///< Micro-batches between F and the end of their backward.
  int weight_versions = 1;  ///< Weight versions that exist at once.
  int updates = 0;          ///< Updates in the whole plan.
  int tap_copies = 0;       ///< Micro-batches kept for K-FAC, from F to the last CURVATURE.
};

/// Results of verify() for a whole plan.
struct VerifyReport {
  /// Most activations per worker, in micro-batches. An F adds 1/V, a B frees 1/V, and an I and a W
  /// free half of that each. This is the count of the zero-bubble paper; a compiled stage keeps
  /// what F saved until the W has run, and peak_bytes of a simulation counts that.
  std::vector<double> peak_activations;
  std::vector<StageNeeds> stages;  ///< Needs of each placement.
  /// Weight version, in updates, of the forward of micro-batch m on placement p, at index p *
  /// (micro-batches of the plan) + m. Empty for plans without updates.
  std::vector<std::int32_t> versions;
  /// Staleness of plans with versions by waves or with servers, counted in the updates of earlier
  /// micro-batches that a forward's weights lack. `local_staleness` is the most that they lack of
  /// their own pipeline: M - 1 in a run of any length, 0 with a flush. `global_staleness` (servers
  /// only) is the most that they lack of another pipeline that is equally far. Its bound is (D + 1)
  /// M + M - 2, or D with a flush. With kAnyStaleness it can be all of them.
  int local_staleness = 0;
  int global_staleness = 0;
  /// For plans with K-FAC work: the most steps between the micro-batches of a factor and a gradient
  /// that its inverse multiplies, in this plan.
  int oldest_inverse = 0;
};

}  // namespace hetu
