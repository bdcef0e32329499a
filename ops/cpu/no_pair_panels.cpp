// The version of pair_panels for builds without the instruction, in float32. It is as exact. It is
// slower than oneDNN on a processor with instructions that the build doesn't use.
#include <bit>

#include "ops/cpu/pair_panels.h"

namespace hetu::cpu::panels {
namespace {

struct OfPairs {
  static Vec add(Vec sum, float a, Vec b) {
    using Bits = std::uint32_t __attribute__((vector_size(kBytes)));
    const auto word = std::bit_cast<std::uint32_t>(a);
    const auto words = std::bit_cast<Bits>(b);
    sum += std::bit_cast<float>(word & 0xffff0000u) * std::bit_cast<Vec>(words & 0xffff0000u);
    return sum + std::bit_cast<float>(word << 16) * std::bit_cast<Vec>(words << 16);
  }
};

}  // namespace

bool has_pair_instruction() { return false; }

void multiply_pairs(const Panels& from, const Into& to, std::int64_t rows, std::int64_t columns,
                    bool apart) {
  multiply_either<OfPairs>(from, to, rows, columns, apart);
}

}  // namespace hetu::cpu::panels
