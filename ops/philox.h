// Counter-based random numbers: Philox4x32-10, and the one statement of which elements dropout
// keeps. A decision is a function of seed, node name, step, global sample index and element, and of
// nothing else, so it is the same under every schedule, micro-batch size and kernel.
// Source: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3",
// section 4.
#pragma once
#include <cstdint>

#include "ops/scalar_fns.h"

namespace hetu {

struct Philox4 {
  std::uint32_t word[4];
};

inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53u;
inline constexpr std::uint32_t kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9u;  // golden ratio
inline constexpr std::uint32_t kPhiloxWeyl1 = 0xBB67AE85u;  // sqrt(3) - 1
inline constexpr int kPhiloxRounds = 10;

/// Philox4x32-10: 128 random bits of a 128-bit counter under a 64-bit key.
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

/// Random numbers of 16 bits, one per element: of a sample, for dropout to keep it or not; of an
/// optimizer's state in bfloat16, to round it up or down (round_states of ops/optimizer.h).
/// Elements come in groups of 128, made by 16 counters that give eight numbers each; element
/// 16 * slot + lane of a group takes number `slot` of counter `lane`, so that vector kernels need
/// no shuffles.
struct PhiloxStream {
  static constexpr std::int64_t kGroup = 128;
  static constexpr int kLanes = 16;

  std::uint32_t key0 = 0, key1 = 0;
  std::uint32_t counter1 = 0, counter2 = 0, counter3 = 0;

  /// `sample` is the index within the global batch. step and sample below 2^48, elements of a
  /// sample below 2^35.
  HETU_HD static PhiloxStream of(std::uint64_t seed, std::uint64_t name_hash, std::int64_t step,
                                 std::int64_t sample) {
    const std::uint64_t key = seed ^ name_hash;
    const auto s = static_cast<std::uint64_t>(sample), t = static_cast<std::uint64_t>(step);
    return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32),
            static_cast<std::uint32_t>(s), static_cast<std::uint32_t>(t),
            static_cast<std::uint32_t>(((s >> 32) << 16) | ((t >> 32) & 0xffffu))};
  }

  /// What the numbers of an element, and of those of its group that are multiples of 16 apart, are
  /// taken from.
  HETU_HD Philox4 numbers(std::int64_t element) const {
    const auto lane = static_cast<std::uint32_t>(element % kLanes);
    const auto block = static_cast<std::uint32_t>(element / kGroup) * kLanes + lane;
    return philox4x32({{block, counter1, counter2, counter3}}, key0, key1);
  }
  HETU_HD static std::uint32_t number(const Philox4& of, std::int64_t element) {
    const auto slot = static_cast<std::uint32_t>(element % kGroup) / kLanes;
    return (of.word[slot / 2] >> (16 * (slot % 2))) & 0xffffu;
  }
  /// The 16 random bits of one element.
  HETU_HD std::uint32_t bits(std::int64_t element) const {
    return number(numbers(element), element);
  }
};

/// The probability of dropping, rounded to 1/65536, and the scale that keeps the mean exact.
struct DropoutRate {
  std::uint32_t threshold = 0;  ///< an element is dropped if its 16 bits are below
  double scale = 1;             ///< 1 / (1 - threshold / 65536)

  /// p in [0, 1); the result never drops everything.
  HETU_HD static DropoutRate of(double p) {
    double t = p * 65536.0 + 0.5;
    if (t > 65535.0) t = 65535.0;
    const auto threshold = static_cast<std::uint32_t>(t);
    return {threshold, 65536.0 / (65536.0 - threshold)};
  }
  HETU_HD bool keeps(std::uint32_t bits) const { return bits >= threshold; }
};

}  // namespace hetu
