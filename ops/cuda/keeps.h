// Which elements dropout keeps, by the CPU's decisions. Read by the kernels alone.
#pragma once
#include <cstdint>

#include "ops/cpu/kernel_shapes.h"
#include "ops/cuda/moment.h"
#include "ops/cuda/work.h"

namespace hetu::cuda {

/// Of a node over samples of `elements` elements: an element, dropped or scaled. In validation, as
/// it is.
struct Keeps {
  std::int64_t elements;  ///< of a sample
  std::uint64_t name_hash;
  Moment moment;
  DropoutRate rate;
  bool drops;

  explicit Keeps(const KernelDesc& d)
      : elements(cpu::elements_per_sample(d, d.outputs[0])),
        name_hash(d.name_hash),
        rate(DropoutRate::of(d.attrs->real("p"))),
        drops(false) {}
  Keeps in(const RunContext& run) const {
    Keeps now = *this;
    now.moment = Moment(run);
    now.drops = run.training;
    return now;
  }
  HETU_HD float operator()(std::int64_t i, float x) const {
    if (!drops) return x;
    const std::int64_t sample = quotient(i, elements);
    const auto stream = moment.stream(name_hash, sample);
    return rate.keeps(stream.bits(i - sample * elements)) ? x * static_cast<float>(rate.scale)
                                                          : 0.0F;
  }
};

}  // namespace hetu::cuda
