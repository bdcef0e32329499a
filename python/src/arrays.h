// Conversion of tensors in host memory to NumPy arrays, and of NumPy types to Hetu's.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"

namespace hetu {

/// Returns a dense, row-major array that owns its elements. `Float` is the element type that Python
/// sees; a const type makes the array read-only.
template <class Float, class Element>
nanobind::object own_array(std::vector<Element> values, const std::vector<std::size_t>& shape) {
  auto* const kept = new std::vector<Element>(std::move(values));
  const nanobind::capsule owner(
      kept, [](void* held) noexcept { delete static_cast<std::vector<Element>*>(held); });
  return nanobind::cast(
      nanobind::ndarray<nanobind::numpy, Float>(kept->data(), shape.size(), shape.data(), owner));
}
/// As above, for bytes of any dtype. `give_back` receives the bytes when Python destroys the array.
/// Without it the bytes are freed.
nanobind::object own_array(DType dtype, const Shape& shape, std::vector<std::byte> bytes,
                           std::function<void(std::vector<std::byte>)> give_back = {});

/// Returns the dtype for an element type of NumPy. Throws InvalidArgument, and names the array, if
/// Hetu has no such type.
DType dtype_of(nanobind::dlpack::dtype type, const std::string& name);

}  // namespace hetu
