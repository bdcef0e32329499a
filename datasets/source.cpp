#include "datasets/source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "datasets/order.h"

namespace hetu {

bool RowSource::same_everywhere() const { return false; }

bool RowSource::may_be_early() const { return true; }

void RowSource::select(const std::vector<Field>&) {}

bool RowSource::has(std::int64_t, std::int64_t row) { return row < rows(); }

std::int64_t RowSource::rows_from(std::int64_t epoch, std::int64_t first, std::int64_t most) {
  if (rows() == kUnknown) return has(epoch, first + most - 1) ? most : 0;
  return std::clamp<std::int64_t>(rows() - first, 0, most);
}

std::int64_t RowSource::skipped_rows() const { return 0; }

namespace {

std::int64_t row_bytes(const Field& field) {
  return element_count(field.shape) * dtype_bytes(field.dtype);
}

class Callback final : public RowSource {
 public:
  explicit Callback(CallbackSource callback) : callback_(std::move(callback)) {}
  const std::vector<Field>& fields() const override { return callback_.fields; }
  std::int64_t rows() const override { return callback_.rows; }
  std::string order() const override {
    return fmt::format("{} rows {}", callback_.name, callback_.rows);
  }
  bool same_everywhere() const override { return callback_.same_everywhere; }
  void read(Batch& batch) override { callback_.read(batch); }

 private:
  CallbackSource callback_;
};

class Stream final : public RowSource {
 public:
  explicit Stream(StreamSource stream) : stream_(std::move(stream)) {}
  const std::vector<Field>& fields() const override { return stream_.fields; }
  std::int64_t rows() const override { return kUnknown; }
  std::string order() const override {
    return fmt::format("{} items of {}", stream_.name, stream_.global_batch);
  }
  bool may_be_early() const override { return stream_.may_be_early; }
  bool has(std::int64_t epoch, std::int64_t row) override {
    return load(epoch, row / stream_.global_batch) && whole_.rows == stream_.global_batch;
  }
  std::int64_t rows_from(std::int64_t epoch, std::int64_t first, std::int64_t most) override {
    if (!load(epoch, first / stream_.global_batch)) return 0;
    return std::clamp<std::int64_t>(whole_.rows - first % stream_.global_batch, 0, most);
  }
  void read(Batch& batch) override;

 private:
  bool load(std::int64_t epoch, std::int64_t item);
  bool fetch(std::int64_t epoch, std::int64_t item);

