// Tests pixels. Decoding equals OpenCV's Python interface, resizing equals Pillow, and an
// evaluation input equals torchvision. Parts equal the whole image, and damage is reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "datasets/augment.h"
#include "datasets/image.h"
#include "datasets/orientation.h"
#include "datasets/resample.h"
#include "tests/datasets/image_files.h"

namespace hetu {
namespace {

using testing::Bytes;
using ::testing::HasSubstr;
using testing::hex;

const nlohmann::json& fixture() {
  static const auto kFixture = nlohmann::json::parse(testing::fixture_text("images.json"));
  return kFixture;
}

class EveryImage : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    described_ = fixture()["images"][GetParam()];
    bytes_ = testing::from_base64(described_["file"]);
    ASSERT_EQ(decode_image(bytes_, image_), "");
  }
  nlohmann::json described_;
  Bytes bytes_;
  Image image_;
};

TEST_P(EveryImage, HasThePixelsThatOpenCvReadsInPython) {
  EXPECT_EQ(image_.width, described_["width"]);
  EXPECT_EQ(image_.height, described_["height"]);
  EXPECT_EQ(hex(testing::digest(image_.rgb.data(), image_.rgb.size())),
            described_["pixels"].get<std::string>());
}

TEST_P(EveryImage, IsResizedAsPillowDoes) {
  for (const auto& part : described_["parts"]) {
    const int size = part[4];
    const auto pixels = static_cast<std::size_t>(size) * static_cast<std::size_t>(size);
    Resampler resampler;
    const Box from = {part[0], part[1], part[2], part[3]};
    const Bytes rgb = testing::interleaved(
        resampler.resize(image_, from, size, size, {0, 0, size, size}, false), pixels);
    EXPECT_EQ(hex(testing::digest(rgb.data(), rgb.size())), part[5].get<std::string>()) << part;
  }
}

TEST_P(EveryImage, IsTorchvisionsEvaluationInput) {
  const CentreCrop cut = centre_crop(image_.width, image_.height, 256, 224);
  Resampler resampler;
  const std::uint8_t* bytes =
      resampler.resize(image_, {0, 0, image_.width, image_.height}, cut.resized_width,
                       cut.resized_height, cut.crop, false);
  std::vector<float> planes(3 * 224 * 224);
  normalise(bytes, 224 * 224, kImageNet, planes.data());
  EXPECT_EQ(hex(testing::digest(planes.data(), planes.size() * sizeof(float))),
            described_["eval"].get<std::string>());
}

