// BERT pre-training rows made from plain text while training: sentence pairs, truncated and masked.
// Follows the reader of Chimera's and PipeFisher's scripts (their bert_dataset.py). All random
// choices are functions of seed, epoch and row.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/source.h"
#include "datasets/word_piece.h"

namespace hetu {

/// The options of bert_text_source.
struct BertTextOptions {
  std::string path;        ///< see TextCorpus
  std::string vocabulary;  ///< see WordPiece
  bool lower_case = true;
  TextEncoding encoding = TextEncoding::Utf8;
  std::int64_t sequence_length = 128;
  std::uint64_t seed = 0;
  std::int64_t corpus_lines = 0;  ///< uses only this many sentences from the start; 0: all
  std::int64_t max_rows = 0;      ///< uses only this many sentence pairs from the start; 0: all
  int threads = 1;                ///< threads that make rows
};

/// Returns rows with the fields of bert_hdf5_source, where S = sequence_length and P =
/// most_masked(S).
///
/// A text of D documents with L sentences gives L - D - 1 rows per epoch, in random order. A row is
/// a pair of neighbouring sentences of one document; the last pair of the text is left out. Half of
/// the time the second sentence is replaced by one of another document (label 1). The document and
/// then its sentence are chosen uniformly. The longer sentence (the second, if both are equal)
/// loses its last token until [CLS] A [SEP] B [SEP] fits.
///
/// Each token is masked with probability 0.15. A masked token becomes [MASK] with probability 0.8,
/// any token of the vocabulary with probability 0.1, and stays unchanged with probability 0.1. Its
/// label is the original token. If no token of a row is chosen, one is masked. P is large enough
/// that only one row in 10^12 has more tokens to mask; the surplus stays unmasked.
///
/// Throws Io for files that cannot be read, for a vocabulary without BERT's special tokens, and for
/// a text without two documents and one row. Reading throws Io for bytes that are not UTF-8 (with
/// the line) and for a text that has changed.
std::unique_ptr<RowSource> bert_text_source(const BertTextOptions& options);

/// Returns the smallest count k such that at most 1 in 10^12 rows has more than k masked tokens. A
/// row has `sequence_length` tokens. Each of them except [CLS] and the two [SEP] is masked with
/// probability 0.15.
std::int64_t most_masked(std::int64_t sequence_length);

/// Returns the unigram entropy, in nats, of the masked tokens in the first `most_rows` rows of
/// epoch 0. The source must have the field masked_lm_ids. This is the loss of a model that knows
/// only the frequency of each token.
double bert_target_entropy(RowSource& source, std::int64_t vocabulary_size, std::int64_t most_rows);

/// The report that `hetu data check` prints for a text.
struct BertTextCheck {
  std::int64_t bytes = 0, sentences = 0, documents = 0, rows = 0;
  std::int64_t tokens = 0;   ///< of all sentences
  std::int64_t unknown = 0;  ///< tokens that became [UNK]
  std::int64_t bad_sentences = 0;
  std::vector<std::string> problems;  ///< the first bad sentences, one line each
};

/// Reads every sentence once. Throws as bert_text_source, but lists sentences that are not UTF-8.
/// Calls `progress(done, sentences)` about every 4096 sentences and at the end.
BertTextCheck check_bert_text(const BertTextOptions& options,
                              const std::function<void(std::int64_t, std::int64_t)>& progress);

/// Returns how often each word of a text occurs, sorted by the words' bytes. Words are cut by
/// WordCutter. Throws as above.
std::vector<std::pair<std::string, std::int64_t>> count_words(const BertTextOptions& options);

}  // namespace hetu
