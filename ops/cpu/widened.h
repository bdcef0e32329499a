// Kernels of float32 for values of bfloat16 and float16: what is read is widened into scratch, what
// is made is rounded on its way out. What no kernel of its own has, runs so.
#pragma once
#include <cstdint>
#include <vector>

#include "base/bfloat16.h"
#include "base/float16.h"
#include "ops/kernel.h"

namespace hetu::cpu {

/// The same node with float32 in place of bfloat16 and float16.
KernelDesc widened(KernelDesc d);

/// Inputs, or outputs, of a node that is widened, at most.
inline constexpr std::size_t kMostWidened = 8;

/// A float32 copy of an argument, `offset` bytes into scratch.
struct WideCopy {
  std::size_t argument;
  DType dtype;  ///< of what it is a copy
  std::int64_t elements, offset;
};

/// A copy of each of a node's inputs, or outputs, of two bytes an element; one behind the other
/// from `end` bytes on, whole lines of 64 bytes each. `end` moves behind them.
std::vector<WideCopy> wide_copies(const std::vector<TensorType>& types, std::int64_t& end);

/// What `prepare` makes of the widened node, for the node as it is. Inputs are widened and outputs
/// rounded to the nearest, to even; scratch holds a float32 copy of each.
PreparedKernel widened_kernel(const KernelDesc& d, PreparedKernel (*prepare)(const KernelDesc&));

/// y = x for n elements, by all threads.
void widen(const BFloat16* x, float* y, std::int64_t n);
void widen(const Float16* x, float* y, std::int64_t n);
void narrow(const float* x, BFloat16* y, std::int64_t n);
void narrow(const float* x, Float16* y, std::int64_t n);

}  // namespace hetu::cpu
