// Rows of a data set in memory: their columns, and those of one step. Read by the loader, by
// sources and by executor/.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"

namespace hetu {

/// One named column of a data set; `shape` is that of one row ([] for one number per row).
struct Field {
  std::string name;
  DType dtype = DType::Float32;
  Shape shape;
};

/// A dense row-major tensor in host memory, shape [rows, ...field's shape].
struct FieldData {
  std::string name;
  DType dtype = DType::Float32;
  Shape shape;
  std::vector<std::byte> bytes;

  /// The elements as T, which must have the size of one element (asserted).
  template <class T>
  T* as() {
    check_element(sizeof(T));
    return reinterpret_cast<T*>(bytes.data());
  }
  template <class T>
  const T* as() const {
    check_element(sizeof(T));
    return reinterpret_cast<const T*>(bytes.data());
  }

 private:
  void check_element(std::size_t bytes_of_t) const;
};

/// One pipeline's rows of one step.
struct Batch {
  std::int64_t epoch = 0;
  std::int64_t first = 0;  ///< place of the first row in the epoch's global order
  std::int64_t rows = 0;
  std::int64_t of_all = 0;   ///< rows of the global batch, of which these are a slice
  std::uint64_t number = 0;  ///< from 1, among all that loaders of this process have read
  std::vector<FieldData> fields;

  /// The field of that name. Throws InvalidArgument, naming the fields there are.
  const FieldData& at(const std::string& name) const;
  FieldData& at(const std::string& name);
};

/// A batch of `rows` rows with room for every field.
void resize_batch(Batch& batch, const std::vector<Field>& fields, std::int64_t rows);

}  // namespace hetu
