// Element types of values and tensors.
#pragma once
#include <cstdint>
#include <string_view>

namespace hetu {

enum class DType : std::uint8_t { Float32, Float64, BFloat16, Float16, Int32, Int64, Int8, Bool };

/// Returns the bytes of one element.
std::int64_t dtype_bytes(DType dtype);

/// Returns the name: "float32", "bfloat16", "int32", …
const char* dtype_name(DType dtype);

/// Inverts dtype_name. Throws InvalidArgument and lists the known names.
DType parse_dtype(std::string_view name);

/// Returns true for float32, float64, bfloat16 and float16.
bool is_floating(DType dtype);

/// Returns true for the two-byte floats bfloat16 and float16, which kernels widen.
constexpr bool is_narrow(DType dtype) {
  return dtype == DType::BFloat16 || dtype == DType::Float16;
}

}  // namespace hetu
