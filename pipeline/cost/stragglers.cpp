#include "pipeline/cost/stragglers.h"

#include <cmath>

#include "graph/base/error.h"
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

void check_stragglers(const Stragglers& o, int pipelines, int workers) {
  const auto number = [](double x, const char* what) {
    require(std::isfinite(x) && x >= 0, "{} must be a finite number >= 0, got {}", what, x);
  };
  number(o.jitter, "jitter");
  number(o.hetero, "hetero");
  for (const Slowdown& s : o.slow) {
    require(s.pipeline >= 0 || s.worker >= 0,
            "slow: names neither a pipeline nor a worker, as \"pipeline=1,factor=2\" does");
    require(std::isfinite(s.factor) && s.factor > 0, "slow: factor must be above 0, got {}",
            s.factor);
    require(s.pipeline < pipelines, "slow: pipeline {}, the job has pipelines 0…{}", s.pipeline,
            pipelines - 1);
    require(s.worker < workers, "slow: worker {}, the job has workers 0…{}", s.worker, workers - 1);
    require(s.from <= s.to, "slow: from {} is after to {}", s.from, s.to);
  }
}

}  // namespace hetu
