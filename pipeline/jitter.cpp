#include "pipeline/jitter.h"

#include <cmath>

#include "graph/base/mix.h"

namespace hetu {
namespace {

// Uniform in (0, 1); `stream` tells draws of one instruction apart.
double uniform(std::uint64_t seed, int worker, std::int64_t index, std::uint64_t stream) {
  const std::uint64_t bits =
      mix(mix(mix(seed) ^ static_cast<std::uint64_t>(worker)) ^ static_cast<std::uint64_t>(index)) ^
      mix(stream);
  return (static_cast<double>(mix(bits) >> 11) + 0.5) * 0x1p-53;
}

}  // namespace

double jitter_factor(std::uint64_t seed, int worker, std::int64_t index, double strength) {
  if (strength == 0) return 1;
  constexpr double kTau = 6.283185307179586;
  const double radius = std::sqrt(-2 * std::log(uniform(seed, worker, index, 1)));
  return 1 + strength * std::fabs(radius * std::cos(kTau * uniform(seed, worker, index, 2)));
}

double slow_factor(const std::vector<Slowdown>& slow, int pipeline, int worker, double at) {
  double factor = 1;
  for (const Slowdown& s : slow) {
    if ((s.pipeline < 0 || s.pipeline == pipeline) && (s.worker < 0 || s.worker == worker) &&
        at >= s.from && at < s.to)
      factor *= s.factor;
  }
  return factor;
}

bool pauses(std::uint64_t seed, int worker, std::int64_t index) {
  return uniform(seed, worker, index, 3) < 0.1;
}

}  // namespace hetu
