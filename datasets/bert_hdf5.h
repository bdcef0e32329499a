// BERT pre-training data in the HDF5 layout of NVIDIA's BERT examples, which SD-PIPE reads: a
// folder of shards, one row per sample. Shards are the files whose name contains "training" and
// ends in .hdf5 or .h5. Other files are ignored.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/source.h"

namespace hetu {

/// The options of bert_hdf5_source.
struct BertHdf5Options {
  std::string folder;
  std::uint64_t seed = 0;
  /// Tokens per row that the model expects; 0 takes the length from the shards.
  std::int64_t sequence_length = 0;
  /// Token ids must be below this; 0 takes bert_vocabulary_size(folder).
  std::int64_t vocabulary_size = 0;
  /// Rows per shuffle window. One window is held in memory, with the selected columns only.
  std::int64_t window = 4096;
  /// Uses only this many rows from the start of the shards, ordered by name; 0 uses all rows.
  std::int64_t max_rows = 0;
};

/// Returns the rows of a folder of shards. All columns are int32, with S tokens per row:
///   input_ids [S], input_mask [S] (1 token, 0 padding), segment_ids [S],
///   masked_lm_labels [S] (the id to predict, or -1 where nothing is masked),
///   next_sentence_labels [] (1 = random next sentence),
///   masked_lm_positions [P] and masked_lm_ids [P]: the masked tokens by ascending position, padded
///   with position 0 and id -1. P is the largest capacity of any shard.
/// In a shard, position 0 ends a row's list of masked positions. This function reads only row
/// counts and shapes; read() reads the rest.
/// Throws Io for a missing folder, a folder without training shards, and a truncated or foreign
/// file; InvalidArgument for a different sequence length; Unsupported in a build without HDF5.
/// Reading also throws InvalidArgument for a token id, label id, position, segment or mask value
/// out of range, naming file, row, value and bound.
std::unique_ptr<RowSource> bert_hdf5_source(const BertHdf5Options& options);

/// Returns random rows with the columns of bert_hdf5_source except masked_lm_positions and
/// masked_lm_ids. 15 % of the tokens are masked and nothing is padded. For measurements and for
/// builds without HDF5.
std::unique_ptr<RowSource> bert_synthetic_source(std::int64_t rows, std::int64_t sequence_length,
                                                 std::int64_t vocabulary_size, std::uint64_t seed);

/// Returns the number of lines of `vocab.txt` in the folder, or 30522 (bert-base-uncased) if there
/// is no such file. Throws Io if the file is unreadable or empty.
std::int64_t bert_vocabulary_size(const std::string& folder);

/// Returns the unigram entropy, in nats, of the masked targets of all training shards. This is the
/// loss of a model that knows only the frequency of each token. Reads only masked positions and
/// ids.
double bert_target_entropy(const std::string& folder);

/// The report that `hetu data check` prints for a folder of shards.
struct BertCheck {
  int files = 0;       ///< training shards
  int files_left = 0;  ///< other HDF5 files of the folder, which are ignored
  std::int64_t rows = 0;
  std::int64_t sequence_length = 0;
  std::int64_t max_predictions = 0;
  std::int64_t vocabulary_size = 0;
  std::int64_t tokens = 0;   ///< tokens that are not padding
  std::int64_t targets = 0;  ///< masked tokens
  std::int64_t random_next = 0;
  double target_entropy = 0;          ///< in nats
  std::vector<std::string> problems;  ///< at most one per file, then problems of the whole folder
};

/// Reads every row of every training shard once. Problems within files are listed, not thrown.
/// Throws Io only for a missing folder, a folder without training shards, and an unreadable
/// vocab.txt. Throws Unsupported in a build without HDF5. Calls `progress(done, files)` after each
/// file.
BertCheck check_bert_hdf5(const std::string& folder, const std::function<void(int, int)>& progress);

}  // namespace hetu
