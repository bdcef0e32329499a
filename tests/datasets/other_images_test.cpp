// Tests BMP, TIFF, WebP and PNM through the OpenCV module, and the rarer features of PNG and JPEG.
// Covers pixels by format, refused files, and one-line errors for damage without text on standard
// error.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "datasets/image.h"
#include "tests/datasets/image_files.h"

namespace hetu {
namespace {

using testing::Bytes;
using ::testing::HasSubstr;

const nlohmann::json& fixture() {
  static const auto kFixture = nlohmann::json::parse(testing::fixture_text("other_images.json"));
  return kFixture;
}

class EveryOtherImage : public ::testing::TestWithParam<std::string> {
 protected:
  nlohmann::json described_ = fixture()["images"][GetParam()];
  Bytes bytes_ = testing::from_base64(described_["file"]);
};

TEST_P(EveryOtherImage, HasItsPixels) {
  Image image;
  ASSERT_EQ(decode_image(bytes_, image), "");
  EXPECT_EQ(image.width, described_["width"]);
  EXPECT_EQ(image.height, described_["height"]);
  EXPECT_EQ(testing::hex(testing::digest(image.rgb.data(), image.rgb.size())),
            described_["pixels"].get<std::string>());
}

TEST_P(EveryOtherImage, PartsLieInTheWhole) {
  Image image;
  Box there;
  const auto middle = [](int width, int height) { return Box{width / 3, height / 3, 2, 1}; };
  ASSERT_EQ(decode_part(bytes_, middle, image, there), "");
  Image whole;
  ASSERT_EQ(decode_image(bytes_, whole), "");
  const auto* mine = image.rgb.data() + (there.y * image.width + there.x) * 3;
  EXPECT_TRUE(std::equal(
      mine, mine + 6,
      whole.rgb.data() + (whole.height / 3 * whole.width + whole.width / 3) * std::ptrdiff_t{3}));
}

// A truncated image must be reported as damaged, unless the missing part holds no pixel. Unwritten
// memory must not show, so every run decodes the same pixels.
TEST_P(EveryOtherImage, OneThatEndsEarlyIsDamagedOrWhole) {
  Image whole;
  ASSERT_EQ(decode_image(bytes_, whole), "");
  ::testing::internal::CaptureStderr();
  int told = 0;
  for (std::size_t keep = 0; keep < bytes_.size(); ++keep) {
    const Bytes bytes(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(keep));
    Image image;
    const DecodeTrouble trouble = decode_image(bytes, image);
    EXPECT_EQ(trouble.find('\n'), std::string::npos) << trouble;
    told += trouble.empty() ? 0 : 1;
    if (trouble.empty()) {
      EXPECT_TRUE(image.rgb == whole.rgb) << keep << " of " << bytes_.size();
    }
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_GE(told, static_cast<int>(bytes_.size() / 2));
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& [name, described] : fixture()["images"].items()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Fixture, EveryOtherImage, ::testing::ValuesIn(names()),
                         [](const auto& name) { return name.param; });

TEST(OtherImages, WhatIsNotReadIsNamed) {
  for (const auto& [name, row] : fixture()["refused"].items()) {
    Image image;
    EXPECT_THAT(decode_image(testing::from_base64(row[0]), image),
                HasSubstr(row[1].get<std::string>()))
        << name;
  }
}

TEST(OtherImages, TheirSizeIsRefusedBeforeMemoryIsTaken) {
  const Bytes bytes = testing::from_base64(fixture()["images"]["tiff_plain"]["file"]);
  // width and height, the first two entries of the directory
  for (const std::size_t entry : {0U, 1U}) {
    Bytes bomb = bytes;
    const std::size_t directory = bytes[4] | bytes[5] << 8U | bytes[6] << 16U;
    const std::size_t at = directory + 2 + 12 * entry;
    bomb[at + 2] = 4;  // the type "long"
    for (std::size_t i = 0; i < 4; ++i) bomb[at + 8 + i] = i == 3 ? 0x7F : 0xFF;
    Image image;
    EXPECT_THAT(decode_image(bomb, image), HasSubstr("at most 268435456 pixels are supported"));
  }
}

TEST(OtherImages, NoMemoryIsTakenForPixelsThatTheFileCannotHold) {
  for (const char* name : {"bmp_rgb", "bmp_os2", "pnm_ppm", "pnm_pbm", "pnm_text"}) {
    Bytes bytes = testing::from_base64(fixture()["images"][name]["file"]);
    if (bytes[0] == 'B') {
      bytes[19] = bytes[14] == 12 ? 0x7F : 0x3F;  // the second byte of the width
    } else {
      const Bytes more = {'9', '9', '9', '9'};  // 19 pixels become 199999
      bytes.insert(std::find(bytes.begin(), bytes.end(), '9'), more.begin(), more.end());
    }
    Image image;
    EXPECT_THAT(decode_image(bytes, image), HasSubstr("its end is missing")) << name;
    EXPECT_TRUE(image.rgb.empty());
  }
}

TEST(OtherImages, OtherThreadsKeepStandardError) {
  Bytes broken = testing::from_base64(fixture()["images"]["bmp_rgb"]["file"]);
  broken.resize(broken.size() - 4);
  Image image;
  EXPECT_THAT(decode_image(broken, image), HasSubstr("damaged BMP: OpenCV cannot decode it"));
  ::testing::internal::CaptureStderr();
  std::string spoken;
  std::atomic<bool> has_spoken = false;
  std::thread other([&] {
    for (int i = 0; i < 2000; ++i) {
      std::cerr << "word " << i << std::endl;
      spoken += fmt::format("word {}\n", i);
    }
    has_spoken = true;
  });
  while (!has_spoken) decode_image(broken, image);
  other.join();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), spoken);
}

}  // namespace
}  // namespace hetu
