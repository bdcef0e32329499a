// Tests CIFAR-100: both file forms, truncated and wrong files, and a pickle that is read without
// running it.
#include "datasets/cifar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "base/error.h"
#include "datasets/cifar_pickle.h"
#include "datasets/loader.h"
#include "datasets/resample.h"
#include "tests/datasets/image_files.h"

namespace hetu {
namespace {

using testing::Bytes;
using testing::Folder;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Returns rows in the binary form. Row i has the coarse label i % 20, the fine label i % 100, and
// pixels that count up from i.
Bytes rows_of(int rows) {
  Bytes out;
  for (int i = 0; i < rows; ++i) {
    out.push_back(static_cast<std::uint8_t>(i % 20));
    out.push_back(static_cast<std::uint8_t>(i % 100));
    for (int k = 0; k < Cifar100::kBytes; ++k) out.push_back(static_cast<std::uint8_t>(i + k));
  }
  return out;
}

void text(Bytes& to, const std::string& word) {
  to.push_back('U');
  to.push_back(static_cast<std::uint8_t>(word.size()));
  to.insert(to.end(), word.begin(), word.end());
}

void raw(Bytes& to, const std::string& bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

void word32(Bytes& to, std::int64_t value) {
  for (int i = 0; i < 4; ++i) to.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
}

void list(Bytes& to, int rows, int below) {
  raw(to, "](");
  for (int i = 0; i < rows; ++i) to.insert(to.end(), {'K', static_cast<std::uint8_t>(i % below)});
  to.push_back('e');
}

// Returns the same rows as Python 2 pickles them with protocol 2. `is_fortran`: the array is stored
// in column-major order.
Bytes pickle_of(int rows, bool is_fortran = false) {
  const Bytes binary = rows_of(rows);
  Bytes out = {0x80, 2, '}', 'q', 1, '('};
  text(out, "fine_labels");
  list(out, rows, 100);
  text(out, "coarse_labels");
  list(out, rows, 20);
  text(out, "data");
  raw(out, "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK");
  raw(out, std::string("\0\x85U\1b\x87R(K\1", 10));  // ((0,), 'b') -> an empty array; its state
  out.push_back('J');
  word32(out, rows);
  raw(out, std::string("M\x00\x0c\x86"
                       "cnumpy\ndtype\nU\2u1K\0K\1\x87R",
                       27));
  raw(out, "(K\3U\1|NNNJ");
  word32(out, -1);
  out.push_back('J');
  word32(out, -1);
  raw(out, std::string(is_fortran ? "K\0tb\x88T" : "K\0tb\x89T", 6));
  word32(out, std::int64_t{rows} * Cifar100::kBytes);
  for (std::size_t k = 0; is_fortran && k < Cifar100::kBytes; ++k)
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row)
      out.push_back(binary[row * (Cifar100::kBytes + 2) + 2 + k]);
  for (std::size_t row = 0; !is_fortran && row < static_cast<std::size_t>(rows); ++row) {
    const auto begin =
        binary.begin() + static_cast<std::ptrdiff_t>(row * (Cifar100::kBytes + 2) + 2);
    out.insert(out.end(), begin, begin + Cifar100::kBytes);
  }
  raw(out, "tbu.");
  return out;
}

TEST(Cifar, BothFormsHoldTheSameRows) {
  const Folder folder;
  testing::write_bytes(folder / "train.bin", rows_of(130));
  std::filesystem::create_directory(folder / "cifar-100-python");
  testing::write_bytes(folder / "cifar-100-python/test", pickle_of(130));
  const Cifar100 binary = read_cifar100(folder.path(), true);
  const Cifar100 pickled = read_cifar100(folder.path(), false);
  EXPECT_EQ(binary.path, folder / "train.bin");
  EXPECT_EQ(pickled.path, folder / "cifar-100-python/test");
  EXPECT_EQ(binary.rows(), 130);
  EXPECT_EQ(binary.pixels, pickled.pixels);
  EXPECT_EQ(binary.labels, pickled.labels);
  EXPECT_EQ(binary.coarse, pickled.coarse);
  EXPECT_EQ(read_cifar100(folder / "cifar-100-python/test", true).labels, binary.labels);
  testing::write_bytes(folder / "fortran", pickle_of(130, true));
  EXPECT_EQ(read_cifar100(folder / "fortran", true).pixels, binary.pixels);
}

TEST(Cifar, WrongFilesAreToldInOneLine) {
  const Folder folder;
  const auto reading = [&](const Bytes& bytes) {
    testing::write_bytes(folder / "file", bytes);
    return [path = folder / "file"] { read_cifar100(path, true); };
  };
  const auto wrong = [&](const Bytes& bytes, const std::string& words) {
    EXPECT_THAT(reading(bytes), ThrowsMessage<Error>(HasSubstr(words)));
  };
  EXPECT_THAT([&] { read_cifar100(folder / "none", true); },
              ThrowsMessage<Error>(HasSubstr("no such file or folder")));
  EXPECT_THAT([&] { read_cifar100(folder.path(), false); },
              ThrowsMessage<Error>(HasSubstr("found neither test.bin nor test")));
  Bytes bytes = rows_of(3);
  bytes.pop_back();
  wrong(bytes, "not a CIFAR-100 file");
  wrong({}, "0 bytes");
  wrong(Bytes(3073 * 2), "a multiple of 3073 bytes suggests CIFAR-10");
  bytes = rows_of(3);
  bytes[3074 + 1] = 100;
  wrong(bytes, "row 1 has the labels 1 (coarse) and 100 (fine)");
  bytes = pickle_of(4);
  bytes.resize(bytes.size() - 9);
  wrong(bytes, "the file ends too early");
  Bytes runs = {0x80, 2};
  raw(runs, "cos\nsystem\nU\4true\x85R.");
  wrong(runs, "the name 'os system' does not occur in CIFAR files");
  Bytes ten = {0x80, 2, '}', '('};
  text(ten, "labels");
  list(ten, 3, 10);
  raw(ten, "u.");
  wrong(ten, "the pickle has no uint8 array 'data'");
}

// Six bytes request one more copy of a text, so a small file would exhaust the memory.
TEST(Cifar, APickleThatRepeatsATextIsRefused) {
  std::string text =
      "\x80\x02"
      "c_codecs\nencode\nq" +
      std::string(1, '\0');
  text += std::string("U\xff", 2) + std::string(255, 'x') + "q\x01U\x06latin1q\x02";
  for (int i = 0; i < 10000; ++i) text += std::string("h\0h\1h\2\x86R", 8);
  text += ".";
  const Bytes bytes(text.begin(), text.end());
  EXPECT_THAT(
      [&] { read_cifar_pickle(bytes, "file"); },
      ::testing::ThrowsMessage<Error>(::testing::HasSubstr("the same text is copied too often")));
}

TEST(CifarPickle, DamageIsToldOrHarmless) {
  std::mt19937 random(17);
  const Bytes right = pickle_of(2);
  int told = 0;
  for (int attempt = 0; attempt < 20000; ++attempt) {
    Bytes bytes = right;
    const std::size_t head = 260;  // the opcodes lie in this range
    for (int i = 0; i < 2; ++i) bytes[2 + random() % head] = static_cast<std::uint8_t>(random());
    if (attempt % 5 == 0) bytes.resize(random() % bytes.size());
    try {
      read_cifar_pickle(bytes, "file");
    } catch (const Error& error) {
      ++told;
      EXPECT_EQ(error.code(), Code::Io) << error.what();
    }
  }
  EXPECT_GT(told, 10000);
}

TEST(CutCifar, EqualsTorchvision) {
  const char* root = std::getenv("HETU_SOURCE_DIR");
  const auto fixture = nlohmann::json::parse(
      std::ifstream(std::string(root == nullptr ? "." : root) + "/tests/fixtures/images.json"));
  std::vector<std::uint8_t> planes(Cifar100::kBytes), rgb(Cifar100::kBytes);
  for (std::size_t i = 0; i < planes.size(); ++i)
    planes[i] = static_cast<std::uint8_t>(i * 7 % 251);
  for (const auto& cut : fixture["cifar_cuts"]) {
    CifarDraw draw;
    draw.right = cut[0], draw.down = cut[1], draw.flip = cut[2], draw.degrees = cut[3];
    cut_cifar(planes.data(), draw, rgb.data());
    const Bytes pixels = testing::interleaved(rgb.data(), 32 * 32);
    EXPECT_EQ(fmt::format("{:016x}", testing::digest(pixels.data(), pixels.size())),
              cut[4].get<std::string>())
        << cut;
  }
}

TEST(DrawCifar, IsUniformInEveryPart) {
  constexpr int kDraws = 90000;
  std::vector<int> right(9), down(9), thirds(3);
  int flips = 0;
  for (int row = 0; row < kDraws; ++row) {
    const CifarDraw draw = draw_cifar(5, 2, row);
    ++right.at(static_cast<std::size_t>(draw.right));
    ++down.at(static_cast<std::size_t>(draw.down));
    ++thirds.at(static_cast<std::size_t>((draw.degrees + 15) / 10));
    flips += draw.flip ? 1 : 0;
  }
  const auto near = [](int count, double share) {
    EXPECT_NEAR(count, kDraws * share, 5 * std::sqrt(kDraws * share * (1 - share)));
  };
  for (const int count : right) near(count, 1.0 / 9);
  for (const int count : down) near(count, 1.0 / 9);
  for (const int count : thirds) near(count, 1.0 / 3);
  near(flips, 0.5);
}

std::unique_ptr<RowSource> source(bool train, std::uint64_t seed = 1) {
  auto set = std::make_shared<Cifar100>();
  for (int i = 0; i < 61; ++i) {
    set->labels.push_back(static_cast<std::uint8_t>(i));
    set->coarse.push_back(0);
    set->pixels.insert(set->pixels.end(), Cifar100::kBytes, static_cast<std::uint8_t>(4 * i + 3));
  }
  return cifar100_source({set, train, seed});
}

TEST(Cifar, EachRowComesOncePerEpochOverAnyPipelinesAndResumes) {
  constexpr std::int64_t kGlobal = 60;
  for (const int pipelines : {1, 2, 3, 4, 5}) {
    for (int stop = 0; stop < 3; ++stop) {
      std::vector<std::vector<std::byte>> images(3), labels(3);
      for (int d = 0; d < pipelines; ++d) {
        Batch batch;
        const LoaderOptions options{pipelines, d, kGlobal / pipelines, {}, 2};
        Position position;
        {
          Loader first(source(true), options);
          for (int step = 0; step < stop; ++step) first.next(batch);
          position = first.position();
        }
        Loader loader(source(true), options);
        loader.seek(position);
        for (int step = stop; step < 3; ++step) {
          loader.next(batch);
          const auto at = static_cast<std::size_t>(step);
          for (auto [to, field] : {std::pair{&images[at], "image"}, {&labels[at], "label"}}) {
            to->insert(to->end(), batch.at(field).bytes.begin(), batch.at(field).bytes.end());
          }
        }
      }
      Loader one(source(true), {1, 0, kGlobal, {}, 0});
      Batch batch;
      for (std::size_t step = 0; step < 3; ++step) {
        one.next(batch);
        if (static_cast<int>(step) < stop) continue;
        EXPECT_EQ(batch.at("image").bytes, images[step]) << pipelines << " " << stop;
        EXPECT_EQ(batch.at("label").bytes, labels[step]);
        const auto* label = batch.at("label").as<std::int32_t>();
        EXPECT_EQ(std::set<int>(label, label + kGlobal).size(), 60U);
      }
    }
  }
}

TEST(Cifar, EvaluationGivesTheRowsAsTheyAre) {
  Loader loader(source(false), {1, 0, 61, {}, 0});
  Batch batch;
  loader.next(batch);
  for (int row = 0; row < 61; ++row) {
    EXPECT_EQ(batch.at("label").as<std::int32_t>()[row], row);
    for (int i = 0; i < Cifar100::kBytes; ++i) {
      const int channel = i / 1024;
      ASSERT_EQ(batch.at("image").as<float>()[row * Cifar100::kBytes + i],
                (static_cast<float>(4 * row + 3) / 255.0F - kCifar100.mean[channel]) /
                    kCifar100.std[channel]);
    }
  }
}

}  // namespace
}  // namespace hetu
