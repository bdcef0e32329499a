// Counter-based random numbers (Philox4x32-10), and the definition of the elements that dropout
// keeps. A decision depends only on seed, node name, step, global sample index and element. So it
// is the same under every schedule, micro-batch size and kernel. Source: Salmon, Moraes, Dror, Shaw
// 2011, "Parallel random numbers: as easy as 1, 2, 3", section 4.
#pragma once
#include <cstdint>

#include "ops/scalar_fns.h"

namespace hetu {

/// A 128-bit counter or random number.
struct Philox4 {
  std::uint32_t word[4];
};

/// Constants of Philox4x32-10.
inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53u;
inline constexpr std::uint32_t kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9u;  // golden ratio
inline constexpr std::uint32_t kPhiloxWeyl1 = 0xBB67AE85u;  // sqrt(3) - 1
inline constexpr int kPhiloxRounds = 10;

/// Returns the 128 random bits that Philox4x32-10 computes from a 128-bit counter and a 64-bit key.
HETU_HD inline Philox4 philox4x32(Philox4 counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t p0 = std::uint64_t{kPhiloxMultiplier0} * counter.word[0];
    const std::uint64_t p1 = std::uint64_t{kPhiloxMultiplier1} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(p1 >> 32) ^ counter.word[1] ^ key0,
                static_cast<std::uint32_t>(p1),
                static_cast<std::uint32_t>(p0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<std::uint32_t>(p0)}};
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return counter;
}

/// A stream of 16-bit random numbers, one per element. Dropout has a stream per sample and decides
/// with it which elements to keep. Optimizers with bfloat16 states round stochastically with it
/// (round_states in ops/optimizer.h).
///
/// Elements come in groups of 128. A group uses 16 counters that give eight numbers each. Element
/// 16 * slot + lane of a group takes number `slot` of counter `lane`, so vector kernels need no
/// shuffles.
struct PhiloxStream {
  static constexpr std::int64_t kGroup = 128;
  static constexpr int kLanes = 16;

  std::uint32_t key0 = 0, key1 = 0;
  std::uint32_t counter1 = 0, counter2 = 0, counter3 = 0;

  /// Returns the stream of one sample. `sample` is the index within the global batch. step and
  /// sample must be below 2^48, elements of a sample below 2^35.
  HETU_HD static PhiloxStream of(std::uint64_t seed, std::uint64_t name_hash, std::int64_t step,
                                 std::int64_t sample) {
    const std::uint64_t key = seed ^ name_hash;
    const auto s = static_cast<std::uint64_t>(sample), t = static_cast<std::uint64_t>(step);
    return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32),
            static_cast<std::uint32_t>(s), static_cast<std::uint32_t>(t),
            static_cast<std::uint32_t>(((s >> 32) << 16) | ((t >> 32) & 0xffffu))};
  }

  /// Returns the 128 bits that hold the number of `element`, and the numbers of the elements of its
  /// group at distances that are multiples of 16.
  HETU_HD Philox4 numbers(std::int64_t element) const {
    const auto lane = static_cast<std::uint32_t>(element % kLanes);
    const auto block = static_cast<std::uint32_t>(element / kGroup) * kLanes + lane;
    return philox4x32({{block, counter1, counter2, counter3}}, key0, key1);
  }
  /// Extracts the number of `element` from the result of numbers().
  HETU_HD static std::uint32_t number(const Philox4& of, std::int64_t element) {
    const auto slot = static_cast<std::uint32_t>(element % kGroup) / kLanes;
    return (of.word[slot / 2] >> (16 * (slot % 2))) & 0xffffu;
  }
  /// Returns the 16 random bits of one element.
  HETU_HD std::uint32_t bits(std::int64_t element) const {
    return number(numbers(element), element);
  }
};

/// The probability of dropping an element, rounded to 1/65536, and the scale that keeps the mean
/// exact.
struct DropoutRate {
  std::uint32_t threshold = 0;  ///< an element is dropped if its 16 bits are below this
  double scale = 1;             ///< 1 / (1 - threshold / 65536)

  /// Returns the rate for p in [0, 1). The result never drops everything.
  HETU_HD static DropoutRate of(double p) {
    double t = p * 65536.0 + 0.5;
    if (t > 65535.0) t = 65535.0;
    const auto threshold = static_cast<std::uint32_t>(t);
    return {threshold, 65536.0 / (65536.0 - threshold)};
  }
  HETU_HD bool keeps(std::uint32_t bits) const { return bits >= threshold; }
};

}  // namespace hetu
