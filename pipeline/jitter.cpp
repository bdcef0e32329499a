#include "pipeline/jitter.h"

#include <cmath>

namespace hetu {
namespace {

// The finalizer of SplitMix64: every input bit moves every output bit.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

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

bool pauses(std::uint64_t seed, int worker, std::int64_t index) {
  return uniform(seed, worker, index, 3) < 0.1;
}

}  // namespace hetu
