// Tests known answers of Philox4x32-10, and the statistics of dropout's decisions.
#include "ops/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "ops/cpu/dropout_factors.h"
#include "ops/kernel.h"

namespace hetu::test {
namespace {

struct Known {
  Philox4 counter;
  std::uint32_t key0, key1;
  Philox4 want;
};

// Source: Random123 1.14 (D. E. Shaw Research), tests/kat_vectors, lines "philox4x32 10". The third
// uses digits of pi.
const Known kKnown[] = {
    {{{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
    {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
     0xffffffff,
     0xffffffff,
     {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
    {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
     0xa4093822,
     0x299f31d0,
     {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
};

TEST(Philox, GivesThePublishedAnswers) {
  for (const Known& k : kKnown) {
    const Philox4 got = philox4x32(k.counter, k.key0, k.key1);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(got.word[i], k.want.word[i]) << "word " << i;
  }
}

TEST(Philox, HashOfNamesIsFnv1a) {
  // Source: http://www.isthe.com/chongo/tech/comp/fnv, test vectors of 64-bit FNV-1a.
  EXPECT_EQ(stable_hash(""), 0xcbf29ce484222325ull);
  EXPECT_EQ(stable_hash("a"), 0xaf63dc4c8601ec8cull);
  EXPECT_EQ(stable_hash("foobar"), 0x85944171f73967e8ull);
}

TEST(Dropout, EveryArgumentChangesTheDecisions) {
  const auto pattern = [](std::uint64_t seed, std::uint64_t name, std::int64_t step,
                          std::int64_t sample) {
    const auto s = PhiloxStream::of(seed, name, step, sample);
    std::vector<std::uint32_t> bits;
    for (int i = 0; i < 256; ++i) bits.push_back(s.bits(i));
    return bits;
  };
  const auto base = pattern(1, 2, 3, 4);
  EXPECT_EQ(base, pattern(1, 2, 3, 4));
  EXPECT_NE(base, pattern(5, 2, 3, 4));
  EXPECT_NE(base, pattern(1, 5, 3, 4));
  EXPECT_NE(base, pattern(1, 2, 5, 4));
  EXPECT_NE(base, pattern(1, 2, 3, 5));
  EXPECT_NE(base, pattern(1, 2, 4, 3));
  constexpr std::int64_t kFar = std::int64_t{1} << 40;  // beyond 32 bits
  EXPECT_NE(base, pattern(1, 2, 3 + kFar, 4));
  EXPECT_NE(base, pattern(1, 2, 3, 4 + kFar));
}

TEST(Dropout, LanesAgreeWithTheScalarFunctionAtAnyRange) {
  std::mt19937_64 random(17);
  for (int trial = 0; trial < 200; ++trial) {
    const auto stream =
        PhiloxStream::of(random(), random(), static_cast<std::int64_t>(random() >> 20),
                         static_cast<std::int64_t>(random() >> 20));
    const DropoutRate rate = DropoutRate::of(double(random() % 1000) / 1000);
    const auto begin = static_cast<std::int64_t>(random() % (std::uint64_t{1} << 34));
    const auto n = static_cast<std::int64_t>(random() % 700);
    std::vector<float> factors(static_cast<std::size_t>(n));
    cpu::dropout_factors(stream, rate, begin, n, factors.data());
    for (std::int64_t i = 0; i < n; ++i)
      ASSERT_EQ(factors[static_cast<std::size_t>(i)],
                rate.keeps(stream.bits(begin + i)) ? static_cast<float>(rate.scale) : 0.0f)
          << "trial " << trial << ", element " << begin + i;
  }
}

// Counts are binomial. The bound is five standard deviations, for rows, columns and lag-one pairs.
TEST(Dropout, RateIsTheOneAskedForAndNeighboursAreIndependent) {
  for (const double p : {0.1, 0.5, 0.9}) {
    const DropoutRate rate = DropoutRate::of(p);
    const double drop = rate.threshold / 65536.0;
    EXPECT_NEAR(drop, p, 1.0 / 131072);
    EXPECT_DOUBLE_EQ(rate.scale * (1 - drop), 1.0);
    constexpr int kSamples = 64, kElements = 1 << 14;
    double dropped = 0, pairs = 0, across = 0;
    std::vector<float> last(kElements, 1.0f), now(kElements);
    for (int s = 0; s < kSamples; ++s) {
      cpu::dropout_factors(PhiloxStream::of(9, stable_hash("layer"), 3, s), rate, 0, kElements,
                           now.data());
      for (int i = 0; i < kElements; ++i) {
        const bool d = now[static_cast<std::size_t>(i)] == 0;
        dropped += d;
        pairs += d && i > 0 && now[static_cast<std::size_t>(i - 1)] == 0;
        across += d && s > 0 && last[static_cast<std::size_t>(i)] == 0;
      }
      last.swap(now);
    }
    const double n = double(kSamples) * kElements, both = drop * drop;
    EXPECT_NEAR(dropped, n * drop, 5 * std::sqrt(n * drop * (1 - drop))) << "p " << p;
    // Overlapping pairs share an element, which increases the variance. A factor of 2 covers it.
    EXPECT_NEAR(pairs, (n - kSamples) * both, 10 * std::sqrt(n * both)) << "p " << p;
    EXPECT_NEAR(across, (n - kElements) * both, 10 * std::sqrt(n * both)) << "p " << p;
  }
}

TEST(Dropout, RatesAtTheEdge) {
  EXPECT_EQ(DropoutRate::of(0).threshold, 0u);
  EXPECT_EQ(DropoutRate::of(0).scale, 1.0);
  EXPECT_LT(DropoutRate::of(0.999999).threshold, 65536u);
}

}  // namespace
}  // namespace hetu::test