std::vector<std::string> image_names() {
  std::vector<std::string> names;
  for (const auto& [name, described] : fixture()["images"].items()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Fixture, EveryImage, ::testing::ValuesIn(image_names()),
                         [](const auto& name) { return name.param; });

// Any part must have exactly the pixels of the whole image, for every storage of colour.
TEST_P(EveryImage, ThePartsAreThoseOfTheWhole) {
  const unsigned seed = ::testing::UnitTest::GetInstance()->random_seed() + 1;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  const auto below = [&random](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
  };
  for (int attempt = 0; attempt < 200; ++attempt) {
    Box box;
    const auto part = [&](int width, int height) {
      box.width = 1 + below(width), box.height = 1 + below(height);
      box.x = below(width - box.width + 1), box.y = below(height - box.height + 1);
      return box;
    };
    Image held;
    Box there;
    ASSERT_EQ(decode_part(bytes_, part, held, there), "");
    ASSERT_EQ(there.width, box.width);
    ASSERT_EQ(there.height, box.height);
    ASSERT_LE(there.x + there.width, held.width);
    for (int y = 0; y < box.height; ++y) {
      const auto* whole = image_.rgb.data() + ((box.y + y) * image_.width + box.x) * 3;
      const auto* mine = held.rgb.data() + ((there.y + y) * held.width + there.x) * 3;
      ASSERT_TRUE(std::equal(whole, whole + box.width * 3, mine))
          << box.x << "," << box.y << " " << box.width << "x" << box.height << " row " << y;
    }
  }
}

TEST(Jpeg, LargerImagesToo) {
  std::mt19937 random(3);
  for (const int side : {200, 333}) {
    const Bytes bytes = encode_jpeg(drawn_image(3, 10, side, 5, 6), 92);
    Image whole, held;
    ASSERT_EQ(decode_image(bytes, whole), "");
    for (int attempt = 0; attempt < 100; ++attempt) {
      SampleRandom random_numbers(1, side, attempt);
      Box box, there;
      const auto part = [&](int w, int h) {
        return box = random_resized_crop(w, h, random_numbers);
      };
      ASSERT_EQ(decode_part(bytes, part, held, there), "");
      EXPECT_LE(held.height, box.height);
      for (int y = 0; y < box.height; ++y) {
        const auto* from = whole.rgb.data() + ((box.y + y) * whole.width + box.x) * 3;
        const auto* mine = held.rgb.data() + ((there.y + y) * held.width + there.x) * 3;
        ASSERT_TRUE(std::equal(from, from + box.width * 3, mine)) << "row " << y;
      }
    }
  }
}

TEST(Jpeg, OneThatEndsEarlyIsDamagedWhereverItIsCut) {
  const Bytes whole = encode_jpeg(drawn_image(1, 10, 64, 2, 3), 90);
  Image image;
  Box there;
  const auto corner = [](int, int) { return Box{0, 0, 2, 2}; };
  for (std::size_t keep = 0; keep < whole.size() - 2; ++keep) {
    const Bytes bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(keep));
    EXPECT_NE(decode_image(bytes, image), "") << keep << " of " << whole.size() << " bytes";
    EXPECT_NE(decode_part(bytes, corner, image, there), "") << keep;
  }
}

TEST(Jpeg, RandomDamageEitherShowsOrIsDecodedAndNeverMore) {
  const unsigned seed = 11;
  std::mt19937 random(seed);
  const Bytes whole = encode_jpeg(drawn_image(1, 10, 64, 2, 3), 90);
  int told = 0;
  for (int attempt = 0; attempt < 2000; ++attempt) {
    Bytes bytes = whole;
    for (unsigned hits = 1 + random() % 3; hits > 0; --hits) {
      bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
    }
    Image image;
    Box there;
    const DecodeTrouble trouble = decode_part(
        bytes,
        [](int w, int h) {
          return Box{w / 3, h / 3, (w + 2) / 3, (h + 2) / 3};
        },
        image, there);
    told += trouble.empty() ? 0 : 1;
    EXPECT_EQ(trouble.find('\n'), std::string::npos) << trouble;
  }
  EXPECT_GT(told, 100);
}

TEST(Png, DamageAndEarlyEndsAreTold) {
  const Bytes whole = testing::from_base64(fixture()["images"]["png_alpha"]["file"]);
  Image image;
  for (std::size_t keep = 8; keep < whole.size(); ++keep) {
    const Bytes bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(keep));
    EXPECT_THAT(decode_image(bytes, image), HasSubstr("damaged PNG: ")) << keep;
  }
  // Errors outside the pixel data may go unnoticed.
  for (std::size_t at = 8; at < whole.size(); ++at) {
    Bytes bytes = whole;
    bytes[at] ^= 0x55;
    EXPECT_EQ(decode_image(bytes, image).find('\n'), std::string::npos);
  }
  Bytes bytes = whole;
  bytes[bytes.size() / 2] ^= 0x55;
  EXPECT_NE(decode_image(bytes, image), "");
}

