// Writes small BERT shards for the tests, valid and invalid.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"

namespace hetu::testing {

/// A dataset as it is written: values in row-major order, and `bytes` per stored element (1 or 4; 0
/// for float32).
struct RawDataset {
  std::vector<std::int64_t> shape;
  std::vector<std::int32_t> values;
  int bytes = 4;
};
using RawShard = std::map<std::string, RawDataset>;

struct ShardSizes {
  std::int64_t rows = 0;
  std::int64_t tokens = 8;
  std::int64_t predictions = 3;
};

/// Returns a valid shard. Row r has number n = first + r. Its input_ids start with n / 100, n %
/// 100, and all columns are functions of n. Rows with n % 5 == 0 have fewer masked tokens than
/// slots for them.
RawShard good_shard(const ShardSizes& sizes, std::int64_t first);

/// Returns the number that good_shard wrote into a row's input_ids.
std::int64_t row_number(const std::int32_t* input_ids);

/// Returns the labels of good_shard's row n in dense form.
std::vector<std::int32_t> dense_labels(const ShardSizes& sizes, std::int64_t n);

/// Writes gzip-compressed chunked datasets. A chunk has `chunk_rows` rows and half of the row
/// width.
void write_shard(const std::string& path, const RawShard& shard, std::int64_t chunk_rows = 7);

/// The position of a compressed chunk of a dataset in its file.
struct StoredRange {
  std::int64_t first = 0;
  std::int64_t bytes = 0;
};
std::vector<StoredRange> stored_chunks(const std::string& path);

/// Writes valid shards of these sizes, wikicorpus_en_training_<i>.hdf5, with consecutive row
/// numbers, and a vocab.txt.
void write_good_folder(const TemporaryFolder& folder, const std::vector<std::int64_t>& rows,
                       std::int64_t tokens = 8);

inline constexpr std::int64_t kVocabulary = 100;

}  // namespace hetu::testing
