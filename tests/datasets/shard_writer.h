// Writes small BERT shards for the tests, right ones and wrong ones.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"

namespace hetu::testing {

/// A dataset as it is written: values row-major, `bytes` per stored element (1 or 4), 0 for
/// float32.
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

/// A right shard. Row r of it is number n = first + r: input_ids start with n / 100, n % 100; all
/// columns are functions of n; rows with n % 5 == 0 have fewer masked tokens than places for them.
RawShard good_shard(const ShardSizes& sizes, std::int64_t first);

/// The number that good_shard wrote into a row's input_ids.
std::int64_t row_number(const std::int32_t* input_ids);

/// The labels that good_shard's row n has when laid out densely.
std::vector<std::int32_t> dense_labels(const ShardSizes& sizes, std::int64_t n);

/// Writes gzip-compressed chunked datasets of `chunk_rows` rows per chunk, half as wide as the
/// rows.
void write_shard(const std::string& path, const RawShard& shard, std::int64_t chunk_rows = 7);

/// Where in a file the compressed chunks of its datasets lie.
struct StoredRange {
  std::int64_t first = 0;
  std::int64_t bytes = 0;
};
std::vector<StoredRange> stored_chunks(const std::string& path);

/// Writes good shards of these sizes, wikicorpus_en_training_<i>.hdf5, with rows numbered through,
/// and a vocab.txt.
void write_good_folder(const TemporaryFolder& folder, const std::vector<std::int64_t>& rows,
                       std::int64_t tokens = 8);

inline constexpr std::int64_t kVocabulary = 100;

}  // namespace hetu::testing