TEST(Exif, FindsTheOrientationInEitherByteOrderAndSurvivesNonsense) {
  const Bytes little = {'E', 'x', 'i',  'f', 0, 0, 'I', 'I', 42, 0, 8, 0, 0, 0,
                        1,   0,   0x12, 1,   3, 0, 1,   0,   0,  0, 6, 0, 0, 0};
  const Bytes big = {'E', 'x', 'i', 'f',  0, 0, 'M', 'M', 0, 42, 0, 0, 0, 8,
                     0,   1,   1,   0x12, 0, 3, 0,   0,   0, 1,  0, 6, 0, 0};
  EXPECT_EQ(exif_orientation(little.data(), little.size()), 6);
  EXPECT_EQ(exif_orientation(big.data(), big.size()), 6);
  std::mt19937 random(5);
  for (const Bytes& right : {little, big}) {
    for (std::size_t keep = 0; keep < right.size(); ++keep) {
      const Bytes cut(right.begin(), right.begin() + static_cast<std::ptrdiff_t>(keep));
      EXPECT_EQ(exif_orientation(cut.data(), cut.size()), 1) << keep;
    }
    for (int attempt = 0; attempt < 5000; ++attempt) {
      Bytes hit = right;
      for (int i = 0; i < 3; ++i) {
        hit[6 + random() % (hit.size() - 6)] = static_cast<std::uint8_t>(random());
      }
      const int found = exif_orientation(hit.data(), hit.size());
      EXPECT_TRUE(found >= 1 && found <= 8);
    }
  }
}

TEST(Image, OtherBytesAreToldInOneLine) {
  Image image;
  EXPECT_EQ(decode_image({}, image), "the file is empty");
  EXPECT_THAT(decode_image({'G', 'I', 'F', '8', '9', 'a'}, image),
              HasSubstr("not a JPEG, PNG, BMP, TIFF, WebP or PNM image"));
  EXPECT_THAT(decode_image({0xFF, 0xD8, 0xFF}, image), HasSubstr("damaged JPEG"));
}

TEST(Encode, RefusesWhatIsNoImage) {
  EXPECT_THROW(encode_jpeg({}, 90), Error);
  EXPECT_THROW(encode_jpeg(drawn_image(0, 2, 8, 0, 0), 101), Error);
}

// Compares the quantiles with random crops of torchvision, to within six standard errors of each
// quantile's rank.
TEST(RandomResizedCrop, HasTorchvisionsDistribution) {
  const std::vector<double> ranks = fixture()["quantiles"];
  constexpr int kDraws = 100000;
  for (const auto& expected : fixture()["crops"]) {
    const int width = expected["width"], height = expected["height"];
    std::map<std::string, std::vector<double>> drawn;
    for (int sample = 0; sample < kDraws; ++sample) {
      SampleRandom random(7, 3, sample);
      const Box box = random_resized_crop(width, height, random);
      drawn["area"].push_back(1.0 * box.width * box.height / (width * height));
      drawn["log_aspect"].push_back(std::log(1.0 * box.width / box.height));
      if (box.width < width) drawn["x"].push_back(1.0 * box.x / (width - box.width));
      if (box.height < height) drawn["y"].push_back(1.0 * box.y / (height - box.height));
    }
    // clang 14 does not let a lambda capture a structured binding
    for (const auto& entry : drawn) {
      const std::string& what = entry.first;
      const std::vector<double>& values = entry.second;
      const std::vector<double> quantiles = expected[what];
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        const auto n = static_cast<double>(values.size());
        const auto share = [&](double shift) {
          return std::count_if(values.begin(), values.end(),
                               [&](double v) { return v < quantiles[i] + shift; }) /
                 n;
        };
        const double error = 6 * std::sqrt(ranks[i] * (1 - ranks[i]) * (1 / n + 1.0 / 200000));
        // Sizes are integers, so many samples may equal a quantile.
        EXPECT_LE(share(-1e-9), ranks[i] + error) << width << "x" << height << " " << what;
        EXPECT_GE(share(1e-9), ranks[i] - error) << width << "x" << height << " " << what;
      }
    }
  }
}

TEST(RandomResizedCrop, LiesWithinAnyImage) {
  for (int width = 1; width < 40; ++width) {
    for (int height = 1; height < 40; height += 3) {
      for (int sample = 0; sample < 50; ++sample) {
        SampleRandom random(1, width, height * 1000 + sample);
        const Box box = random_resized_crop(width, height, random);
        EXPECT_TRUE(box.x >= 0 && box.y >= 0 && box.width >= 1 && box.height >= 1 &&
                    box.x + box.width <= width && box.y + box.height <= height)
            << width << "x" << height;
      }
    }
  }
}

