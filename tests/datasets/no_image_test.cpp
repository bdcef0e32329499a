// A build without libjpeg says so, and how to get it; CIFAR-100 needs none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "datasets/image.h"

namespace hetu {
namespace {

TEST(NoImage, SaysWhatToInstall) {
  EXPECT_FALSE(reads_images());
  Image image;
  EXPECT_THAT(
      [&] {
        decode_image({0xFF, 0xD8, 0xFF}, image);
      },
      ::testing::ThrowsMessage<Error>(::testing::HasSubstr("-DHETU_IMAGES=ON")));
  EXPECT_THROW(encode_jpeg({1, 1, {0, 0, 0}}, 90), Error);
}

}  // namespace
}  // namespace hetu
