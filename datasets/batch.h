// Rows of a data set in memory: column descriptions, column data, and the rows of one step. Used by
// the loader, by sources and by executor/.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/element_type.h"
#include "base/shape.h"

namespace hetu {

/// A named column of a data set. `shape` is the shape of one row ([] for one number per row).
struct Field {
  std::string name;
  DType dtype = DType::Float32;
  Shape shape;
};

/// A dense row-major tensor in host memory, of shape [rows, ...field's shape].
struct FieldData {
  std::string name;
  DType dtype = DType::Float32;
  Shape shape;
  std::vector<std::byte> bytes;

  /// Returns the elements as T. Throws InvalidArgument, naming the field and its dtype, unless T is
  /// the type of its elements (holds_element).
  template <class T>
  T* as() {
    if (!holds_element<T>(dtype)) refuse_type(element_text<T>());
    return reinterpret_cast<T*>(bytes.data());
  }
  template <class T>
  const T* as() const {
    if (!holds_element<T>(dtype)) refuse_type(element_text<T>());
    return reinterpret_cast<const T*>(bytes.data());
  }

 private:
  [[noreturn]] void refuse_type(const std::string& given) const;
};

/// One pipeline's rows of one step.
struct Batch {
  std::int64_t epoch = 0;
  std::int64_t first = 0;  ///< position of the first row in the order that the source gives epoch
  std::int64_t rows = 0;
  std::int64_t of_all = 0;   ///< rows of the global batch that this batch is a slice of
  std::uint64_t number = 0;  ///< sequence number, from 1, over all loaders of this process
  std::vector<FieldData> fields;

  /// Returns the field named `name`. Throws InvalidArgument, listing the existing fields, if there
  /// is no such field.
  const FieldData& at(const std::string& name) const;
  FieldData& at(const std::string& name);
};

/// Returns the rows of all parts, one part after the other. The parts have the same fields.
Batch join_batches(const std::vector<Batch>& parts);

/// Sets `batch` to `rows` rows and allocates every field. The contents are unspecified.
void resize_batch(Batch& batch, const std::vector<Field>& fields, std::int64_t rows);

}  // namespace hetu
