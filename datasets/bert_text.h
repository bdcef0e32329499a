// BERT pre-training rows made of plain text while training: pairs of sentences, cut, masked. The
// reader of Chimera's and PipeFisher's scripts (their bert_dataset.py), with its draws made
// functions of seed, epoch and row.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/source.h"
#include "datasets/word_piece.h"

namespace hetu {

struct BertTextOptions {
  std::string path;        ///< see TextCorpus
  std::string vocabulary;  ///< see WordPiece
  bool lower_case = true;
  TextEncoding encoding = TextEncoding::Utf8;
  std::int64_t sequence_length = 128;
  std::uint64_t seed = 0;
  std::int64_t corpus_lines = 0;  ///< only the first so many sentences; 0: all
  std::int64_t max_rows = 0;      ///< only the first so many pairs of the text; 0: all
  int threads = 1;                ///< that make rows
};

/// Rows with the fields of bert_hdf5_source, S = sequence_length, -1 where it says so. Of D
/// documents with L sentences there are L - D - 1 rows per epoch, in a drawn order: each pair of
/// neighbours in a document but the last, whose second sentence is, half of the time, replaced by
/// one of another document (label 1: document and sentence drawn evenly). The longer one (the
/// second of equals) loses its last token until [CLS] A [SEP] B [SEP] fits. Each token is then
/// masked with probability 0.15: to 80 % it becomes [MASK], to 10 % any token of the vocabulary, to
/// 10 % it stays; a row's label is the token. Where none is drawn, one is masked. P (most_masked)
/// is so large that one row in 10^12 has more to mask; what is beyond stays as it is. Throws Io for
/// files that cannot be read, a vocabulary without the tokens of BERT, a text that does not have
/// two documents and a row; while reading, for bytes that are not UTF-8 (with the line) and a text
/// that has changed.
std::unique_ptr<RowSource> bert_text_source(const BertTextOptions& options);

/// The smallest count that more than 1 in 10^12 rows of so many tokens, [CLS] and [SEP] among them,
/// do not exceed, each of the others masked with probability 0.15.
std::int64_t most_masked(std::int64_t sequence_length);

/// Unigram entropy, in nats, of what is masked in the first rows of epoch 0 of a source with the
/// field masked_lm_ids: the loss of a model that knows only how often each token occurs.
double bert_target_entropy(RowSource& source, std::int64_t vocabulary_size, std::int64_t most_rows);

/// What `hetu data check` prints of a text.
struct BertTextCheck {
  std::int64_t bytes = 0, sentences = 0, documents = 0, rows = 0;
  std::int64_t tokens = 0;   ///< of all sentences
  std::int64_t unknown = 0;  ///< of these, [UNK]
  std::int64_t bad_sentences = 0;
  std::vector<std::string> problems;  ///< the first bad sentences
};

/// Reads every sentence once. Throws as bert_text_source, but lists sentences that are not UTF-8.
/// `progress(done, sentences)` is called from time to time.
BertTextCheck check_bert_text(const BertTextOptions& options,
                              const std::function<void(std::int64_t, std::int64_t)>& progress);

/// How often each word of a text occurs, as WordCutter has them, in the order of the words' bytes.
/// Throws as above.
std::vector<std::pair<std::string, std::int64_t>> count_words(const BertTextOptions& options);

}  // namespace hetu
