#include "datasets/bert_hdf5.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>
#include <tuple>

#include "base/error.h"
#include "datasets/bert_shard.h"
#include "datasets/loader.h"
#include "tests/datasets/shard_writer.h"

namespace hetu {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using namespace hetu::testing;  // NOLINT: the fixtures

constexpr std::int64_t kTokens = 8;
const std::vector<std::int64_t> kRows = {17, 40, 1, 23};

BertHdf5Options options_for(const TemporaryFolder& folder, std::int64_t window = 16) {
  BertHdf5Options options;
  options.folder = folder.path();
  options.window = window;
  return options;
}

std::vector<std::int64_t> row_numbers(const Batch& batch) {
  std::vector<std::int64_t> out;
  const auto* ids = batch.at("input_ids").as<std::int32_t>();
  for (std::int64_t r = 0; r < batch.rows; ++r) out.push_back(row_number(ids + r * kTokens));
  return out;
}

TEST(BertHdf5, GivesEveryColumnOfARowAsTheModelTakesIt) {
  const TemporaryFolder folder;
  write_good_folder(folder, kRows);
  const ShardSizes sizes{0, kTokens, 3};
  Loader loader(bert_hdf5_source(options_for(folder)), {1, 0, 9, {}, 2});
  Batch batch;
  for (int step = 0; step < 18; ++step) {
    loader.next(batch);
    EXPECT_EQ(batch.at("next_sentence_labels").shape, (Shape{9}));
    const std::vector<std::int64_t> rows = row_numbers(batch);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const RawShard right = good_shard({1, kTokens, 3}, rows[r]);
      const auto row = [&](const char* name) {
        const FieldData& field = batch.at(name);
        const std::int64_t width = element_count(field.shape) / batch.rows;
        const auto* at = field.as<std::int32_t>() + static_cast<std::int64_t>(r) * width;
        return std::vector<std::int32_t>(at, at + width);
      };
      for (const char* name : {"input_ids", "input_mask", "segment_ids", "next_sentence_labels"}) {
        EXPECT_EQ(row(name), right.at(name).values) << name << " of row " << rows[r];
      }
      const std::vector<std::int32_t> labels = dense_labels(sizes, rows[r]);
      EXPECT_EQ(row("masked_lm_labels"), labels) << "row " << rows[r];
      std::vector<std::int32_t> positions, ids;
      for (std::int32_t i = 0; i < kTokens; ++i) {
        if (labels[static_cast<std::size_t>(i)] < 0) continue;
        positions.push_back(i);
        ids.push_back(labels[static_cast<std::size_t>(i)]);
      }
      positions.resize(3, 0);
      ids.resize(3, -1);
      EXPECT_EQ(row("masked_lm_positions"), positions) << "row " << rows[r];
      EXPECT_EQ(row("masked_lm_ids"), ids) << "row " << rows[r];
    }
  }
}

TEST(BertHdf5, LabelsEndAtTheFirstPositionZero) {
  const TemporaryFolder folder;
  RawShard shard = good_shard({1, kTokens, 4}, 0);
  shard["masked_lm_positions"].values = {3, 1, 0, 5};
  shard["masked_lm_ids"].values = {10, 0, 12, 13};
  write_shard(folder / "a_training.h5", shard);
  Loader loader(bert_hdf5_source(options_for(folder)), {1, 0, 1, {"masked_lm_labels"}, 0});
  Batch batch;
  loader.next(batch);
  const auto* labels = batch.fields[0].as<std::int32_t>();
  EXPECT_THAT(std::vector<std::int32_t>(labels, labels + kTokens),
              ElementsAre(-1, 0, -1, 10, -1, -1, -1, -1));
}

using Case = std::tuple<std::int64_t, int, std::uint64_t>;  // window, pipelines, seed
class EveryShuffle : public ::testing::TestWithParam<Case> {};

