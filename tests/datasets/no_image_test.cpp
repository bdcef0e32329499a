// A build without libjpeg must report it and name the remedy. CIFAR-100 needs no libjpeg.
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
