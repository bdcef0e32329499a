#include "base/dtype.h"
#include "base/element_type.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/shape.h"

namespace hetu {
namespace {

struct DTypeRow {
  const char* name;
  const char* element_type;  // in C++
  std::int64_t bytes;
  bool floating;
};

constexpr DTypeRow kDTypes[] = {
    {"float32", "float", 4, true},       {"float64", "double", 8, true},
    {"bfloat16", "BFloat16", 2, true},   {"float16", "Float16", 2, true},
    {"int32", "std::int32_t", 4, false}, {"int64", "std::int64_t", 8, false},
    {"int8", "std::int8_t", 1, false},   {"bool", "bool", 1, false}};

const DTypeRow& row(DType dtype) { return kDTypes[static_cast<int>(dtype)]; }

// The lowest number has no positive counterpart in its own type.
std::uint64_t magnitude(std::int64_t dim) {
  return dim < 0 ? 0 - static_cast<std::uint64_t>(dim) : static_cast<std::uint64_t>(dim);
}

}  // namespace

std::int64_t dtype_bytes(DType dtype) { return row(dtype).bytes; }

const char* dtype_name(DType dtype) { return row(dtype).name; }

const char* element_type_name(DType dtype) { return row(dtype).element_type; }

bool is_floating(DType dtype) { return row(dtype).floating; }

DType parse_dtype(std::string_view name) {
  std::string known;
  for (int i = 0; i < static_cast<int>(std::size(kDTypes)); ++i) {
    if (name == kDTypes[i].name) return static_cast<DType>(i);
    known += (i ? ", " : "") + std::string(kDTypes[i].name);
  }
  fail(Code::InvalidArgument, "unknown dtype '{}'; known: {}", name, known);
}

std::string to_string(const Shape& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i) out += ", ";
    if (shape[i] >= 0) {
      out += std::to_string(shape[i]);
    } else {
      out += shape[i] == kBatch ? "B" : std::to_string(magnitude(shape[i])) + "B";
    }
  }
  return out + "]";
}

bool is_symbolic(const Shape& shape) {
  for (const std::int64_t dim : shape) {
    if (dim < 0) return true;
  }
  return false;
}

Shape bind_batch(const Shape& shape, std::int64_t batch) {
  Shape out = shape;
  for (std::int64_t& dim : out) {
    if (dim >= 0) continue;
    require(dim >= -kMostElements && (batch <= 0 || -dim <= kMostElements / batch),
            "shape {} with a batch of {} has more than 2^44 elements", to_string(shape), batch);
    dim = -dim * batch;
  }
  return out;
}

std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t dim : shape) {
    require(dim >= 0, "shape {} has a batch dimension; bind it first", to_string(shape));
    require(dim == 0 || count <= kMostElements / dim, "shape {} has more than 2^44 elements",
            to_string(shape));
    count *= dim;
  }
  return count;
}

bool is_size(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t dim : shape) {
    if (dim == 0) continue;
    if (dim < -kMostElements || dim > kMostElements) return false;
    const std::int64_t size = dim < 0 ? -dim : dim;
    if (count > kMostElements / size) return false;
    count *= size;
  }
  return true;
}

void check_size(const std::string& what, const Shape& shape) {
  require(is_size(shape), "{}: {} has more than 2^44 elements, the most that a tensor may have",
          what, to_string(shape));
}

}  // namespace hetu
