#include "tests/datasets/shard_writer.h"

#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace hetu::testing {
namespace {

std::vector<std::int32_t> positions_of(const ShardSizes& sizes, std::int64_t n) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(sizes.predictions), 0);
  const std::int64_t used = n % 5 == 0 ? 1 : sizes.predictions;
  for (std::int64_t k = 0; k < used; ++k) {
    out[static_cast<std::size_t>(k)] =
        static_cast<std::int32_t>(1 + (n + k * 2) % (sizes.tokens - 1));
  }
  return out;
}

std::int32_t label_of(std::int64_t n, std::int64_t k) {
  return static_cast<std::int32_t>((n * 3 + k) % kVocabulary);
}

}  // namespace

RawShard good_shard(const ShardSizes& sizes, std::int64_t first) {
  RawShard out;
  const std::vector<std::int64_t> tokens = {sizes.rows, sizes.tokens};
  const std::vector<std::int64_t> masked = {sizes.rows, sizes.predictions};
  RawDataset ids{tokens, {}, 4}, mask{tokens, {}, 1}, segments{tokens, {}, 1};
  RawDataset positions{masked, {}, 4}, labels{masked, {}, 4}, next{{sizes.rows}, {}, 1};
  for (std::int64_t r = 0; r < sizes.rows; ++r) {
    const std::int64_t n = first + r;
    for (std::int64_t i = 0; i < sizes.tokens; ++i) {
      ids.values.push_back(static_cast<std::int32_t>(i == 0   ? n / 100
                                                     : i == 1 ? n % 100
                                                              : (n + i) % kVocabulary));
      mask.values.push_back(i < sizes.tokens - n % 3 ? 1 : 0);
      segments.values.push_back(i > n % 4 ? 1 : 0);
    }
    const std::vector<std::int32_t> places = positions_of(sizes, n);
    positions.values.insert(positions.values.end(), places.begin(), places.end());
    for (std::int64_t k = 0; k < sizes.predictions; ++k) labels.values.push_back(label_of(n, k));
    next.values.push_back(n % 2 == 0 ? 1 : 0);
  }
  out["input_ids"] = ids;
  out["input_mask"] = mask;
  out["segment_ids"] = segments;
  out["masked_lm_positions"] = positions;
  out["masked_lm_ids"] = labels;
  out["next_sentence_labels"] = next;
  return out;
}

std::int64_t row_number(const std::int32_t* input_ids) {
  return std::int64_t{input_ids[0]} * 100 + input_ids[1];
}

std::vector<std::int32_t> dense_labels(const ShardSizes& sizes, std::int64_t n) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(sizes.tokens), -1);
  const std::vector<std::int32_t> places = positions_of(sizes, n);
  for (std::size_t k = 0; k < places.size() && places[k] != 0; ++k) {
    out[static_cast<std::size_t>(places[k])] = label_of(n, static_cast<std::int64_t>(k));
  }
  return out;
}

void write_shard(const std::string& path, const RawShard& shard, std::int64_t chunk_rows) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  for (const auto& [name, data] : shard) {
    std::vector<hsize_t> sides(data.shape.begin(), data.shape.end());
    const hid_t space = H5Screate_simple(static_cast<int>(sides.size()), sides.data(), nullptr);
    const hid_t plan = H5Pcreate(H5P_DATASET_CREATE);
    std::vector<hsize_t> chunk = sides;
    chunk[0] = std::max<hsize_t>(1, std::min(sides[0], static_cast<hsize_t>(chunk_rows)));
    if (chunk.size() > 1) chunk[1] = (sides[1] + 1) / 2;
    if (sides[0] > 0) {
      H5Pset_chunk(plan, static_cast<int>(chunk.size()), chunk.data());
      H5Pset_deflate(plan, 4);
    }
    const hid_t type = data.bytes == 0   ? H5T_IEEE_F32LE
                       : data.bytes == 1 ? H5T_STD_I8LE
                                         : H5T_STD_I32LE;
    const hid_t set = H5Dcreate2(file, name.c_str(), type, space, H5P_DEFAULT, plan, H5P_DEFAULT);
    ASSERT_GE(set, 0) << name;
    ASSERT_GE(H5Dwrite(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.values.data()),
              0);
    H5Dclose(set);
    H5Pclose(plan);
    H5Sclose(space);
  }
  H5Fclose(file);
}

std::vector<StoredRange> stored_chunks(const std::string& path) {
  std::vector<StoredRange> out;
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  for (const auto& [name, unused] : good_shard({1}, 0)) {
    const hid_t set = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
    const hid_t space = H5Dget_space(set);
    hsize_t chunks = 0;
    H5Dget_num_chunks(set, space, &chunks);
    for (hsize_t i = 0; i < chunks; ++i) {
      hsize_t offset[2], size = 0;
      unsigned skipped = 0;
      haddr_t address = 0;
      H5Dget_chunk_info(set, space, i, offset, &skipped, &address, &size);
      out.push_back({static_cast<std::int64_t>(address), static_cast<std::int64_t>(size)});
    }
    H5Sclose(space);
    H5Dclose(set);
  }
  H5Fclose(file);
  return out;
}

void write_good_folder(const TemporaryFolder& folder, const std::vector<std::int64_t>& rows,
                       std::int64_t tokens) {
  std::int64_t first = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string name = "wikicorpus_en_training_" + std::to_string(i) + ".hdf5";
    write_shard(folder / name, good_shard({rows[i], tokens, 3}, first));
    first += rows[i];
  }
  std::ofstream vocabulary(folder / "vocab.txt");
  for (std::int64_t i = 0; i < kVocabulary; ++i) vocabulary << "token" << i << "\n";
}

}  // namespace hetu::testing
