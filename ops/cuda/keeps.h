// Dropout decisions, equal to those of the CPU. Used only by the kernels.
#pragma once
#include <cstdint>

#include "ops/cpu/kernel_shapes.h"
#include "ops/cuda/moment.h"
#include "ops/cuda/work.h"

namespace hetu::cuda {

/// The dropout of a node. Called with an element, it returns the element scaled or 0. In validation
/// it returns the element unchanged.
struct Keeps {
  std::int64_t elements = 1;  ///< per sample
  std::uint64_t name_hash = 0;
  Moment moment;
  DropoutRate rate;
  bool drops = false;

  Keeps() = default;  ///< keeps all elements
  explicit Keeps(const KernelDesc& d)
      : elements(cpu::elements_per_sample(d, d.outputs[0])),
        name_hash(d.name_hash),
        rate(DropoutRate::of(d.attrs->real("p"))) {}
  /// Returns the dropout of a run.
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

  /// The random numbers of a sample. Number 0 belongs to element i, which has the index `begin`
  /// within the sample.
  struct Part {
    PhiloxStream stream;
    std::int64_t begin = 0;
  };
  /// Returns the random numbers of the sample of element i.
  HETU_HD Part part(std::int64_t i) const {
    const std::int64_t sample = quotient(i, elements);
    return {moment.stream(name_hash, sample), i - sample * elements};
  }
  /// Returns eight decisions from the block of random numbers that number j of a part belongs to.
  /// Bit s stands for the element 16 * s after the first element of that block.
  HETU_HD std::uint32_t spread(const Part& of, std::int64_t j) const {
    static_assert(PhiloxStream::kGroup == 8 * PhiloxStream::kLanes);
    const Philox4 numbers = of.stream.numbers(of.begin + j);
    std::uint32_t bits = 0;
    for (int s = 0; s < 8; ++s)
      if (rate.keeps(PhiloxStream::number(numbers, PhiloxStream::kLanes * s))) bits |= 1U << s;
    return bits;
  }
  /// Returns the decision about number j of a part.
  HETU_HD bool keeps(const Part& of, std::int64_t j) const {
    const std::int64_t slot = (of.begin + j) % PhiloxStream::kGroup / PhiloxStream::kLanes;
    return (spread(of, j) >> slot & 1U) != 0;
  }
};

}  // namespace hetu::cuda
