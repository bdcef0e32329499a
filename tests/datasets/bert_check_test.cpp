#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>

#include "base/error.h"
#include "datasets/bert_hdf5.h"
#include "tests/datasets/shard_writer.h"

namespace hetu {
namespace {

using ::testing::ElementsAre;
using namespace hetu::testing;  // NOLINT: the fixtures

constexpr std::int64_t kTokens = 8;

TEST(BertVocabulary, IsThatOfTheFileElseBertsOwn) {
  const TemporaryFolder folder;
  EXPECT_EQ(bert_vocabulary_size(folder.path()), 30522);
  write_good_folder(folder, {2});
  EXPECT_EQ(bert_vocabulary_size(folder.path()), kVocabulary);
  std::ofstream(folder / "vocab.txt", std::ios::trunc).flush();
  EXPECT_THROW(bert_vocabulary_size(folder.path()), Error);
}

TEST(BertCheck, CountsAndMeasuresTheTargets) {
  const TemporaryFolder folder;
  write_good_folder(folder, {17, 40, 1, 23});
  write_shard(folder / "x_test_0.hdf5", good_shard({2}, 0));
  int calls = 0;
  const BertCheck report = check_bert_hdf5(folder.path(), [&calls](int done, int files) {
    EXPECT_EQ(done, ++calls);
    EXPECT_EQ(files, 4);
  });
  EXPECT_EQ(calls, 4);
  EXPECT_THAT(report.problems, ElementsAre());
  EXPECT_EQ(report.files_left, 1);
  EXPECT_EQ(report.rows, 81);
  EXPECT_EQ(report.sequence_length, kTokens);
  EXPECT_EQ(report.max_predictions, 3);
  std::map<std::int32_t, double> counts;
  double total = 0;
  for (std::int64_t n = 0; n < 81; ++n) {
    for (const std::int32_t label : dense_labels({0, kTokens, 3}, n)) {
      if (label >= 0) ++counts[label], ++total;
    }
  }
  double entropy = 0;
  for (const auto& [label, count] : counts) entropy -= count / total * std::log(count / total);
  EXPECT_EQ(report.targets, total);
  EXPECT_NEAR(report.target_entropy, entropy, 1e-12);
  EXPECT_NEAR(bert_target_entropy(folder.path()), entropy, 1e-12);
  EXPECT_EQ(report.random_next, 41);
  EXPECT_EQ(report.tokens, 81 * (kTokens - 1));
}

}  // namespace
}  // namespace hetu
