#include "python/src/arrays.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "base/error.h"

namespace nb = nanobind;

namespace hetu {
namespace {

nb::dlpack::dtype dlpack_type(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * dtype_bytes(dtype));
  if (dtype == DType::Bool) return nb::dtype<bool>();
  const auto code =
      is_floating(dtype) ? nb::dlpack::dtype_code::Float : nb::dlpack::dtype_code::Int;
  return {static_cast<std::uint8_t>(code), bits, 1};
}

}  // namespace

// bfloat16 is missing from the list, because NumPy has no such type.
DType dtype_of(nb::dlpack::dtype type, const std::string& name) {
  for (const DType known : {DType::Float32, DType::Float64, DType::Float16, DType::Int32,
                            DType::Int64, DType::Int8, DType::Bool})
    if (type == dlpack_type(known)) return known;
  fail(Code::InvalidArgument,
       "'{}' has an element type that is not supported; use float32, float64, float16, int32, "
       "int64, int8 or bool",
       name);
}

nb::object own_array(DType dtype, const Shape& shape, std::vector<std::byte> bytes,
                     std::function<void(std::vector<std::byte>)> give_back) {
  struct Kept {
    std::vector<std::byte> bytes;
    std::function<void(std::vector<std::byte>)> give_back;
  };
  auto kept = std::make_unique<Kept>(Kept{std::move(bytes), std::move(give_back)});
  void* const data = kept->bytes.data();
  const std::vector<std::size_t> sizes(shape.begin(), shape.end());
  const nb::capsule owner(kept.release(), [](void* held) noexcept {
    const std::unique_ptr<Kept> ends(static_cast<Kept*>(held));
    if (ends->give_back) ends->give_back(std::move(ends->bytes));
  });
  return nb::cast(
      nb::ndarray<nb::numpy>(data, sizes.size(), sizes.data(), owner, nullptr, dlpack_type(dtype)));
}

}  // namespace hetu
