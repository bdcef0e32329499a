#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "datasets/bert_hdf5.h"
#include "datasets/loader.h"
#include "tests/datasets/shard_writer.h"

namespace hetu {
namespace {

using ::testing::ElementsAre;
using namespace hetu::testing;  // NOLINT: the fixtures

constexpr std::int64_t kTokens = 8;

TEST(BertMasked, MaskedTokensHaveTheRoomOfTheWidestShardAndAscend) {
  const TemporaryFolder folder;
  RawShard narrow = good_shard({1, kTokens, 2}, 0), wide = good_shard({1, kTokens, 4}, 1);
  narrow["masked_lm_positions"].values = {2, 0};
  narrow["masked_lm_ids"].values = {9, 0};
  wide["masked_lm_positions"].values = {6, 1, 4, 0};
  wide["masked_lm_ids"].values = {11, 12, 0, 0};
  write_shard(folder / "a_training_0.hdf5", narrow);
  write_shard(folder / "a_training_1.hdf5", wide);
  BertHdf5Options options;
  options.folder = folder.path();
  options.window = 1;
  options.vocabulary_size = kVocabulary;
  Loader loader(bert_hdf5_source(options),
                {1, 0, 1, {"input_ids", "masked_lm_positions", "masked_lm_ids"}, 0});
  Batch batch;
  for (int step = 0; step < 2; ++step) {
    loader.next(batch);
    const auto values = [&](const char* name) {
      EXPECT_EQ(batch.at(name).shape, (Shape{1, 4}));
      const auto* at = batch.at(name).as<std::int32_t>();
      return std::vector<std::int32_t>(at, at + 4);
    };
    const bool first = row_number(batch.at("input_ids").as<std::int32_t>()) == 0;
    EXPECT_THAT(values("masked_lm_positions"),
                first ? ElementsAre(2, 0, 0, 0) : ElementsAre(1, 4, 6, 0));
    EXPECT_THAT(values("masked_lm_ids"),
                first ? ElementsAre(9, -1, -1, -1) : ElementsAre(12, 0, 11, -1));
  }
}

}  // namespace
}  // namespace hetu
