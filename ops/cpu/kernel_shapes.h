// What kernels read out of a KernelDesc, and how a reference kernel is made for float32 and float64
// alike. Reference kernels take float64 too, so that gradients can be checked to many digits, and
// bfloat16 by widening it.
#pragma once
#include <cstdint>
#include <string>

#include "base/error.h"
#include "ops/cpu/widened.h"
#include "ops/kernel.h"

namespace hetu::cpu {

/// Below this many elements a loop is not worth waking other threads for.
inline constexpr std::int64_t kParallelElements = 1 << 14;

/// A tensor seen as a matrix: all dimensions but the last, flattened, by the last.
struct Rows {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t elements() const { return rows * columns; }
};

inline Rows rows_of(const TensorType& type) {
  Rows r;
  if (type.shape.empty()) return r;
  r.columns = type.shape.back();
  for (std::size_t i = 0; i + 1 < type.shape.size(); ++i) r.rows *= type.shape[i];
  return r;
}

inline std::int64_t count_of(const TensorType& type) { return rows_of(type).elements(); }

/// Elements of one sample. Throws Internal if the batch does not divide the tensor.
inline std::int64_t elements_per_sample(const KernelDesc& d, const TensorType& type) {
  HETU_ASSERT(d.batch > 0 && count_of(type) % d.batch == 0);
  return count_of(type) / d.batch;
}

/// The floating type in which a kernel computes: that of its first floating input, else output.
inline DType computing_type(const KernelDesc& d) {
  for (const TensorType& t : d.inputs)
    if (is_floating(t.dtype)) return t.dtype;
  for (const TensorType& t : d.outputs)
    if (is_floating(t.dtype)) return t.dtype;
  return DType::Float32;
}

/// The condition of most fast rows: float32 throughout.
inline bool is_float32(const KernelDesc& d) { return computing_type(d) == DType::Float32; }

inline bool is_bfloat16(const KernelDesc& d) { return computing_type(d) == DType::BFloat16; }

/// A reference row from `Body<T>`: constructed from the KernelDesc, called with the KernelCall.
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
           "{} '{}': no CPU kernel for {}; float32, bfloat16 and float16 (and float64 for checks) "
           "are "
           "there",
           d.op, d.name, dtype_name(computing_type(d)));
  }
}

/// A fast row from a float32 body without scratch.
template <class Body>
PreparedKernel vector_kernel(const KernelDesc& d) {
  return {Body(d), 0, "vector"};
}

/// The condition of fast rows whose body loads and stores either.
inline bool is_float32_or_bfloat16(const KernelDesc& d) { return is_float32(d) || is_bfloat16(d); }

/// A fast row from `Body<T>`, of T as the floats lie in memory; it computes in float32.
template <template <class> class Body>
PreparedKernel vector_either(const KernelDesc& d) {
  return is_bfloat16(d) ? vector_kernel<Body<BFloat16>>(d) : vector_kernel<Body<float>>(d);
}

/// Throws InvalidArgument, naming the node, unless every index is in [0, below) or, where allowed,
/// equal to `ignore`. Called before a parallel region, which no exception may leave.
inline void check_indices(const std::string& node, const std::int32_t* ids, std::int64_t n,
                          std::int64_t below, std::int64_t ignore) {
  for (std::int64_t i = 0; i < n; ++i)
    if (ids[i] != ignore && (ids[i] < 0 || ids[i] >= below))
      fail(Code::InvalidArgument, "'{}': index {} at position {} is outside [0, {})", node, ids[i],
           i, below);
}

}  // namespace hetu::cpu
