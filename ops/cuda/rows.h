// Construction of kernel rows from bodies, and addressing of operands that broadcast. Used only by
// the kernels.
#pragma once
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "ops/cpu/broadcast_walk.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cuda/tables.h"
#include "ops/cuda/work.h"

namespace hetu::cuda {

inline constexpr const char* kImplementation = "cuda";

/// Prepares a node's kernel in float32, with conversions of its two-byte operands before and after.
PreparedKernel widened_kernel(const KernelDesc& d, PreparedKernel (*prepare)(const KernelDesc&));

/// Makes a kernel from a body. A body is constructed from the KernelDesc and called with the
/// KernelCall. It has scratch_bytes() if it needs scratch memory.
template <class Body>
PreparedKernel kernel(const KernelDesc& d) {
  PreparedKernel made;
  const Body body(d);
  if constexpr (requires { body.scratch_bytes(); }) made.scratch_bytes = body.scratch_bytes();
  made.run = body;
  made.implementation = kImplementation;
  return made;
}

/// As above, for a body that computes in float32. Two-byte operands are converted.
template <class Body>
PreparedKernel floats(const KernelDesc& d) {
  switch (cpu::computing_type(d)) {
    case DType::BFloat16:
    case DType::Float16:
      return cuda::widened_kernel(d, floats<Body>);
    case DType::Float32:
      return kernel<Body>(d);
    default:
      fail(Code::Unsupported,
           "{} '{}': no CUDA kernel for {}; supported types: float32, bfloat16 and float16", d.op,
           d.name, dtype_name(cpu::computing_type(d)));
  }
}

/// Returns a kernel row for `op` that accepts every node.
inline KernelRow row(const char* op, PreparedKernel (*prepare)(const KernelDesc&)) {
  return {op, kImplementation, nullptr, prepare};
}

/// Axes over which positions are numbered, the last axis varying fastest, and the steps of N
/// operands along each axis.
template <int N>
struct Axes {
  static constexpr int kMost = 8;
  int count = 0;
  std::int64_t size[kMost] = {}, step[kMost][N] = {};

  void add(const char* op, std::int64_t of_size, const std::int64_t* steps) {
    if (count == kMost)
      fail(Code::Unsupported, "{}: CUDA kernels support at most {} axes", op, kMost);
    size[count] = of_size;
    for (int i = 0; i < N; ++i) step[count][i] = steps[i];
    ++count;
  }
  /// Adds the operands' offsets of position `number`, which is below the product of the sizes. The
  /// first axis takes the remaining quotient undivided.
  HETU_HD void add_places(std::int64_t number, std::int64_t* at) const {
    for (int axis = count; axis-- > 0;) {
      const std::int64_t left = axis == 0 ? 0 : quotient(number, size[axis]);
      const std::int64_t place = number - left * size[axis];
      for (int i = 0; i < N; ++i) at[i] += place * step[axis][i];
      number = left;
    }
  }
};

/// BroadcastWalk for the device: at[i] is the offset in operand i of an element of the output.
template <int N>
struct Walk {
  Axes<N> axes;
  std::int64_t elements = 0;

  explicit Walk(const KernelDesc& d) {
    const cpu::BroadcastWalk<N> walk(d);
    for (const auto& axis : walk.axes()) axes.add(kImplementation, axis.size, axis.step.data());
    std::int64_t along[N];
    for (int i = 0; i < N; ++i) along[i] = walk.step(static_cast<std::size_t>(i));
    axes.add(kImplementation, std::max<std::int64_t>(walk.row_size(), 1), along);
    elements = cpu::count_of(d.outputs[0]);
  }
  HETU_HD void places(std::int64_t element, std::int64_t* at) const {
    for (int i = 0; i < N; ++i) at[i] = 0;
    axes.add_places(element, at);
  }
};

}  // namespace hetu::cuda
