// Micro-kernels of products of bfloat16: panels as in product_panels.h, whose elements are pairs,
// two numbers that follow each other along the depth. Two sources: one with AVX-512-BF16, one
// without.
#pragma once
#include "ops/cpu/product_panels.h"

namespace hetu::cpu::panels {

/// Whether this build has an instruction for a step of pairs, and the product is quick by it.
bool has_pair_instruction();

/// multiply() of product_panels.h, where rows of A's panel are read apart, or together.
void multiply_pairs(const Panels& from, const Into& to, std::int64_t rows, std::int64_t columns,
                    bool apart);

}  // namespace hetu::cpu::panels
