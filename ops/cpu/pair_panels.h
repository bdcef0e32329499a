// Micro-kernels of bfloat16 products. Panels are as in product_panels.h, but each element is a
// pair: two bfloat16 numbers that are adjacent along the depth. There are two sources, one with
// AVX-512-BF16 and one without.
#pragma once
#include "ops/cpu/product_panels.h"

namespace hetu::cpu::panels {

/// Returns true if this build has an instruction that multiplies pairs.
bool has_pair_instruction();

/// As multiply() of product_panels.h, with RowsApart or RowsTogether for A's panel.
void multiply_pairs(const Panels& from, const Into& to, std::int64_t rows, std::int64_t columns,
                    bool apart);

}  // namespace hetu::cpu::panels
