#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "datasets/bert_hdf5.h"
#include "datasets/bert_shard.h"
#include "datasets/bert_text.h"

namespace hetu {
namespace {

constexpr std::int64_t kRowsAtOnce = 4096;

// The number of times that each token id is a target, that is, a masked token.
class TargetCounts {
 public:
  explicit TargetCounts(std::int64_t vocabulary_size)
      : counts_(static_cast<std::size_t>(vocabulary_size), 0) {}

  void add(const std::vector<std::int32_t>& labels) {
    for (const std::int32_t label : labels) {
      if (label >= 0) ++counts_[static_cast<std::size_t>(label)], ++total_;
    }
  }
  std::int64_t total() const { return total_; }
  double entropy() const {
    double nats = 0;
    for (const std::int64_t count : counts_) {
      if (count == 0) continue;
      const double p = static_cast<double>(count) / static_cast<double>(total_);
      nats -= p * std::log(p);
    }
    return nats;
  }

 private:
  std::vector<std::int64_t> counts_;
  std::int64_t total_ = 0;
};

std::int64_t sum(const std::vector<std::int32_t>& values) {
  std::int64_t out = 0;
  for (const std::int32_t value : values) out += value;
  return out;
}

// Calls take(values) with consecutive blocks of at most kRowsAtOnce rows until all rows of a column
// are read.
template <class Take>
void each_piece(BertShard& shard, BertColumn column, std::int64_t vocabulary_size,
                const Take& take) {
  const std::int64_t width =
      column == BertColumn::NextSentenceLabels ? 1 : shard.shape().sequence_length;
  std::vector<std::int32_t> values;
  for (std::int64_t first = 0; first < shard.shape().rows; first += kRowsAtOnce) {
    const std::int64_t count = std::min(kRowsAtOnce, shard.shape().rows - first);
    values.resize(static_cast<std::size_t>(count * width));
    shard.read(column, {first, count, width, vocabulary_size}, values.data());
    take(values);
  }
}

void check_file(const std::string& path, BertCheck& report, TargetCounts& targets) {
  BertShard shard(path);
  const BertShardShape& shape = shard.shape();
  if (report.sequence_length == 0) report.sequence_length = shape.sequence_length;
  report.max_predictions = std::max(report.max_predictions, shape.max_predictions);
  require(shape.sequence_length == report.sequence_length,
          "{}: rows have {} tokens, but the earlier shards have {}", path, shape.sequence_length,
          report.sequence_length);
  const std::int64_t vocabulary = report.vocabulary_size;
  const auto read = [&](BertColumn column, const auto& take) {
    each_piece(shard, column, vocabulary, take);
  };
  using Values = std::vector<std::int32_t>;
  read(BertColumn::InputIds, [](const Values&) {});
  read(BertColumn::SegmentIds, [](const Values&) {});
  read(BertColumn::InputMask, [&](const Values& values) { report.tokens += sum(values); });
  read(BertColumn::MaskedLmLabels, [&](const Values& values) { targets.add(values); });
  read(BertColumn::NextSentenceLabels,
       [&](const Values& values) { report.random_next += sum(values); });
  report.rows += shape.rows;
}

}  // namespace

double bert_target_entropy(const std::string& folder) {
  const std::int64_t vocabulary = bert_vocabulary_size(folder);
  TargetCounts targets(vocabulary);
  for (const std::string& path : list_bert_shards(folder).training) {
    BertShard shard(path);
    each_piece(shard, BertColumn::MaskedLmLabels, vocabulary,
               [&targets](const std::vector<std::int32_t>& labels) { targets.add(labels); });
  }
  return targets.entropy();
}

double bert_target_entropy(RowSource& source, std::int64_t vocabulary_size,
                           std::int64_t most_rows) {
  TargetCounts targets(vocabulary_size);
  const std::vector<Field>& fields = source.fields();
  const auto ids = std::find_if(fields.begin(), fields.end(),
                                [](const Field& field) { return field.name == "masked_lm_ids"; });
  HETU_ASSERT(ids != fields.end());
  const std::int64_t rows = std::min(source.rows(), most_rows);
  Batch batch;
  for (std::int64_t first = 0; first < rows; first += kRowsAtOnce) {
    batch.first = first;
    resize_batch(batch, {*ids}, std::min(kRowsAtOnce, rows - first));
    source.read(batch);
    const auto* values = batch.fields[0].as<std::int32_t>();
    targets.add({values, values + element_count(batch.fields[0].shape)});
  }
  return targets.entropy();
}

BertCheck check_bert_hdf5(const std::string& folder,
                          const std::function<void(int, int)>& progress) {
  const BertShardList list = list_bert_shards(folder);
  BertCheck report;
  report.files = static_cast<int>(list.training.size());
  report.files_left = list.others;
  report.vocabulary_size = bert_vocabulary_size(folder);
  TargetCounts targets(report.vocabulary_size);
  int done = 0;
  for (const std::string& path : list.training) {
    try {
      check_file(path, report, targets);
    } catch (const Error& error) {
      if (error.code() == Code::Unsupported) throw;
      report.problems.emplace_back(error.what());
    }
    if (progress) progress(++done, report.files);
  }
  report.targets = targets.total();
  report.target_entropy = targets.entropy();
  if (report.rows == 0) report.problems.push_back(folder + ": no readable row in any shard");
  if (report.rows > 0 && report.targets == 0) {
    report.problems.push_back(folder + ": no row has a masked token");
  }
  return report;
}

}  // namespace hetu
