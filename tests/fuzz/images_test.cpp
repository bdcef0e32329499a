// Random damage in images of every format: decoded or refused in one line, within bounded memory,
// without a word on standard error, and the same whatever memory held before. The DISABLED test
// does many; ctest runs it as `images_fuzz_asan` (slow), in a tree with sanitizers.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>
#include <random>

#include "datasets/image.h"
#include "tests/datasets/image_files.h"

namespace hetu {
namespace {

using testing::Bytes;

std::vector<Bytes> whole_images() {
  std::vector<Bytes> files;
  for (const char* fixture : {"other_images.json", "images.json"}) {
    const auto read = nlohmann::json::parse(testing::fixture_text(fixture));
    for (const auto& [name, described] : read["images"].items()) {
      files.push_back(testing::from_base64(described["file"]));
    }
  }
  return files;
}

void damage(Bytes& bytes, std::mt19937& random) {
  // Most of what a format says lies in its first bytes or, in a TIFF, in its last.
  for (unsigned hits = 1 + random() % 4; hits > 0; --hits) {
    const std::size_t near = std::min<std::size_t>(bytes.size(), 64);
    std::size_t at = random() % (random() % 2 == 0 ? near : bytes.size());
    if (random() % 4 == 0)
      at = bytes.size() - 1 - random() % std::min<std::size_t>(bytes.size(), 200);
    const std::uint8_t kinds[] = {static_cast<std::uint8_t>(random()), 0, 0xFF, 0x7F,
                                  static_cast<std::uint8_t>(bytes[at] + 1)};
    bytes[at] = kinds[random() % std::size(kinds)];
  }
  if (random() % 8 == 0) bytes.resize(1 + random() % bytes.size());
}

struct Made {
  DecodeTrouble trouble;
  Image image;
};

// With memory filled by `pattern` before it is handed out.
Made made_of(const Bytes& bytes, int pattern) {
  Made made;
  ::mallopt(M_PERTURB, pattern);
  made.trouble = decode_image(bytes, made.image);
  ::mallopt(M_PERTURB, 0);
  return made;
}

void try_many(int count, unsigned seed) {
  std::mt19937 random(seed);
  const std::vector<Bytes> files = whole_images();
  int told = 0;
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < count; ++i) {
    Bytes bytes = files[random() % files.size()];
    damage(bytes, random);
    const Made first = made_of(bytes, 0x55), second = made_of(bytes, 0xA3);
    told += first.trouble.empty() ? 0 : 1;
    EXPECT_EQ(first.trouble.find('\n'), std::string::npos) << first.trouble;
    EXPECT_EQ(first.trouble, second.trouble) << "image " << i << " of seed " << seed;
    if (!first.trouble.empty()) continue;
    EXPECT_TRUE(first.image.rgb == second.image.rgb) << "image " << i << " of seed " << seed;
    EXPECT_EQ(first.image.rgb.size(), std::size_t{3} * static_cast<std::size_t>(first.image.width) *
                                          static_cast<std::size_t>(first.image.height));
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "seed " << seed;
  EXPECT_GT(told, count / 10);
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss / 1024, 4096) << "MB";
}

TEST(Images, DamageIsToldOrDecodedTheSame) { try_many(1200, 5); }

TEST(Images, DISABLED_ManyImages) { try_many(30000, 6); }

}  // namespace
}  // namespace hetu
