// The C++ types of elements. as<T>() of arrays and batches checks its type with these functions.
#pragma once
#include <string>
#include <type_traits>

#include "base/dtype.h"

namespace hetu {

/// Returns true if the C++ type T holds one element of this dtype. Integers may have any type of
/// the same size and sign. A two-byte float is a class such as BFloat16, or an unsigned integer
/// with its bits. A bool may be an unsigned byte.
template <class T>
constexpr bool holds_element(DType dtype) {
  constexpr bool is_signed = std::is_integral_v<T> && std::is_signed_v<T>;
  switch (dtype) {
    case DType::Float32:
      return std::is_same_v<T, float>;
    case DType::Float64:
      return std::is_same_v<T, double>;
    case DType::BFloat16:
    case DType::Float16:
      return sizeof(T) == 2 && (std::is_class_v<T> || std::is_unsigned_v<T>);
    case DType::Int32:
      return sizeof(T) == 4 && is_signed;
    case DType::Int64:
      return sizeof(T) == 8 && is_signed;
    case DType::Int8:
      return sizeof(T) == 1 && is_signed;
    case DType::Bool:
      return sizeof(T) == 1 && std::is_unsigned_v<T>;
  }
  return false;
}

/// Describes a C++ type for messages, such as "integers of 4 bytes".
template <class T>
std::string element_text() {
  const std::string kind = std::is_floating_point_v<T> ? "floating-point numbers"
                           : std::is_integral_v<T>     ? "integers"
                                                       : "elements";
  const std::string bytes = std::to_string(sizeof(T));
  return (std::is_unsigned_v<T> ? "unsigned " : "") + kind + " of " + bytes + " bytes";
}

/// Returns the C++ type for elements of this dtype: "float", "std::int32_t", …
const char* element_type_name(DType dtype);

}  // namespace hetu
