// float32 kernels for bfloat16 and float16 values. Inputs are widened into scratch memory, and
// outputs are rounded. Used for operators without a 16-bit kernel of their own.
#pragma once
#include <cstdint>
#include <vector>

#include "base/bfloat16.h"
#include "base/float16.h"
#include "ops/kernel.h"

namespace hetu::cpu {

/// Returns the same node with float32 in place of bfloat16 and float16.
KernelDesc widened(KernelDesc d);

/// Largest number of inputs, or of outputs, of a widened node.
inline constexpr std::size_t kMostWidened = 8;

/// A float32 copy of an argument at `offset` bytes in scratch memory.
struct WideCopy {
  std::size_t argument;
  DType dtype;  ///< dtype of the original
  std::int64_t elements, offset;
};

/// Plans a copy of each 16-bit input (or output) of a node. Copies follow each other from `end`
/// bytes on, each rounded up to whole lines of 64 bytes. Moves `end` past them.
std::vector<WideCopy> wide_copies(const std::vector<TensorType>& types, std::int64_t& end);

/// Prepares the widened node with `prepare` and wraps the kernel for the original node. Inputs are
/// widened, and outputs are rounded to nearest even. Scratch memory holds a float32 copy of each.
PreparedKernel widened_kernel(const KernelDesc& d, PreparedKernel (*prepare)(const KernelDesc&));

/// y = x for n elements, on all threads.
void widen(const BFloat16* x, float* y, std::int64_t n);
void widen(const Float16* x, float* y, std::int64_t n);
void narrow(const float* x, BFloat16* y, std::int64_t n);
void narrow(const float* x, Float16* y, std::int64_t n);

}  // namespace hetu::cpu
