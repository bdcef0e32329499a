#include "ops/cpu/pair_panels.h"

#include <immintrin.h>

#include <bit>

namespace hetu::cpu::panels {
namespace {

struct OfPairs {
  static Vec add(Vec sum, float a, Vec b) {
    const __m512i each = _mm512_set1_epi32(std::bit_cast<int>(a));
    return std::bit_cast<Vec>(_mm512_dpbf16_ps(
        std::bit_cast<__m512>(sum), std::bit_cast<__m512bh>(each), std::bit_cast<__m512bh>(b)));
  }
};

}  // namespace

bool has_pair_instruction() { return true; }

void multiply_pairs(const Panels& from, const Into& to, std::int64_t rows, std::int64_t columns,
                    bool apart) {
  multiply_either<OfPairs>(from, to, rows, columns, apart);
}

}  // namespace hetu::cpu::panels
