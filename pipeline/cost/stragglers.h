// Stragglers injected on purpose, as pure functions, so that the simulator, a rehearsal and a
// training draw the same ones. Workers are global (pipeline * workers + worker).
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "base/fields.h"

namespace hetu {

/// Factor of one instruction's time: 1 + strength * |N(0, 1)|. A function of its arguments alone;
/// `index` counts the compute instructions (F, B, I, W, R) before it in its row, so that lowering
/// changes no draw.
double jitter_factor(std::uint64_t seed, int worker, std::int64_t index, double strength);

/// True with probability 0.1: whether this instruction first pauses (`--hetero`). Arguments as
/// above.
bool pauses(std::uint64_t seed, int worker, std::int64_t index);

/// A worker, or all workers of a pipeline, that takes `factor` times as long, and `least` at least,
/// for what it starts in [from, to).
struct Slowdown {
  int pipeline = -1;
  int worker = -1;
  double factor = 1;
  double least =
      0;  ///< and nothing takes less: a device whose speed no other load on the machine moves
  double from = 0;
  double to = std::numeric_limits<double>::infinity();
};

/// What may be told of a slowdown: the keys of --slow.
Fields fields(Slowdown& slow);

/// What `time` becomes of what `worker` of `pipeline` starts at `at`: times the factors of all that
/// meet it, and the longest of their least times.
double slowed_time(const std::vector<Slowdown>& slow, int pipeline, int worker, double at,
                   double time);

/// What is injected into a run.
struct Stragglers {
  double jitter = 0;  ///< strength, see jitter_factor
  std::uint64_t seed = 0;
  double hetero = 0;  ///< pause of this length before one compute instruction in ten
  std::vector<Slowdown> slow = {};
};

/// What may be told of stragglers. `slow` takes one slowdown at a time, and refuses one that names
/// neither factor nor least, or neither or both of pipeline and worker.
Fields fields(Stragglers& stragglers);

/// Throws InvalidArgument: stragglers of nothing that is there, or by no number. `workers` counts
/// those of all pipelines.
void check_stragglers(const Stragglers& stragglers, int pipelines, int workers);

}  // namespace hetu