TEST_P(EveryShuffle, IsOnePermutationPerEpochWhateverThePipelines) {
  const auto [window, pipelines, seed] = GetParam();
  const TemporaryFolder folder;
  write_good_folder(folder, kRows);
  BertHdf5Options options = options_for(folder, window);
  options.seed = seed;
  constexpr std::int64_t kGlobal = 12;
  constexpr int kSteps = 3 * (81 / kGlobal);
  std::map<int, std::vector<std::int64_t>> by_pipelines;
  for (const int columns : {1, pipelines}) {
    std::vector<std::vector<std::int64_t>> steps(kSteps);
    for (int d = 0; d < columns; ++d) {
      Loader loader(bert_hdf5_source(options), {columns, d, kGlobal / columns, {"input_ids"}, 2});
      Batch batch;
      for (auto& step : steps) {
        loader.next(batch);
        const std::vector<std::int64_t> rows = row_numbers(batch);
        step.insert(step.end(), rows.begin(), rows.end());
      }
    }
    auto& all = by_pipelines[columns];
    all.clear();
    for (const auto& step : steps) all.insert(all.end(), step.begin(), step.end());
  }
  const auto& all = by_pipelines[pipelines];
  EXPECT_EQ(all, by_pipelines[1]);
  std::set<std::vector<std::int64_t>> epochs;
  for (int epoch = 0; epoch < 3; ++epoch) {
    const std::vector<std::int64_t> rows(all.begin() + epoch * 72, all.begin() + (epoch + 1) * 72);
    EXPECT_EQ(std::set<std::int64_t>(rows.begin(), rows.end()).size(), 72U) << "epoch " << epoch;
    epochs.insert(rows);
  }
  EXPECT_EQ(epochs.size(), 3U) << "epochs repeat";
}

INSTANTIATE_TEST_SUITE_P(Grid, EveryShuffle,
                         ::testing::Combine(::testing::Values(5, 16, 4096),
                                            ::testing::Values(2, 3, 4, 6),
                                            ::testing::Values(0, 7)));

TEST(BertHdf5, TakesTrainingShardsInTheOrderOfTheirNumbersAndLeavesTheRest) {
  const TemporaryFolder folder;
  for (const int i : {10, 9, 2, 100, 1}) {
    write_shard(folder / ("x_training_" + std::to_string(i) + ".hdf5"), good_shard({2}, i));
  }
  write_shard(folder / "x_test_0.hdf5", good_shard({2}, 0));
  std::ofstream(folder / "training.txt") << "no shard";
  std::ofstream(folder / "._x_training_1.hdf5") << "written by macOS beside others";
  const BertShardList list = list_bert_shards(folder.path());
  EXPECT_EQ(list.others, 1);
  EXPECT_THAT(list.training,
              ElementsAre(folder / "x_training_1.hdf5", folder / "x_training_2.hdf5",
                          folder / "x_training_9.hdf5", folder / "x_training_10.hdf5",
                          folder / "x_training_100.hdf5"));
}

TEST(BertHdf5, MaxRowsTakesTheFirstRowsOnly) {
  const TemporaryFolder folder;
  write_good_folder(folder, kRows);
  BertHdf5Options options = options_for(folder);
  options.max_rows = 20;
  Loader loader(bert_hdf5_source(options), {1, 0, 20, {}, 2});
  Batch batch;
  for (int epoch = 0; epoch < 3; ++epoch) {
    loader.next(batch);
    const std::vector<std::int64_t> rows = row_numbers(batch);
    const std::set<std::int64_t> seen(rows.begin(), rows.end());
    EXPECT_EQ(seen.size(), 20U);
    EXPECT_EQ(*seen.rbegin(), 19);
  }
}

TEST(BertHdf5, TheSeedIsPartOfAPosition) {
  const TemporaryFolder folder;
  write_good_folder(folder, kRows);
  BertHdf5Options other = options_for(folder);
  other.seed = 5;
  const Loader saved(bert_hdf5_source(options_for(folder)), {1, 0, 4, {}, 0});
  Loader loader(bert_hdf5_source(other), {1, 0, 4, {}, 0});
  EXPECT_THAT([&] { loader.seek(saved.position()); },
              ThrowsMessage<Error>(AllOf(HasSubstr("seed 0'"), HasSubstr("seed 5'"))));
}

