// The moment of a run that random decisions are made of, as kernels see it. Read by keeps.h and
// heads.h.
#pragma once
#include <cstdint>

#include "ops/kernel.h"
#include "ops/philox.h"

namespace hetu::cuda {

struct Moment {
  std::uint64_t seed = 0;
  RunCounters as_given;
  const RunCounters* on_device = nullptr;  // in the place of as_given, read when the kernel runs

  Moment() = default;
  explicit Moment(const RunContext& run)
      : seed(run.seed), as_given{run.step, run.sample_offset}, on_device(run.counters) {}
  /// Of a node and a sample of the micro-batch.
  HETU_HD PhiloxStream stream(std::uint64_t name_hash, std::int64_t sample) const {
    const RunCounters now = on_device != nullptr ? *on_device : as_given;
    return PhiloxStream::of(seed, name_hash, now.step, now.sample_offset + sample);
  }
};

}  // namespace hetu::cuda
