// One shard of BERT data: its layout and its rows, which are checked while they are read. Used only
// by bert_hdf5.cpp and bert_check.cpp.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "datasets/hdf5_file.h"
#include "datasets/loader.h"

namespace hetu {

/// The columns of bert_hdf5_source, in its order.
enum class BertColumn {
  InputIds,
  InputMask,
  SegmentIds,
  MaskedLmLabels,
  NextSentenceLabels,
  MaskedLmPositions,
  MaskedLmIds
};

/// Returns the fields of bert_hdf5_source, indexed by BertColumn, for rows of `sequence_length`
/// tokens with at most `predictions` masked ones. With 0 predictions the last two fields are left
/// out.
std::vector<Field> bert_fields(std::int64_t sequence_length, std::int64_t predictions);

/// The sizes of a shard.
struct BertShardShape {
  std::int64_t rows = 0;
  std::int64_t sequence_length = 0;
  std::int64_t max_predictions = 0;
};

/// An open shard.
class BertShard {
 public:
  /// Opens a shard and checks names, types and shapes of its six datasets. Throws Io.
  explicit BertShard(const std::string& path);

  const BertShardShape& shape() const { return shape_; }

  /// A range of rows, the values per row of a column, and the bound that ids must be below.
  struct Rows {
    std::int64_t first, count, width, vocabulary_size;
  };
  /// Reads rows of a column into `out`, [count, width]. Throws InvalidArgument for the first value
  /// out of range, naming file, row, value and bound. Throws Io if reading fails.
  void read(BertColumn column, const Rows& rows, std::int32_t* out);

 private:
  void read_labels(std::int64_t first, std::int64_t count, std::int64_t vocabulary_size,
                   std::int32_t* out);

  Hdf5File file_;
  BertShardShape shape_;
  /// Reads the positions or the ids of each row's masked tokens, by ascending position. Positions
  /// are padded with 0, ids with -1.
  void read_masked(BertColumn column, const Rows& rows, std::int32_t* out);

  std::vector<std::int32_t> positions_, ids_, labels_;
};

/// Returns the shape of a shard. Shapes are cached until the file's size or modification time
/// changes, because many loaders in one process open the same hundreds of shards.
BertShardShape bert_shard_shape(const std::string& path);

/// The paths of a folder's training shards, in natural order (numbers in names compare as numbers),
/// and the number of its other HDF5 files. Names that begin with a dot are skipped.
struct BertShardList {
  std::vector<std::string> training;
  int others = 0;
};

/// Lists the shards of a folder. Throws Io for a missing folder and for a folder without training
/// shards.
BertShardList list_bert_shards(const std::string& folder);

}  // namespace hetu
