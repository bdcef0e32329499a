// One shard of BERT data: its layout, and its rows as the model takes them, checked while they are
// read. Read by bert_hdf5.cpp and bert_check.cpp only.
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

/// The fields of bert_hdf5_source for rows of `sequence_length` tokens, of which at most
/// `predictions` are masked; index = BertColumn. 0: without the last two.
std::vector<Field> bert_fields(std::int64_t sequence_length, std::int64_t predictions);

struct BertShardShape {
  std::int64_t rows = 0;
  std::int64_t sequence_length = 0;
  std::int64_t max_predictions = 0;
};

class BertShard {
 public:
  /// Opens and checks names, types and shapes of the six datasets. Throws Io.
  explicit BertShard(const std::string& path);

  const BertShardShape& shape() const { return shape_; }

  /// Which rows, how many values of the column each has, and below what ids must be.
  struct Rows {
    std::int64_t first, count, width, vocabulary_size;
  };
  /// Rows of a column, [count, width]. Throws InvalidArgument for the first value out of range,
  /// naming file, row, value and bound; Io.
  void read(BertColumn column, const Rows& rows, std::int32_t* out);

 private:
  void read_labels(std::int64_t first, std::int64_t count, std::int64_t vocabulary_size,
                   std::int32_t* out);

  Hdf5File file_;
  BertShardShape shape_;
  /// Of the masked tokens of each row: their positions, ascending and 0 behind the last, or their
  /// ids, -1 behind it.
  void read_masked(BertColumn column, const Rows& rows, std::int32_t* out);

  std::vector<std::int32_t> positions_, ids_, labels_;
};

/// Shape of a shard, remembered for as long as the file's size and time stay: many loaders in one
/// process open the same hundreds of shards.
BertShardShape bert_shard_shape(const std::string& path);

/// Paths of a folder's training shards, ordered by name with numbers as numbers, and how many other
/// HDF5 files it has. Names that begin with a dot are passed over.
struct BertShardList {
  std::vector<std::string> training;
  int others = 0;
};

/// Throws Io for a missing folder and for one without training shards.
BertShardList list_bert_shards(const std::string& folder);

}  // namespace hetu
