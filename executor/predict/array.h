// Dense row-major arrays in host memory: the inputs and outputs of a Predictor.
#pragma once
#include <cstddef>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/shape.h"

namespace hetu {

/// An array whose elements belong to the caller.
struct ArrayView {
  DType dtype = DType::Float32;
  Shape shape;
  const void* data = nullptr;
};

/// An array that owns its elements.
struct Array {
  DType dtype = DType::Float32;
  Shape shape;
  std::vector<std::byte> bytes;

  /// Returns the elements as T, whose size must be that of one element (asserted).
  template <class T>
  const T* as() const {
    HETU_ASSERT(static_cast<std::int64_t>(sizeof(T)) == dtype_bytes(dtype));
    return reinterpret_cast<const T*>(bytes.data());
  }
};

}  // namespace hetu
