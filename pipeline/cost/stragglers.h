// Stragglers that are injected on purpose. They are pure functions, so that the simulator, a
// rehearsal and a training run have the same ones. Workers are global (pipeline * workers +
// worker).
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "base/fields.h"

namespace hetu {

/// Returns the factor of one instruction's time: 1 + strength * |N(0, 1)|. It depends on its
/// arguments only. `index` counts the compute instructions (F, B, I, W, R) before it in its row, so
/// that lowering changes no factor.
double jitter_factor(std::uint64_t seed, int worker, std::int64_t index, double strength);

/// Returns true, with probability 0.1, if the instruction pauses before it starts (`--hetero`). The
/// arguments are those of jitter_factor().
bool pauses(std::uint64_t seed, int worker, std::int64_t index);

/// A slowdown of a worker, or of all workers of a pipeline. Instructions that start in [from, to)
/// take `factor` times as long, and at least `least`.
struct Slowdown {
  int pipeline = -1;
  int worker = -1;
  double factor = 1;
  /// Least time of an instruction. It models a device with a speed that other load on the machine
  /// doesn't change.
  double least = 0;
  double from = 0;
  double to = std::numeric_limits<double>::infinity();
};

/// Returns the keys of --slow.
Fields fields(Slowdown& slow);

/// Returns the slowed time of an instruction that `worker` of `pipeline` starts at `at` and that
/// takes `time` otherwise. The factors of all slowdowns that apply are multiplied. The result is at
/// least the longest of their least times.
double slowed_time(const std::vector<Slowdown>& slow, int pipeline, int worker, double at,
                   double time);

/// The stragglers of a run.
struct Stragglers {
  double jitter = 0;  ///< Strength; see jitter_factor().
  std::uint64_t seed = 0;
  double hetero = 0;  ///< Length of a pause before one compute instruction in ten.
  std::vector<Slowdown> slow = {};
};

/// Returns the options for stragglers. `slow` takes one slowdown at a time. It refuses a slowdown
/// without factor and least, or with neither or both of pipeline and worker.
Fields fields(Stragglers& stragglers);

/// Checks stragglers. Throws InvalidArgument for pipelines or workers that don't exist, and for
/// numbers out of range. `workers` is the number of workers of all pipelines.
void check_stragglers(const Stragglers& stragglers, int pipelines, int workers);

}  // namespace hetu
