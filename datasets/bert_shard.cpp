#include "datasets/bert_shard.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/natural_order.h"

namespace hetu {
namespace {

namespace fs = std::filesystem;

// The dataset that a column is copied from, for columns that need no scattering; index =
// BertColumn.
struct Plain {
  const char* dataset;
  const char* meaning;
};
constexpr std::array<Plain, 5> kPlain = {Plain{"input_ids", "token id"},
                                         {"input_mask", "mask value"},
                                         {"segment_ids", "segment"},
                                         {nullptr, nullptr},
                                         {"next_sentence_labels", "label"}};

// Throws for the first value outside [0, bound). `place` is {first row, rows, values per row}.
void check_range(const std::string& path, const char* dataset, const char* meaning,
                 const std::vector<std::int64_t>& place, std::int64_t bound,
                 const std::int32_t* values) {
  const std::int64_t first = place[0], count = place[1], width = place[2];
  const std::int32_t* end = values + count * width;
  const std::int32_t* bad = std::find_if(
      values, end, [bound](std::int32_t value) { return value < 0 || value >= bound; });
  if (bad == end) return;
  const bool of_vocabulary = std::string_view(meaning).find("id") != std::string_view::npos;
  const char* hint = of_vocabulary ? ", the vocabulary size; check that vocab.txt in this folder "
                                     "is the one that the shards were made with"
                                   : "";
  require(false, "{}: row {} of '{}': {} {} is not in [0, {}){}", path,
          first + (bad - values) / width, dataset, meaning, *bad, bound, hint);
}

}  // namespace

std::vector<Field> bert_fields(std::int64_t sequence_length, std::int64_t predictions) {
  const Shape row = {sequence_length};
  std::vector<Field> fields = {{"input_ids", DType::Int32, row},
                               {"input_mask", DType::Int32, row},
                               {"segment_ids", DType::Int32, row},
                               {"masked_lm_labels", DType::Int32, row},
                               {"next_sentence_labels", DType::Int32, {}}};
  if (predictions > 0)
    for (const char* name : {"masked_lm_positions", "masked_lm_ids"})
      fields.push_back({name, DType::Int32, {predictions}});
  return fields;
}

BertShard::BertShard(const std::string& path) : file_(path) {
  const Shape tokens = file_.shape("input_ids");
  const Shape masked = file_.shape("masked_lm_positions");
  const auto check = [&path](const char* name, const Shape& found, const char* right, bool ok) {
    if (!ok) {
      fail(Code::Io, "{}: dataset '{}' has shape {}, expected {}", path, name, to_string(found),
           right);
    }
  };
  check("input_ids", tokens, "[rows, tokens]", tokens.size() == 2 && tokens[1] > 0);
  check("masked_lm_positions", masked, "[rows, predictions] with the rows of input_ids",
        masked.size() == 2 && masked[0] == tokens[0]);
  for (const char* name : {"input_mask", "segment_ids"}) {
    check(name, file_.shape(name), "the shape of input_ids", file_.shape(name) == tokens);
  }
  const Shape ids = file_.shape("masked_lm_ids");
  check("masked_lm_ids", ids, "the shape of masked_lm_positions", ids == masked);
  const Shape next = file_.shape("next_sentence_labels");
  // Both [rows, 1] and [rows] occur in published shards, and they read the same.
  check("next_sentence_labels", next, "[rows] with the rows of input_ids",
        next == Shape{tokens[0]} || next == Shape{tokens[0], 1});
  shape_ = {tokens[0], tokens[1], masked[1]};
}

void BertShard::read(BertColumn column, const Rows& rows, std::int32_t* out) {
  const auto [first, count, width, vocabulary_size] = rows;
  if (column == BertColumn::MaskedLmLabels) return read_labels(first, count, vocabulary_size, out);
  if (column == BertColumn::MaskedLmPositions || column == BertColumn::MaskedLmIds)
    return read_masked(column, rows, out);
  const Plain& plain = kPlain[static_cast<std::size_t>(column)];
  file_.read_rows(plain.dataset, first, count, out);
  const std::int64_t bound = column == BertColumn::InputIds ? vocabulary_size : 2;
  check_range(file_.path(), plain.dataset, plain.meaning, {first, count, width}, bound, out);
}

void BertShard::read_masked(BertColumn column, const Rows& rows, std::int32_t* out) {
  const std::int64_t length = shape_.sequence_length;
  labels_.resize(static_cast<std::size_t>(rows.count * length));
  read_labels(rows.first, rows.count, rows.vocabulary_size, labels_.data());
  const bool ids = column == BertColumn::MaskedLmIds;
  for (std::int64_t row = 0; row < rows.count; ++row) {
    const std::int32_t* labels = labels_.data() + row * length;
    std::int32_t *to = out + row * rows.width, *const end = to + rows.width;
    for (std::int64_t i = 0; i < length; ++i)
      if (labels[i] >= 0) *to++ = ids ? labels[i] : static_cast<std::int32_t>(i);
    std::fill(to, end, ids ? -1 : 0);
  }
}

void BertShard::read_labels(std::int64_t first, std::int64_t count, std::int64_t vocabulary_size,
                            std::int32_t* out) {
  const std::int64_t width = shape_.max_predictions;
  positions_.resize(static_cast<std::size_t>(count * width));
  ids_.resize(positions_.size());
  file_.read_rows("masked_lm_positions", first, count, positions_.data());
  file_.read_rows("masked_lm_ids", first, count, ids_.data());
  check_range(file_.path(), "masked_lm_positions", "position", {first, count, width},
              shape_.sequence_length, positions_.data());
  check_range(file_.path(), "masked_lm_ids", "label id", {first, count, width}, vocabulary_size,
              ids_.data());
  std::fill(out, out + count * shape_.sequence_length, -1);
  for (std::int64_t row = 0; row < count; ++row) {
    // Position 0 is [CLS], which is never masked: a 0 ends the row's list.
    for (std::int64_t k = row * width; k < (row + 1) * width; ++k) {
      const std::int32_t position = positions_[static_cast<std::size_t>(k)];
      if (position == 0) break;
      out[row * shape_.sequence_length + position] = ids_[static_cast<std::size_t>(k)];
    }
  }
}

BertShardShape bert_shard_shape(const std::string& path) {
  struct Known {
    std::uintmax_t bytes;
    fs::file_time_type time;
    BertShardShape shape;
  };
  static std::mutex lock;
  static std::map<std::string, Known> known;
  std::error_code gone;  // BertShard below reports a file that has vanished
  const std::uintmax_t bytes = fs::file_size(path, gone);
  const fs::file_time_type time = fs::last_write_time(path, gone);
  {
    const std::lock_guard hold(lock);
    const auto found = known.find(path);
    if (found != known.end() && found->second.bytes == bytes && found->second.time == time) {
      return found->second.shape;
    }
  }
  const BertShardShape shape = BertShard(path).shape();
  const std::lock_guard hold(lock);
  known[path] = {bytes, time, shape};
  return shape;
}

BertShardList list_bert_shards(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    fail(Code::Io, "{}: no such folder of BERT shards; `hetu data sample {}` makes a small one",
         folder, folder);
  }
  BertShardList out;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const fs::path& path = entries->path();
    const std::string name = path.filename().string();
    if (name[0] == '.' || (path.extension() != ".hdf5" && path.extension() != ".h5")) continue;
    if (name.find("training") == std::string::npos) {
      ++out.others;
    } else {
      out.training.push_back(path.string());
    }
  }
  if (error) fail(Code::Io, "{}: cannot be listed: {}", folder, error.message());
  if (out.training.empty()) {
    fail(Code::Io,
         "{}: found no training shards, which are files named *training*.hdf5 or *training*.h5 "
         "(found {} other HDF5 files)",
         folder, out.others);
  }
  std::sort(out.training.begin(), out.training.end(), natural_less);
  return out;
}

}  // namespace hetu
