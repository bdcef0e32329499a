// Values that kernels derive from a KernelDesc, and a template for reference kernels. Reference
// kernels also accept float64, so that gradients can be checked to many digits. They accept 16-bit
// floats by widening them.
#pragma once
#include <cstdint>

#include "base/error.h"
#include "ops/cpu/widened.h"
#include "ops/kernel.h"

namespace hetu::cpu {

/// Loops over fewer elements run on one thread, because waking other threads costs more.
inline constexpr std::int64_t kParallelElements = 1 << 14;

/// A tensor viewed as a matrix. The last dimension gives the columns, and all others are flattened
/// to rows.
struct Rows {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t elements() const { return rows * columns; }
};

/// Returns the tensor's view as a matrix. A scalar is one row with one column.
inline Rows rows_of(const TensorType& type) {
  Rows r;
  if (type.shape.empty()) return r;
  r.columns = type.shape.back();
  for (std::size_t i = 0; i + 1 < type.shape.size(); ++i) r.rows *= type.shape[i];
  return r;
}

/// Returns the number of elements of a tensor whose batch is bound.
inline std::int64_t count_of(const TensorType& type) { return rows_of(type).elements(); }

/// Returns the number of elements of one sample. Throws Internal if the batch doesn't divide the
/// tensor.
inline std::int64_t elements_per_sample(const KernelDesc& d, const TensorType& type) {
  HETU_ASSERT(d.batch > 0 && count_of(type) % d.batch == 0);
  return count_of(type) / d.batch;
}

/// Returns the floating-point type in which a kernel computes: that of its first floating-point
/// input, else output.
inline DType computing_type(const KernelDesc& d) {
  for (const TensorType& t : d.inputs)
    if (is_floating(t.dtype)) return t.dtype;
  for (const TensorType& t : d.outputs)
    if (is_floating(t.dtype)) return t.dtype;
  return DType::Float32;
}

/// Returns true if the node computes in float32: the condition of most fast rows.
inline bool is_float32(const KernelDesc& d) { return computing_type(d) == DType::Float32; }

inline bool is_bfloat16(const KernelDesc& d) { return computing_type(d) == DType::BFloat16; }

/// Prepares a reference kernel from `Body<T>`, which is constructed from the KernelDesc and called
/// with the KernelCall.
template <template <class> class Body>
PreparedKernel reference(const KernelDesc& d) {
  switch (computing_type(d)) {
    case DType::BFloat16:
    case DType::Float16:
      return widened_kernel(d, reference<Body>);
    case DType::Float32:
      return {Body<float>(d), 0, "reference"};
    case DType::Float64:
      return {Body<double>(d), 0, "reference"};
    default:
      fail(Code::Unsupported,
           "{} '{}': no CPU kernel for {}; supported types: float32, bfloat16 and float16 (and "
           "float64 for checks)",
           d.op, d.name, dtype_name(computing_type(d)));
  }
}

/// Prepares a fast kernel from a float32 body without scratch memory.
template <class Body>
PreparedKernel vector_kernel(const KernelDesc& d) {
  return {Body(d), 0, "vector"};
}

/// Returns true if the node computes in float32 or bfloat16: the condition of fast rows that load
/// and store both.
inline bool is_float32_or_bfloat16(const KernelDesc& d) { return is_float32(d) || is_bfloat16(d); }

/// Prepares a fast kernel from `Body<T>`, where T is the type in memory. The body computes in
/// float32.
template <template <class> class Body>
PreparedKernel vector_either(const KernelDesc& d) {
  return is_bfloat16(d) ? vector_kernel<Body<BFloat16>>(d) : vector_kernel<Body<float>>(d);
}

}  // namespace hetu::cpu
