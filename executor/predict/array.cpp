#include "executor/predict/array.h"

#include <cstdint>

#include "base/error.h"

namespace hetu {

void Array::check_element(std::size_t bytes_of_t) const {
  const std::int64_t expected = dtype_bytes(dtype);
  require(static_cast<std::int64_t>(bytes_of_t) == expected,
          "this array is {} {}, whose elements have {} bytes, but as() was called for elements of "
          "{} bytes; call it with the C++ type of {}",
          dtype_name(dtype), to_string(shape), expected, bytes_of_t, dtype_name(dtype));
}

}  // namespace hetu
