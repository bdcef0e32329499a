// Sums of several tensors in a given order.
#pragma once
#include <cstdint>
#include <vector>

#include "executor/device/device.h"

namespace hetu {

/// Enqueues the sum of terms of `elements` elements, and returns where it will be: in place of one
/// of them. The other terms are overwritten, too. `order` is in postfix form: a number from 0 on
/// puts a term on a stack, and a negative one replaces the two sums on top by their sum.
float* add_in_order(Queue& queue, const TensorKernels& kernels, const std::vector<float*>& terms,
                    const std::vector<int>& order, std::int64_t elements);

}  // namespace hetu
