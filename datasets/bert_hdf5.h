// BERT pre-training data in the HDF5 layout of NVIDIA's BERT examples, as SD-PIPE reads it: a
// folder of shards, one row per sample. Shards are the files whose name contains "training" and
// ends in .hdf5 or .h5; others are left alone.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/source.h"

namespace hetu {

struct BertHdf5Options {
  std::string folder;
  std::uint64_t seed = 0;
  /// Tokens per row that the model expects; 0 takes what the shards have.
  std::int64_t sequence_length = 0;
  /// Token ids must be below this; 0 asks bert_vocabulary_size(folder).
  std::int64_t vocabulary_size = 0;
  /// Rows are shuffled within windows of this many (held in memory, selected columns only).
  std::int64_t window = 4096;
  /// Only the first rows of the shards, in the order of their names; 0 takes all.
  std::int64_t max_rows = 0;
};

/// Rows of a folder of shards. Columns, all int32, with S tokens per row:
///   input_ids [S], input_mask [S] (1 token, 0 padding), segment_ids [S],
///   masked_lm_labels [S] (-1 where nothing is masked, else the id to find), next_sentence_labels
///   [] (1 = random next),
///   masked_lm_positions and masked_lm_ids [P], P the most that a shard has room for: the masked
///   tokens alone, by ascending position; behind the last of a row 0 and -1.
/// A row's masked positions end at its first position 0. Reads only row counts and shapes here; the
/// rest while reading. Throws Io for a missing folder, a folder without training shards, a
/// truncated or foreign file; InvalidArgument for another sequence length; while reading also
/// InvalidArgument for a token id, label id, position, segment or mask out of range (naming file,
/// row, value and bound); Unsupported in a build without HDF5.
std::unique_ptr<RowSource> bert_hdf5_source(const BertHdf5Options& options);

/// Drawn rows with the columns of bert_hdf5_source but for the last two (15 % of the tokens masked,
/// no padding), for measurements and for builds without HDF5.
std::unique_ptr<RowSource> bert_synthetic_source(std::int64_t rows, std::int64_t sequence_length,
                                                 std::int64_t vocabulary_size, std::uint64_t seed);

/// Lines of `vocab.txt` in the folder, else 30522 (bert-base-uncased). Throws Io if the file is
/// there but unreadable or empty.
std::int64_t bert_vocabulary_size(const std::string& folder);

/// Unigram entropy, in nats, of the masked targets of all training shards: the loss of a model that
/// knows only how often each token occurs. Reads positions and ids only.
double bert_target_entropy(const std::string& folder);

/// What `hetu data check` prints.
struct BertCheck {
  int files = 0;       ///< training shards
  int files_left = 0;  ///< other HDF5 files of the folder
  std::int64_t rows = 0;
  std::int64_t sequence_length = 0;
  std::int64_t max_predictions = 0;
  std::int64_t vocabulary_size = 0;
  std::int64_t tokens = 0;   ///< not padding
  std::int64_t targets = 0;  ///< masked tokens
  std::int64_t random_next = 0;
  double target_entropy = 0;          ///< nats
  std::vector<std::string> problems;  ///< at most one per file, and what concerns all files
};

/// Reads every row of every training shard once. Trouble within files is listed, not thrown; throws
/// only for a missing folder or one without training shards. `progress(done, files)` is called
/// after each file.
BertCheck check_bert_hdf5(const std::string& folder, const std::function<void(int, int)>& progress);

}  // namespace hetu
