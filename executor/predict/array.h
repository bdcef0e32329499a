// Dense row-major arrays in host memory: the inputs and outputs of a Predictor.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/element_type.h"
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

  /// Returns the elements as T. Throws InvalidArgument, naming the dtype, unless T is the type of
  /// its elements (holds_element).
  template <class T>
  const T* as() const {
    if (!holds_element<T>(dtype)) refuse_type(element_text<T>());
    return reinterpret_cast<const T*>(bytes.data());
  }

 private:
  [[noreturn]] void refuse_type(const std::string& given) const;
};

/// The outputs of a Predictor.
using NamedArrays = NamedValues<Array>;

}  // namespace hetu
