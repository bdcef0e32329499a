// What the proof of a plan finds on its way: copies, versions and peaks. The stage compiler reads
// it.
#pragma once
#include <cstdint>
#include <vector>

namespace hetu {

/// What one placement needs at most.
struct StageNeeds {
  int forward_copies = 0;   ///< micro-batches between F and B (or I): copies of what F saves
  int split_copies = 0;     ///< micro-batches between I and W: copies of what I keeps for W
  int live_copies = 0;      ///< micro-batches between F and the end of their backward
  int weight_versions = 1;  ///< weight versions alive at once
  int updates = 0;          ///< in the whole plan
  int tap_copies = 0;       ///< micro-batches kept for K-FAC, from F to the last CURVATURE
};

struct VerifyReport {
  std::vector<double>
      peak_activations;            ///< per worker, in micro-batches: F +1/V, B -1/V, I, W half
  std::vector<StageNeeds> stages;  ///< per placement
  /// Weight version, in updates, of the forward of micro-batch m on placement p: at p * (micro-
  /// batches of the plan) + m. Empty for plans without updates.
  std::vector<std::int32_t> versions;
  /// Of plans whose versions go by waves, or with servers: the most updates, of those of the
  /// micro-batches before, that a forward's weights lack of its own pipeline (in a run of any
  /// length M - 1; none with a flush), and, with servers, of another one that is as far (at most (D
  /// + 1) M + M - 2; D with a flush; all where any staleness goes).
  int local_staleness = 0;
  int global_staleness = 0;
  /// Of plans with K-FAC's work: the most steps between the micro-batches of a factor and a
  /// gradient that its inverse multiplies, in this plan.
  int oldest_inverse = 0;
};

}  // namespace hetu
