// Tensors in host memory as NumPy arrays, and back.
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

/// An array that owns its elements, dense and row-major; `Float` may be const.
template <class Float, class Element>
nanobind::object own_array(std::vector<Element> values, const std::vector<std::size_t>& shape) {
  auto* const kept = new std::vector<Element>(std::move(values));
  const nanobind::capsule owner(
      kept, [](void* held) noexcept { delete static_cast<std::vector<Element>*>(held); });
  return nanobind::cast(
      nanobind::ndarray<nanobind::numpy, Float>(kept->data(), shape.size(), shape.data(), owner));
}
/// `give_back` gets the bytes when Python lets go of the array; without it they are freed.
nanobind::object own_array(DType dtype, const Shape& shape, std::vector<std::byte> bytes,
                           std::function<void(std::vector<std::byte>)> give_back = {});

/// Throws InvalidArgument, naming the array, for elements of a type that Hetu does not have.
DType dtype_of(nanobind::dlpack::dtype type, const std::string& name);

}  // namespace hetu
