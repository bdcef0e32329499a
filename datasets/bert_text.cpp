// Rows are made independently of each other, so any thread or worker can make any row. The keys of
// the random numbers form a chain. Seed and epoch give the epoch's key. That key and the number of
// the sentence pair give the row's key. A counter under the row's key gives each random number.
//
// Example: row 5 of epoch 2 is pair p = drawn_place(5, rows, key of epoch 2) of the text. If the
// first random number of the row's key is at least 0.5, its second sentence comes from another
// document.
#include "datasets/bert_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "datasets/bert_shard.h"
#include "datasets/order.h"
#include "datasets/row_threads.h"
#include "datasets/text_corpus.h"

namespace hetu {
namespace {

constexpr double kMasked = 0.15, kBecomesMask = 0.8, kBecomesAny = 0.1;
// Counters of a row's random numbers. Two counters per token follow kFirstToken.
constexpr std::uint64_t kIsRandom = 0, kOtherDocument = 1, kOtherSentence = 2, kFirstToken = 3;
// Keys of an epoch's random numbers.
constexpr std::uint64_t kOrder = 0, kRows = 1;

// Returns a number distributed uniformly in [0, 1), from the upper bits.
double unit(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

std::int64_t below(std::int64_t n, std::uint64_t bits) {
  return static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(n));
}

// The columns of one row, indexed by BertColumn, and the token ids of its two sentences.
struct Row {
  std::array<std::vector<std::int32_t>, 7> columns;
  std::vector<std::int32_t> first, second;

  std::vector<std::int32_t>& at(BertColumn column) {
    return columns[static_cast<std::size_t>(column)];
  }
};

class BertText final : public RowSource {
 public:
  explicit BertText(const BertTextOptions& options);

  const std::vector<Field>& fields() const override { return fields_; }
  std::int64_t rows() const override { return rows_; }
  bool same_everywhere() const override { return true; }
  std::string order() const override {
    return fmt::format("bert_text bytes {} sentences {} rows {} tokens {} words {} seed {}",
                       corpus_.bytes(), corpus_.sentences(), rows_, options_.sequence_length,
                       words_.size(), options_.seed);
  }
  void read(Batch& batch) override;

 private:
  void make(std::int64_t epoch, std::int64_t index, Row& row) const;
  void encode(std::int64_t sentence, std::vector<std::int32_t>& ids) const;
  std::int64_t first_of_pair(std::int64_t pair) const;
  std::int64_t other_sentence(std::int64_t document, std::uint64_t key) const;
  void put(std::int32_t token, std::int32_t segment, Row& row) const;
  void mask(std::uint64_t key, Row& row) const;
  void mask_token(std::size_t at, double drawn, std::uint64_t any, Row& row) const;

