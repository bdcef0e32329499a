// The state of a run from which random decisions are derived. Used by keeps.h and heads.h.
#pragma once
#include <cstdint>

#include "ops/kernel.h"
#include "ops/philox.h"

namespace hetu::cuda {

struct Moment {
  std::uint64_t seed = 0;
  RunCounters as_given;
  const RunCounters* on_device = nullptr;  // replaces as_given, read while the kernel runs

  Moment() = default;
  explicit Moment(const RunContext& run)
      : seed(run.seed), as_given{run.step, run.sample_offset}, on_device(run.counters) {}
  /// Returns the random stream of a node and a sample of the micro-batch.
  HETU_HD PhiloxStream stream(std::uint64_t name_hash, std::int64_t sample) const {
    const RunCounters now = on_device != nullptr ? *on_device : as_given;
    return PhiloxStream::of(seed, name_hash, now.step, now.sample_offset + sample);
  }
};

}  // namespace hetu::cuda
