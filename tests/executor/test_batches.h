// Batches that tests make from arrays and functions.
#pragma once
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "datasets/batch_stream.h"
#include "tests/executor/conv_model.h"
#include "tests/executor/small_model.h"

namespace hetu {

/// Appends a field with `count` elements from `data` to the batch.
template <class T>
void add_field(Batch& batch, const std::string& name, const T* data, std::size_t count) {
  FieldData field;
  field.name = name;
  field.dtype = std::is_same_v<T, float> ? DType::Float32 : DType::Int32;
  field.shape = {static_cast<std::int64_t>(count)};
  field.bytes.resize(count * sizeof(T));
  std::memcpy(field.bytes.data(), data, field.bytes.size());
  batch.fields.push_back(std::move(field));
}

/// Appends the elements from row `first` on, `rows` of `of` rows.
template <class T>
void add_rows(Batch& batch, const std::string& name, const std::vector<T>& values,
              std::int64_t first, std::int64_t rows, std::int64_t of) {
  const std::int64_t width = static_cast<std::int64_t>(values.size()) / of;
  add_field(batch, name, values.data() + first * width, static_cast<std::size_t>(rows * width));
}

/// Returns `rows` rows of token ids and labels, from row `first` on.
inline Batch rows_of(const testing_model::Tokens& whole, std::int64_t length, std::int64_t first,
                     std::int64_t rows) {
  Batch batch;
  const std::int64_t of = static_cast<std::int64_t>(whole.ids.size()) / length;
  add_rows(batch, "ids", whole.ids, first, rows, of);
  add_rows(batch, "labels", whole.labels, first, rows, of);
  return batch;
}

/// Returns `rows` of `of` images and labels, from row `first` on.
inline Batch rows_of(const testing_model::Images& whole, std::int64_t first, std::int64_t rows,
                     std::int64_t of) {
  Batch batch;
  add_rows(batch, "image", whole.images, first, rows, of);
  add_rows(batch, "label", whole.labels, first, rows, of);
  return batch;
}

/// A sequence of the batches that a function returns.
class DrawnBatches final : public BatchStream {
 public:
  explicit DrawnBatches(std::function<Batch()> draw) : draw_(std::move(draw)) {}
  void next(Batch& batch) override { batch = draw_(); }

 private:
  std::function<Batch()> draw_;
};

}  // namespace hetu
