#include "executor/feed/feeds.h"

#include <map>

#include "base/error.h"

namespace hetu {
namespace {

// Returns the field's rows, which have `bytes` bytes.
const std::byte* rows_of(const Batch& batch, const std::string& field, std::int64_t bytes) {
  const std::vector<std::byte>& data = batch.at(field).bytes;
  require(static_cast<std::int64_t>(data.size()) == bytes,
          "field '{}' of a batch has {} bytes, but the model reads {} bytes", field, data.size(),
          bytes);
  return data.data();
}

// Returns the field's rows in the batch after the current one, or null if they aren't known.
const std::byte* rows_ahead(const Batch* batch, const std::string& field, std::int64_t bytes) {
  if (batch == nullptr) return nullptr;
  const std::vector<std::byte>& data = batch->at(field).bytes;
  return static_cast<std::int64_t>(data.size()) == bytes ? data.data() : nullptr;
}

}  // namespace

Feeds::Feeds(TrainStages& stages, ServerTables* tables, std::int64_t batch_size)
    : stages_(stages), tables_(tables), batch_size_(batch_size) {}

Feeds::Reading::~Reading() {
  feeds_.given_ = nullptr;
  feeds_.stream_ = nullptr;
  feeds_.stages_.ahead().settle();
}

void Feeds::begin(int step) {
  while (stages_.batches() <= step) {
    stages_.begin_batch();
    if (!stages_.fields().empty()) {
      require(given_ != nullptr || stream_ != nullptr,
              "step {}: this worker reads {} fields of the data, but the sequence of batches that "
              "it was given is null",
              step, stages_.fields().size());
      if (given_ == nullptr) stream_->next(batch_);
      feed(given_ != nullptr ? *given_ : batch_);
    }
    stages_.end_batch();
  }
}

void Feeds::feed(const Batch& batch) {
  const auto& fields = stages_.fields();
  const bool training = stages_.is_training();
  const std::int64_t rows = stages_.rows(batch_size_);
  std::map<std::string, std::int64_t> ids;  // in fields that tables on servers read
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (!stages_.reads(fields[i])) continue;
    const std::string& field = fields[i].feed->field;
    const std::int64_t bytes = fields[i].bytes / batch_size_ * rows;
    const void* data = rows_of(batch, field, bytes);
    // Ids become row numbers of the table's window, which holds the rows that the step reads.
    if (tables_ != nullptr && tables_->reads(field)) {
      ids[field] = bytes / std::int64_t{sizeof(std::int32_t)};
      data = tables_->renumbered(field, static_cast<const std::int32_t*>(data), ids[field]);
    }
    stages_.feed(static_cast<int>(i), data, batch.number);
  }
  if (ids.empty()) return;
  tables_->fetch(training);
  if (!training) return;
  for (const auto& [field, count] : ids)
    if (const void* next = rows_ahead(ahead(), field, count * dtype_bytes(DType::Int32)))
      tables_->expect(field, static_cast<const std::int32_t*>(next), count);
}

void Feeds::upload_next() {
  if (stream_ == nullptr || !stages_.is_training() || !stages_.ahead().has_memory()) return;
  stream_->prepare();
  const Batch* const next = ahead();
  if (next == nullptr) return;
  const auto& fields = stages_.fields();
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::string& name = fields[i].feed->field;
    if (!stages_.reads(fields[i]) || (tables_ != nullptr && tables_->reads(name))) continue;
    if (const void* data = rows_ahead(next, name, fields[i].bytes))
      stages_.ahead().upload(i, data, next->number);
  }
}

}  // namespace hetu