TEST(Resampler, MirrorsTheWindowAndNothingElse) {
  const Image image = drawn_image(4, 10, 37, 1, 2);
  Resampler resampler;
  const Box from = {3, 4, 29, 31}, window = {5, 2, 11, 13};
  const auto resized = [&](bool flip) {
    const std::uint8_t* bytes = resampler.resize(image, from, 20, 21, window, flip);
    return Bytes(bytes, bytes + 3 * 11 * 13);
  };
  const Bytes straight = resized(false), mirrored = resized(true);
  EXPECT_NE(straight, mirrored);
  for (std::size_t i = 0; i < straight.size(); ++i) {
    EXPECT_EQ(mirrored[i], straight[i - i % 11 + 10 - i % 11]);
  }
}

// Computes one pass of Pillow's algorithm, with its order of additions, for a line whose elements
// are `step` apart.
Bytes resized_line(const std::uint8_t* line, std::size_t step, int from, int to) {
  const double scale = 1.0 * from / to, reach = std::max(scale, 1.0);
  Bytes out;
  for (int i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * scale;
    const int begin = std::max(0, static_cast<int>(centre - reach + 0.5));
    const int end = std::min(from, static_cast<int>(centre + reach + 0.5));
    std::vector<double> weights;
    double all = 0;
    for (int k = begin; k < end; ++k) {
      weights.push_back(std::max(0.0, 1 - std::abs((k - centre + 0.5) * (1 / reach))));
      all += weights.back();
    }
    std::int64_t sum = 1 << 21;
    for (int k = begin; k < end; ++k) {
      const double weight = weights[static_cast<std::size_t>(k - begin)] / all;
      sum += static_cast<int>(0.5 + weight * (1 << 22)) * line[static_cast<std::size_t>(k) * step];
    }
    out.push_back(static_cast<std::uint8_t>(std::clamp<std::int64_t>(sum >> 22, 0, 255)));
  }
  return out;
}

// Covers enlarging and reducing, so that an output has any number of inputs. Inputs extend to the
// last byte of the image.
TEST(Resampler, MakesTheSumsOfAnyNumberOfPixels) {
  std::mt19937 random(7);
  for (const int from : {1, 2, 3, 5, 8, 13, 31, 64})
    for (const int to : {1, 3, 8, 20}) {
      const int width = from, height = (from * 7 + to) % 40 + 1;
      Image image{width, height, Bytes(static_cast<std::size_t>(width * height * 3))};
      for (std::uint8_t& byte : image.rgb) byte = random() % 3 == 0 ? 255 : random() % 256;
      Resampler resampler;
      const std::uint8_t* found =
          resampler.resize(image, {0, 0, width, height}, to, to, {0, 0, to, to}, false);
      for (std::size_t channel = 0; channel < 3; ++channel) {
        Bytes narrow;  // [height, to]
        for (int y = 0; y < height; ++y) {
          const Bytes row = resized_line(image.rgb.data() + y * width * 3 + channel, 3, width, to);
          narrow.insert(narrow.end(), row.begin(), row.end());
        }
        for (int x = 0; x < to; ++x) {
          const Bytes column =
              resized_line(narrow.data() + x, static_cast<std::size_t>(to), height, to);
          for (int y = 0; y < to; ++y)
            ASSERT_EQ(found[static_cast<int>(channel) * to * to + y * to + x],
                      column[static_cast<std::size_t>(y)])
                << from << " to " << to << ", " << x << "," << y;
        }
      }
    }
}

TEST(Normalise, IsThatOfEachPlane) {
  Bytes bytes(3 * 256);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i);
  std::vector<float> planes(bytes.size());
  normalise(bytes.data(), 256, kCifar100, planes.data());
  for (std::size_t i = 0; i < planes.size(); ++i) {
    const float value = static_cast<float>(i % 256) / 255.0F;
    EXPECT_EQ(planes[i], (value - kCifar100.mean[i / 256]) / kCifar100.std[i / 256]);
  }
}

}  // namespace
}  // namespace hetu
