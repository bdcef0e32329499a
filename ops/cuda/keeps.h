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
  std::int64_t elements = 1;  ///< of a sample
  std::uint64_t name_hash = 0;
  Moment moment;
  DropoutRate rate;
  bool drops = false;

  Keeps() = default;  ///< keeps all
  explicit Keeps(const KernelDesc& d)
      : elements(cpu::elements_per_sample(d, d.outputs[0])),
        name_hash(d.name_hash),
        rate(DropoutRate::of(d.attrs->real("p"))) {}
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

  /// Numbers of a sample, the first of element i, whose place there is `begin`.
  struct Part {
    PhiloxStream stream;
    std::int64_t begin = 0;
  };
  HETU_HD Part part(std::int64_t i) const {
    const std::int64_t sample = quotient(i, elements);
    return {moment.stream(name_hash, sample), i - sample * elements};
  }
  /// Bit s: whether the number is kept that stands 16 s behind the first with the source of number
  /// j of a part.
  HETU_HD std::uint32_t spread(const Part& of, std::int64_t j) const {
    static_assert(PhiloxStream::kGroup == 8 * PhiloxStream::kLanes);
    const Philox4 numbers = of.stream.numbers(of.begin + j);
    std::uint32_t bits = 0;
    for (int s = 0; s < 8; ++s)
      if (rate.keeps(PhiloxStream::number(numbers, PhiloxStream::kLanes * s))) bits |= 1U << s;
    return bits;
  }
  HETU_HD bool keeps(const Part& of, std::int64_t j) const {
    const std::int64_t slot = (of.begin + j) % PhiloxStream::kGroup / PhiloxStream::kLanes;
    return (spread(of, j) >> slot & 1U) != 0;
  }
};

}  // namespace hetu::cuda
