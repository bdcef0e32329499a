// Arrays in host memory, dense and row-major: what a Predictor takes and gives.
#pragma once
#include <cstddef>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/shape.h"

namespace hetu {

/// Elements that lie elsewhere.
struct ArrayView {
  DType dtype = DType::Float32;
  Shape shape;
  const void* data = nullptr;
};

struct Array {
  DType dtype = DType::Float32;
  Shape shape;
  std::vector<std::byte> bytes;

  /// The elements as T, whose size must be that of one (asserted).
  template <class T>
  const T* as() const {
    HETU_ASSERT(static_cast<std::int64_t>(sizeof(T)) == dtype_bytes(dtype));
    return reinterpret_cast<const T*>(bytes.data());
  }
};

}  // namespace hetu
