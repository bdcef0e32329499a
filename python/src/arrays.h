// Tensors in host memory as NumPy arrays, and back.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <string>
#include <vector>

#include "graph/base/dtype.h"
#include "graph/base/shape.h"

namespace hetu {

/// An array that owns its elements, dense and row-major.
nanobind::object own_array(DType dtype, const Shape& shape, std::vector<std::byte> bytes);

/// Throws InvalidArgument, naming the array, for elements of a type that Hetu does not have.
DType dtype_of(nanobind::dlpack::dtype type, const std::string& name);

}  // namespace hetu
