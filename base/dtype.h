// Element types of values and tensors.
#pragma once
#include <cstdint>
#include <string_view>

namespace hetu {

enum class DType : std::uint8_t { Float32, Float64, BFloat16, Float16, Int32, Int64, Int8, Bool };

/// Bytes of one element.
std::int64_t dtype_bytes(DType dtype);

/// "float32", "bfloat16", "int32", …
const char* dtype_name(DType dtype);

/// The inverse of dtype_name. Throws InvalidArgument, naming the known ones.
DType parse_dtype(std::string_view name);

/// True for float32, float64, bfloat16 and float16.
bool is_floating(DType dtype);

/// True for the floats of two bytes, which kernels widen: bfloat16 and float16.
constexpr bool is_narrow(DType dtype) {
  return dtype == DType::BFloat16 || dtype == DType::Float16;
}

}  // namespace hetu
