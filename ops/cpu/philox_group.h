// The random numbers of ops/philox.h for many elements at once.
#pragma once
#include <cstdint>

#include "ops/philox.h"

namespace hetu::cpu {

/// The 16-bit numbers of a group, two per word.
struct GroupWords {
  alignas(64) std::uint32_t word[4][PhiloxStream::kLanes];
};

/// Computes the numbers of one group of 128 elements: philox4x32 on sixteen lanes. A test compares
/// them with PhiloxStream::bits.
inline void group_words(const PhiloxStream& s, std::uint32_t group, GroupWords& out) {
  constexpr int kLanes = PhiloxStream::kLanes;
#pragma omp simd
  for (int lane = 0; lane < kLanes; ++lane) {
    const Philox4 r = philox4x32(
        {{group * kLanes + static_cast<std::uint32_t>(lane), s.counter1, s.counter2, s.counter3}},
        s.key0, s.key1);
    out.word[0][lane] = r.word[0];
    out.word[1][lane] = r.word[1];
    out.word[2][lane] = r.word[2];
    out.word[3][lane] = r.word[3];
  }
}

}  // namespace hetu::cpu