  const BertTextOptions options_;
  const TextCorpus corpus_;
  const WordPiece words_;
  const std::vector<Field> fields_;
  std::int64_t rows_ = 0;
  RowThreads threads_;
  std::vector<Row> made_;  // one per thread
};

BertText::BertText(const BertTextOptions& options)
    : options_(options),
      corpus_(options.path, options.corpus_lines),
      words_(options.vocabulary, options.lower_case),
      fields_(bert_fields(options.sequence_length, most_masked(options.sequence_length))),
      rows_(corpus_.sentences() - corpus_.documents() - 1),
      threads_(options.threads),
      made_(static_cast<std::size_t>(options.threads)) {
  if (corpus_.documents() < 2) {
    fail(Code::Io,
         "{}: found {} sentences in {} document{}, but at least 2 documents are needed; put a "
         "blank line between documents",
         options.path, corpus_.sentences(), corpus_.documents(),
         corpus_.documents() == 1 ? "" : "s");
  }
  if (rows_ < 1) {
    fail(Code::Io,
         "{}: {} sentences in {} documents give no row; put one sentence on each line, and several "
         "sentences into each document",
         options.path, corpus_.sentences(), corpus_.documents());
  }
  if (options.max_rows > 0) rows_ = std::min(rows_, options.max_rows);
}

// Returns the first sentence of a pair. Each document has one pair fewer than sentences, so the
// index grows by one per preceding document.
std::int64_t BertText::first_of_pair(std::int64_t pair) const {
  return pair + corpus_.document_of_pair(pair);
}

std::int64_t BertText::other_sentence(std::int64_t document, std::uint64_t key) const {
  std::int64_t other = below(corpus_.documents() - 1, drawn_bits(key, kOtherDocument));
  if (other >= document) ++other;
  const std::int64_t first = corpus_.first_sentence(other);
  return first + below(corpus_.first_sentence(other + 1) - first, drawn_bits(key, kOtherSentence));
}

void BertText::encode(std::int64_t sentence, std::vector<std::int32_t>& ids) const {
  ids.clear();
  try {
    // No row holds more tokens of one sentence.
    const auto most = static_cast<std::size_t>(options_.sequence_length - 3);
    words_.encode(corpus_.sentence(sentence), options_.encoding, most, ids);
  } catch (const Error& error) {
    fail(error.code(), "{}:{}: {}", options_.path, corpus_.line_of(sentence), error.what());
  }
}

void BertText::put(std::int32_t token, std::int32_t segment, Row& row) const {
  row.at(BertColumn::InputIds).push_back(token);
  row.at(BertColumn::InputMask).push_back(1);
  row.at(BertColumn::SegmentIds).push_back(segment);
  row.at(BertColumn::MaskedLmLabels).push_back(-1);
}

void BertText::mask(std::uint64_t key, Row& row) const {
  const std::vector<std::int32_t>& ids = row.at(BertColumn::InputIds);
  const std::vector<std::int32_t>& found = row.at(BertColumn::MaskedLmIds);
  const auto most = static_cast<std::size_t>(fields_.back().shape[0]);
  const std::size_t separator = 1 + row.first.size();
  std::uint64_t counter = kFirstToken;
  for (std::size_t at = 1; at + 1 < ids.size() && found.size() < most; ++at) {
    if (at == separator) continue;
    const double drawn = unit(drawn_bits(key, counter)) / kMasked;
    if (drawn < 1) mask_token(at, drawn, drawn_bits(key, counter + 1), row);
    counter += 2;
  }
  // A row without a masked token has no loss, so one token is masked, as in BERT's
  // create_pretraining_data.
  const auto tokens = static_cast<std::int64_t>(row.first.size() + row.second.size());
  if (!row.at(BertColumn::MaskedLmIds).empty() || tokens == 0) return;
  const auto token = static_cast<std::size_t>(below(tokens, drawn_bits(key, counter)));
  const std::size_t at = 1 + token + (token < row.first.size() ? 0 : 1);
  mask_token(at, unit(drawn_bits(key, counter + 1)), drawn_bits(key, counter + 2), row);
}

// Masks the token at `at`. `drawn` in [0, 1) selects the replacement, `any` the token of the
// vocabulary that a random replacement takes.
void BertText::mask_token(std::size_t at, double drawn, std::uint64_t any, Row& row) const {
  std::int32_t& id = row.at(BertColumn::InputIds)[at];
  row.at(BertColumn::MaskedLmPositions).push_back(static_cast<std::int32_t>(at));
  row.at(BertColumn::MaskedLmIds).push_back(id);
  row.at(BertColumn::MaskedLmLabels)[at] = id;
  if (drawn < kBecomesMask)
    id = words_.mask();
  else if (drawn < kBecomesMask + kBecomesAny)
    id = static_cast<std::int32_t>(below(words_.size(), any));
}

void BertText::make(std::int64_t epoch, std::int64_t index, Row& row) const {
  const std::uint64_t of_epoch =
      drawn_bits(drawn_bits(options_.seed, static_cast<std::uint64_t>(epoch)), kOrder);
  const std::int64_t pair = drawn_place(index, rows_, of_epoch);
  const std::uint64_t key =
      drawn_bits(drawn_bits(of_epoch, kRows), static_cast<std::uint64_t>(pair));
  const std::int64_t sentence = first_of_pair(pair);
  const bool is_random = unit(drawn_bits(key, kIsRandom)) >= 0.5;
  encode(sentence, row.first);
  encode(is_random ? other_sentence(corpus_.document_of(sentence), key) : sentence + 1, row.second);
  const auto room = static_cast<std::size_t>(options_.sequence_length - 3);
  while (row.first.size() + row.second.size() > room)
    (row.first.size() > row.second.size() ? row.first : row.second).pop_back();

  for (std::vector<std::int32_t>& column : row.columns) column.clear();
  put(words_.cls(), 0, row);
  for (const std::int32_t token : row.first) put(token, 0, row);
  put(words_.sep(), 0, row);
  for (const std::int32_t token : row.second) put(token, 1, row);
  put(words_.sep(), 1, row);
  row.at(BertColumn::NextSentenceLabels).push_back(is_random ? 1 : 0);
  mask(key, row);
}

void BertText::read(Batch& batch) {
  corpus_.check_unchanged();
  std::vector<std::size_t> columns;
  for (const FieldData& field : batch.fields) {
    const auto is_it = [&](const Field& known) { return known.name == field.name; };
    columns.push_back(static_cast<std::size_t>(std::find_if(fields_.begin(), fields_.end(), is_it) -
                                               fields_.begin()));
  }
  threads_.each(batch.rows, [&](std::int64_t number, int thread) {
    Row& row = made_[static_cast<std::size_t>(thread)];
    make(batch.epoch, batch.first + number, row);
    for (std::size_t f = 0; f < columns.size(); ++f) {
      const std::vector<std::int32_t>& values = row.columns[columns[f]];
      const auto column = static_cast<BertColumn>(columns[f]);
      const std::int64_t width = element_count(fields_[columns[f]].shape);
      std::int32_t filler = 0;
      if (column == BertColumn::InputIds) filler = words_.pad();
      if (column == BertColumn::MaskedLmLabels || column == BertColumn::MaskedLmIds) filler = -1;
      std::int32_t* to = batch.fields[f].as<std::int32_t>() + number * width;
      std::fill(std::copy(values.begin(), values.end(), to), to + width, filler);
    }
  });
}

}  // namespace

std::int64_t most_masked(std::int64_t sequence_length) {
  constexpr double kBeyond = 1e-12;
  const std::int64_t tokens = sequence_length - 3;
  double probability = std::pow(1 - kMasked, static_cast<double>(tokens));  // of k masked tokens
  double left = 1 - probability;
  // `left` is the probability of more than k. Rounding errors reach it only far below 1e-12.
  std::int64_t k = 0;
  while (k < tokens && left > kBeyond) {
    ++k;
    probability *=
        static_cast<double>(tokens - k + 1) / static_cast<double>(k) * kMasked / (1 - kMasked);
    left -= probability;
  }
  return std::max<std::int64_t>(k, 1);
}

std::unique_ptr<RowSource> bert_text_source(const BertTextOptions& options) {
  require(options.sequence_length >= 5,
          "{}: rows of {} tokens are too short for two sentences; use at least 5 tokens",
          options.path, options.sequence_length);
  require(options.threads >= 1, "{}: at least 1 thread is needed, got {}", options.path,
          options.threads);
  require(options.corpus_lines >= 0 && options.max_rows >= 0,
          "{}: the limits of sentences ({}) and rows ({}) must be 0 (no limit) or more",
          options.path, options.corpus_lines, options.max_rows);
  return std::make_unique<BertText>(options);
}

}  // namespace hetu
