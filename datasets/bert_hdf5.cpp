#include "datasets/bert_hdf5.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/text_file.h"
#include "datasets/bert_shard.h"
#include "datasets/order.h"

namespace hetu {
namespace {

// A selected column of the window in memory.
struct WindowColumn {
  BertColumn column = BertColumn::InputIds;
  std::int64_t width = 1;
  std::vector<std::int32_t> values;
};

class BertHdf5 final : public RowSource {
 public:
  BertHdf5(const BertHdf5Options& options, std::vector<std::string> paths,
           std::vector<std::int64_t> rows, std::vector<Field> fields)
      : paths_(std::move(paths)),
        seed_(options.seed),
        vocabulary_size_(options.vocabulary_size),
        order_(std::move(rows), options.seed, options.window),
        fields_(std::move(fields)) {
    select(fields_);
  }

  const std::vector<Field>& fields() const override { return fields_; }
  std::int64_t rows() const override { return order_.rows(); }
  bool same_everywhere() const override { return true; }
  std::string order() const override {
    return fmt::format("bert_hdf5 files {} rows {} window {} seed {}", paths_.size(), rows(),
                       order_.window(), seed_);
  }
  void select(const std::vector<Field>& fields) override;
  void read(Batch& batch) override;

 private:
  void load(std::int64_t epoch, std::int64_t window);

  std::vector<std::string> paths_;
  std::uint64_t seed_;
  std::int64_t vocabulary_size_;
  WindowedOrder order_;
  std::vector<Field> fields_;

  std::vector<WindowColumn> columns_;
  std::int64_t epoch_ = -1;
  std::int64_t window_ = -1;
  std::vector<std::int64_t> places_;  // order_ within the loaded window
  std::unique_ptr<BertShard> shard_;  // the shard that was read last
  int shard_file_ = -1;
};

void BertHdf5::select(const std::vector<Field>& fields) {
  columns_.clear();
  for (const Field& field : fields) {
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      if (field.name != fields_[i].name) continue;
      columns_.push_back({static_cast<BertColumn>(i), element_count(field.shape), {}});
    }
  }
  epoch_ = window_ = -1;
}

void BertHdf5::load(std::int64_t epoch, std::int64_t window) {
  epoch_ = window_ = -1;  // invalidates the window, because reading may throw
  places_ = order_.order(epoch, window);
  for (WindowColumn& column : columns_) {
    column.values.resize(places_.size() * static_cast<std::size_t>(column.width));
  }
  std::int64_t at = 0;
  for (const FileRange& piece : order_.pieces(epoch, window)) {
    if (piece.file != shard_file_) {
      shard_file_ = -1;
      shard_ = std::make_unique<BertShard>(paths_[static_cast<std::size_t>(piece.file)]);
      shard_file_ = piece.file;
    }
    if (piece.first + piece.count > shard_->shape().rows) {
      fail(Code::Io,
           "{}: has {} rows now, but had at least {} at the start; data files must not change "
           "during a run",
           paths_[static_cast<std::size_t>(piece.file)], shard_->shape().rows,
           piece.first + piece.count);
    }
    for (WindowColumn& column : columns_) {
      shard_->read(column.column, {piece.first, piece.count, column.width, vocabulary_size_},
                   column.values.data() + at * column.width);
    }
    at += piece.count;
  }
  epoch_ = epoch;
  window_ = window;
}

void BertHdf5::read(Batch& batch) {
  HETU_ASSERT(batch.fields.size() == columns_.size());
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    const std::int64_t index = batch.first + row;
    const std::int64_t window = index / order_.window();
    if (batch.epoch != epoch_ || window != window_) load(batch.epoch, window);
    const std::int64_t place = places_[static_cast<std::size_t>(index - window * order_.window())];
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const WindowColumn& column = columns_[i];
      const auto width = static_cast<std::size_t>(column.width);
      std::memcpy(batch.fields[i].bytes.data() + static_cast<std::size_t>(row) * width * 4,
                  column.values.data() + place * column.width, width * 4);
    }
  }
}

}  // namespace

std::unique_ptr<RowSource> bert_hdf5_source(const BertHdf5Options& options) {
  const BertShardList list = list_bert_shards(options.folder);
  BertHdf5Options full = options;
  if (full.vocabulary_size == 0) full.vocabulary_size = bert_vocabulary_size(options.folder);
  std::vector<std::int64_t> rows;
  std::int64_t total = 0;
  std::int64_t predictions = 0;  // the largest number of predictions in any shard
  std::int64_t length = options.sequence_length;
  for (const std::string& path : list.training) {
    const BertShardShape shape = bert_shard_shape(path);
    if (length == 0) length = shape.sequence_length;
    require(shape.sequence_length == length,
            "{}: rows have {} tokens, expected {} (as {}); all shards in a folder must have the "
            "model's sequence length",
            path, shape.sequence_length, length,
            options.sequence_length != 0 ? "the model has" : "the first shard has");
    predictions = std::max(predictions, shape.max_predictions);
    rows.push_back(shape.rows);
    if (options.max_rows > 0) rows.back() = std::min(rows.back(), options.max_rows - total);
    total += rows.back();
  }
  return std::make_unique<BertHdf5>(full, list.training, std::move(rows),
                                    bert_fields(length, predictions));
}

std::unique_ptr<RowSource> bert_synthetic_source(std::int64_t rows, std::int64_t sequence_length,
                                                 std::int64_t vocabulary_size, std::uint64_t seed) {
  const std::vector<Field> fields = bert_fields(sequence_length, 0);
  constexpr auto kLabels = static_cast<std::size_t>(BertColumn::MaskedLmLabels);
  const auto vocabulary = static_cast<double>(vocabulary_size);
  const auto drawn =
      std::shared_ptr<RowSource>(synthetic_source({{fields[0], 0, vocabulary},
                                                   {fields[1], 1, 2},
                                                   {fields[2], 0, 2},
                                                   // 15 % of the values are ids below `vocabulary`.
                                                   // `read` turns the others into -1.
                                                   {fields[kLabels], 0, vocabulary / 0.15},
                                                   {fields[4], 0, 2}},
                                                  rows, seed));
  CallbackSource source;
  source.name = "bert_synthetic " + drawn->order();
  source.fields = fields;
  source.rows = rows;
  source.read = [drawn, vocabulary_size](Batch& batch) {
    drawn->read(batch);
    for (FieldData& data : batch.fields) {
      if (data.name != "masked_lm_labels") continue;
      std::int32_t* labels = data.as<std::int32_t>();
      for (std::int64_t i = 0; i < element_count(data.shape); ++i) {
        if (labels[i] >= vocabulary_size) labels[i] = -1;
      }
    }
  };
  source.same_everywhere = true;
  return callback_source(std::move(source));
}

std::int64_t bert_vocabulary_size(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder) / "vocab.txt";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return 30522;
  std::istringstream file(read_text(path.string()));
  std::int64_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  if (lines == 0) {
    fail(Code::Io, "{}: holds no tokens or cannot be read; expected one token per line",
         path.string());
  }
  return lines;
}

}  // namespace hetu
