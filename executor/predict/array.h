// Dense row-major arrays in host memory: the inputs and outputs of a Predictor.
#pragma once
#include <cstddef>
#include <vector>

#include "base/dtype.h"
#include "base/named_values.h"
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

  /// Returns the elements as T. Throws InvalidArgument, naming the dtype, unless sizeof(T) is the
  /// size of one element.
  template <class T>
  const T* as() const {
    check_element(sizeof(T));
    return reinterpret_cast<const T*>(bytes.data());
  }

 private:
  void check_element(std::size_t bytes_of_t) const;
};

/// The outputs of a Predictor.
using NamedArrays = NamedValues<Array>;

}  // namespace hetu