TEST(BertHdf5, ManyLoadersReadAtOnce) {
  const TemporaryFolder folder;
  write_good_folder(folder, kRows);
  std::vector<std::thread> threads;
  std::vector<std::int64_t> sums(6, 0);
  for (std::size_t t = 0; t < sums.size(); ++t) {
    threads.emplace_back([&folder, &sum = sums[t]] {
      Loader loader(bert_hdf5_source(options_for(folder)), {1, 0, 9, {}, 3});
      Batch batch;
      for (int step = 0; step < 27; ++step) {
        loader.next(batch);
        for (const std::int64_t n : row_numbers(batch)) sum += n;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::int64_t sum : sums) EXPECT_EQ(sum, 3 * 81 * 80 / 2);
}

// ---- Bad input: a change of the shard, the options that open it, and text of the one-line error.

struct BadCase {
  const char* name;
  std::function<void(RawShard&)> spoil;
  Code code;
  std::vector<std::string> words;
};

std::vector<BadCase> bad_cases() {
  const auto set = [](const char* dataset, std::size_t at, std::int32_t value) {
    return [=](RawShard& shard) { shard[dataset].values[at] = value; };
  };
  return {
      {"MissingDataset",
       [](RawShard& s) { s.erase("segment_ids"); },
       Code::Io,
       {"no dataset 'segment_ids'"}},
      {"WrongRank",
       [](RawShard& s) { s["input_ids"].shape = {20 * kTokens}; },
       Code::Io,
       {"'input_ids' has shape [160], expected [rows, tokens]"}},
      {"OtherShape",
       [](RawShard& s) {
         s["input_mask"].shape = {kTokens, 20};
       },
       Code::Io,
       {"'input_mask' has shape [8, 20], expected the shape of input_ids"}},
      {"FewerLabels",
       [](RawShard& s) {
         s["next_sentence_labels"].shape = {19};
         s["next_sentence_labels"].values.pop_back();
       },
       Code::Io,
       {"'next_sentence_labels' has shape [19]"}},
      {"Floats",
       [](RawShard& s) { s["input_ids"].bytes = 0; },
       Code::Io,
       {"'input_ids' does not hold integers"}},
      {"TokenBeyondVocabulary",
       set("input_ids", 5 * kTokens + 3, 100),
       Code::InvalidArgument,
       {"row 5 of 'input_ids': token id 100 is not in [0, 100)"}},
      {"NegativeToken",
       set("input_ids", 6 * kTokens, -1),
       Code::InvalidArgument,
       {"row 6 of 'input_ids': token id -1"}},
      {"LabelBeyondVocabulary",
       set("masked_lm_ids", 7 * 3, 31000),
       Code::InvalidArgument,
       {"row 7 of 'masked_lm_ids': label id 31000 is not in [0, 100)"}},
      {"PositionBeyondTheRow",
       set("masked_lm_positions", 7 * 3, 8),
       Code::InvalidArgument,
       {"row 7 of 'masked_lm_positions': position 8 is not in [0, 8)"}},
      {"Segment",
       set("segment_ids", 19 * kTokens, 2),
       Code::InvalidArgument,
       {"row 19 of 'segment_ids': segment 2 is not in [0, 2)"}},
      {"Mask",
       set("input_mask", 0, -7),
       Code::InvalidArgument,
       {"row 0 of 'input_mask': mask value -7"}},
      {"NextSentence",
       set("next_sentence_labels", 3, 2),
       Code::InvalidArgument,
       {"row 3 of 'next_sentence_labels': label 2"}},
  };
}

class EveryBadShard : public ::testing::TestWithParam<BadCase> {};

TEST_P(EveryBadShard, IsRefusedInOneLineWithItsNameByLoaderAndCheck) {
  const BadCase& bad = GetParam();
  const TemporaryFolder folder;
  write_good_folder(folder, {10});
  RawShard shard = good_shard({20, kTokens, 3}, 10);
  bad.spoil(shard);
  const std::string path = folder / "wikicorpus_en_training_1.hdf5";
  write_shard(path, shard);
  try {
    Loader loader(bert_hdf5_source(options_for(folder)), {1, 0, 30, {}, 2});
    Batch batch;
    loader.next(batch);
    ADD_FAILURE() << "was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), bad.code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(path));
    for (const std::string& word : bad.words) EXPECT_THAT(error.what(), HasSubstr(word));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
  const BertCheck report = check_bert_hdf5(folder.path(), nullptr);
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_THAT(report.problems[0], AllOf(HasSubstr(path), HasSubstr(bad.words[0])));
  EXPECT_EQ(report.rows, 10);
}

INSTANTIATE_TEST_SUITE_P(Grid, EveryBadShard, ::testing::ValuesIn(bad_cases()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(BertHdf5, AnUnreadColumnIsNotChecked) {
  const TemporaryFolder folder;
  RawShard shard = good_shard({20, kTokens, 3}, 0);
  shard["input_ids"].values[5] = 500;
  write_shard(folder / "training.hdf5", shard);
  Loader loader(bert_hdf5_source(options_for(folder)), {1, 0, 20, {"segment_ids"}, 2});
  Batch batch;
  EXPECT_NO_THROW(loader.next(batch));
}

TEST(BertHdf5, RefusesAMissingFolderAndOneWithoutShards) {
  const TemporaryFolder folder;
  BertHdf5Options options = options_for(folder);
  options.folder = folder / "nowhere";
  EXPECT_THAT([&] { bert_hdf5_source(options); },
              ThrowsMessage<Error>(HasSubstr("nowhere: no such folder")));
  write_shard(folder / "wikicorpus_en_test_0.hdf5", good_shard({2}, 0));
  EXPECT_THAT([&] { bert_hdf5_source(options_for(folder)); },
              ThrowsMessage<Error>(AllOf(HasSubstr("no training shards"), HasSubstr("1 other"))));
}

TEST(BertHdf5, RefusesATruncatedAndAForeignFile) {
  const TemporaryFolder folder;
  write_good_folder(folder, {200});
  const std::string path = folder / "wikicorpus_en_training_0.hdf5";
  const auto bytes = std::filesystem::file_size(path);
  for (const std::uintmax_t kept : {bytes - 1, bytes / 2, std::uintmax_t{100}, std::uintmax_t{0}}) {
    std::filesystem::resize_file(path, kept);
    EXPECT_THAT([&] { bert_hdf5_source(options_for(folder)); },
                ThrowsMessage<Error>(HasSubstr(path + ": not a readable HDF5 file")))
        << kept;
  }
  std::ofstream(path) << std::string(5000, 'x');
  EXPECT_THAT([&] { bert_hdf5_source(options_for(folder)); },
              ThrowsMessage<Error>(HasSubstr("file signature not found")));
}

// zlib checksums the data of the rows. The library does not check its own tables.
TEST(BertHdf5, NoticesAFlippedByteInTheRows) {
  const TemporaryFolder folder;
  write_good_folder(folder, {60});
  const std::string path = folder / "wikicorpus_en_training_0.hdf5";
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  const BertCheck right = check_bert_hdf5(folder.path(), nullptr);
  int flipped = 0;
  for (const StoredRange& chunk : stored_chunks(path)) {
    const std::size_t step = 1 + static_cast<std::size_t>(chunk.bytes) / 3;
    for (std::size_t at = 0; at < static_cast<std::size_t>(chunk.bytes); at += step) {
      std::string damaged = whole;
      char& byte = damaged[static_cast<std::size_t>(chunk.first) + at];
      byte = static_cast<char>(byte ^ 0x55);
      std::ofstream(path, std::ios::binary) << damaged;
      const BertCheck found = check_bert_hdf5(folder.path(), nullptr);
      ASSERT_EQ(found.problems.size(), 2U) << "byte " << chunk.first << " + " << at;
      EXPECT_THAT(found.problems[0], AllOf(HasSubstr(path), HasSubstr("cannot be read")));
      ++flipped;
    }
  }
  EXPECT_GT(flipped, 50);
  EXPECT_EQ(right.rows, 60);
}

TEST(BertHdf5, RefusesAnotherSequenceLength) {
  const TemporaryFolder folder;
  write_good_folder(folder, {10, 10});
  BertHdf5Options options = options_for(folder);
  options.sequence_length = 128;
  EXPECT_THAT([&] { bert_hdf5_source(options); },
              ThrowsMessage<Error>(HasSubstr("training_0.hdf5: rows have 8 tokens, expected 128")));
  write_shard(folder / "wikicorpus_en_training_1.hdf5", good_shard({10, 12, 3}, 0));
  EXPECT_THAT([&] { bert_hdf5_source(options_for(folder)); },
              ThrowsMessage<Error>(HasSubstr("training_1.hdf5: rows have 12 tokens, expected 8")));
}

}  // namespace
}  // namespace hetu
