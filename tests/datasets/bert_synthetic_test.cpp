#include <gtest/gtest.h>

#include "datasets/bert_hdf5.h"
#include "datasets/loader.h"

namespace hetu {
namespace {

TEST(BertSynthetic, HasTheColumnsAndRangesOfRealShards) {
  Loader loader(bert_synthetic_source(256, 128, 500, 1), {1, 0, 256, {}, 0});
  Batch batch;
  loader.next(batch);
  ASSERT_EQ(batch.fields.size(), 5U);
  const std::int64_t bounds[] = {500, 2, 2, 500, 2};
  for (std::size_t f = 0; f < 5; ++f) {
    const FieldData& field = batch.fields[f];
    EXPECT_EQ(field.dtype, DType::Int32);
    EXPECT_EQ(field.shape, f == 4 ? (Shape{256}) : (Shape{256, 128}));
    std::int64_t masked = 0;
    for (std::int64_t i = 0; i < element_count(field.shape); ++i) {
      const std::int32_t value = field.as<std::int32_t>()[i];
      ASSERT_GE(value, field.name == "masked_lm_labels" ? -1 : 0) << field.name;
      ASSERT_LT(value, bounds[f]) << field.name;
      masked += value >= 0 ? 1 : 0;
    }
    if (field.name == "masked_lm_labels") {
      EXPECT_NEAR(static_cast<double>(masked) / (256 * 128), 0.15, 0.01);
    }
  }
}

}  // namespace
}  // namespace hetu