  StreamSource stream_;
  Batch whole_;
  std::int64_t epoch_ = -1;
  std::int64_t item_ = -1;
  bool there_ = false;
};

// Fetches an item and checks its rows and types against the declared fields. Returns false at the
// end of the epoch.
bool Stream::fetch(std::int64_t epoch, std::int64_t item) {
  resize_batch(whole_, stream_.fields, stream_.global_batch);
  whole_.epoch = epoch;
  whole_.first = item * stream_.global_batch;
  if (!stream_.item(epoch, item, whole_)) return false;
  for (const Field& field : stream_.fields) {
    const FieldData& data = whole_.at(field.name);
    Shape shape = {whole_.rows};
    shape.insert(shape.end(), field.shape.begin(), field.shape.end());
    require(data.dtype == field.dtype && data.shape == shape &&
                data.bytes.size() == static_cast<std::size_t>(whole_.rows * row_bytes(field)),
            "{}: item {}: field '{}' is {} {} in {} bytes, expected {} rows of {} {}", stream_.name,
            item, field.name, dtype_name(data.dtype), to_string(data.shape), data.bytes.size(),
            whole_.rows, to_string(field.shape), dtype_name(field.dtype));
  }
  return true;
}

bool Stream::load(std::int64_t epoch, std::int64_t item) {
  if (epoch == epoch_ && item == item_) return there_;
  epoch_ = -1;  // invalidates the item, because fetch may throw
  there_ = fetch(epoch, item);
  if (there_ && whole_.rows != stream_.global_batch) {
    Batch last = std::move(whole_);
    require(last.rows < stream_.global_batch && !fetch(epoch, item + 1),
            "{}: item {} of epoch {} has {} rows, but the global batch is {}; only an epoch's last "
            "item may be shorter",
            stream_.name, item, epoch, last.rows, stream_.global_batch);
    whole_ = std::move(last);
  }
  epoch_ = epoch;
  item_ = item;
  return there_;
}

void Stream::read(Batch& batch) {
  const std::int64_t item = batch.first / stream_.global_batch;
  HETU_ASSERT(load(batch.epoch, item));
  const std::int64_t first = batch.first - item * stream_.global_batch;
  HETU_ASSERT(first + batch.rows <= whole_.rows);
  if (batch.rows == whole_.rows) {  // no other pipeline reads this item
    for (FieldData& to : batch.fields) std::swap(to.bytes, whole_.at(to.name).bytes);
    epoch_ = -1;
    return;
  }
  for (FieldData& to : batch.fields) {
    const FieldData& from = whole_.at(to.name);
    const std::size_t bytes = from.bytes.size() / static_cast<std::size_t>(whole_.rows);
    std::memcpy(to.bytes.data(), from.bytes.data() + static_cast<std::size_t>(first) * bytes,
                static_cast<std::size_t>(batch.rows) * bytes);
  }
}

template <class T>
void store(std::byte* to, std::int64_t i, double value) {
  reinterpret_cast<T*>(to)[i] = static_cast<T>(value);
}

void store_as(DType dtype, std::byte* to, std::int64_t i, double value) {
  switch (dtype) {
    case DType::Float32:
      return store<float>(to, i, value);
    case DType::Int32:
      return store<std::int32_t>(to, i, std::floor(value));
    case DType::Int64:
      return store<std::int64_t>(to, i, std::floor(value));
    case DType::Int8:
    case DType::Bool:
      return store<std::int8_t>(to, i, std::floor(value));
    default:
      fail(Code::Unsupported,
           "drawn data: type {} is not supported; use float32, int32, int64, int8 or bool",
           dtype_name(dtype));
  }
}

class Synthetic final : public RowSource {
 public:
  Synthetic(std::vector<DrawnField> columns, std::int64_t rows, std::uint64_t seed)
      : columns_(std::move(columns)), rows_(rows), seed_(seed) {
    require(rows >= 1, "drawn data: at least 1 row is needed, got {}", rows);
    std::byte probe[8];
    for (const DrawnField& column : columns_) {
      require(column.low < column.high, "drawn data: field '{}' has an empty range, {} to {}",
              column.field.name, column.low, column.high);
      store_as(column.field.dtype, probe, 0, 0);
      fields_.push_back(column.field);
    }
  }
  const std::vector<Field>& fields() const override { return fields_; }
  std::int64_t rows() const override { return rows_; }
  std::string order() const override { return fmt::format("drawn rows {} seed {}", rows_, seed_); }
  bool same_everywhere() const override { return true; }
  void read(Batch& batch) override {
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      for (FieldData& data : batch.fields) {
        if (data.name == fields_[c].name) draw(c, batch.first, data);
      }
    }
  }

 private:
  void draw(std::size_t c, std::int64_t first, FieldData& data) const {
    const DrawnField& column = columns_[c];
    const std::int64_t per_row = element_count(column.field.shape);
    const std::uint64_t key = drawn_bits(drawn_bits(seed_, 0), c);
    for (std::int64_t i = 0; i < data.shape[0] * per_row; ++i) {
      const auto bits = drawn_bits(key, static_cast<std::uint64_t>(first * per_row + i));
      const double unit = static_cast<double>(bits >> 11) * 0x1p-53;
      store_as(data.dtype, data.bytes.data(), i, column.low + unit * (column.high - column.low));
    }
  }

  std::vector<DrawnField> columns_;
  std::vector<Field> fields_;
  std::int64_t rows_;
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<RowSource> callback_source(CallbackSource callback) {
  require(callback.rows >= 1 && callback.read != nullptr,
          "data '{}': needs at least 1 row and a function that reads rows, got {} rows",
          callback.name, callback.rows);
  return std::make_unique<Callback>(std::move(callback));
}

std::unique_ptr<RowSource> stream_source(StreamSource stream) {
  require(stream.global_batch >= 1 && stream.item != nullptr,
          "data '{}': needs a global batch of at least 1 and a function that fetches items, got a "
          "global batch of {}",
          stream.name, stream.global_batch);
  return std::make_unique<Stream>(std::move(stream));
}

std::unique_ptr<RowSource> synthetic_source(std::vector<DrawnField> columns, std::int64_t rows,
                                            std::uint64_t seed) {
  return std::make_unique<Synthetic>(std::move(columns), rows, seed);
}

}  // namespace hetu
