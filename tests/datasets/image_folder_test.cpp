// Tests the loader over an image folder: the images and crops of each pipeline, over pipelines,
// threads and restarts; damaged images; and wrong folders.
#include "datasets/image_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "datasets/loader.h"
#include "datasets/resample.h"
#include "datasets/row_threads.h"
#include "tests/datasets/image_files.h"

namespace hetu {
namespace {

using testing::Folder;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int kSize = 8;
constexpr std::int64_t kFloats = 3 * kSize * kSize;

// Writes images of a single grey value, which is twice their number in the list. Every crop then
// identifies its image.
void fill_grey(const Folder& folder, const std::vector<int>& images) {
  int number = 0;
  for (std::size_t c = 0; c < images.size(); ++c) {
    const std::string below = folder / std::string(1, static_cast<char>('a' + c));
    std::filesystem::create_directory(below);
    for (int i = 0; i < images[c]; ++i, ++number) {
      Image image{20 + i, 30, {}};
      const auto pixels = static_cast<std::size_t>(image.width) * static_cast<std::size_t>(30);
      image.rgb.assign(3 * pixels, static_cast<std::uint8_t>(2 * number));
      testing::write_bytes(below + "/" + std::to_string(100 + i) + ".jpg", encode_jpeg(image, 95));
    }
  }
}

int number_of(const float* planes) {
  const double red = planes[0] * kImageNet.std[0] + kImageNet.mean[0];
  return static_cast<int>(std::lround(red * 255 / 2));
}

std::unique_ptr<RowSource> source(const Folder& folder, bool train, std::uint64_t seed = 3,
                                  int threads = 1) {
  ImageFolderOptions options;
  options.list = std::make_shared<ImageList>(folder.path());
  options.size = kSize;
  options.train = train;
  options.seed = seed;
  options.threads = threads;
  return image_folder_source(options);
}

struct Rows {
  std::vector<float> images;
  std::vector<std::int32_t> labels;
  bool operator==(const Rows&) const = default;

  std::vector<int> numbers() const {
    std::vector<int> out;
    for (std::size_t i = 0; i < images.size(); i += kFloats) out.push_back(number_of(&images[i]));
    return out;
  }
};

// Returns the rows of all pipelines in the order of a run, from `start` on.
Rows taken(const Folder& folder, LoaderOptions options, int threads, int steps,
           const Position* start = nullptr, std::uint64_t seed = 3) {
  std::vector<std::unique_ptr<Loader>> loaders;
  for (options.pipeline = 0; options.pipeline < options.pipelines; ++options.pipeline) {
    loaders.push_back(std::make_unique<Loader>(source(folder, true, seed, threads), options));
    if (start != nullptr) loaders.back()->seek(*start);
  }
  Rows out;
  Batch batch;
  for (int step = 0; step < steps; ++step) {
    for (const auto& loader : loaders) {
      loader->next(batch);
      const float* images = batch.at("image").as<float>();
      const std::int32_t* labels = batch.at("label").as<std::int32_t>();
      out.images.insert(out.images.end(), images, images + batch.rows * kFloats);
      out.labels.insert(out.labels.end(), labels, labels + batch.rows);
    }
  }
  return out;
}

using Case = std::tuple<int, int, int>;  // pipelines, threads, prefetch
class EverySplit : public ::testing::TestWithParam<Case> {};

TEST_P(EverySplit, GivesEachImageOnceCutTheSame) {
  const auto [pipelines, threads, prefetch] = GetParam();
  const Folder folder;
  fill_grey(folder, {23, 1, 40, 30});  // 94 images
  const std::int64_t global = 60 / pipelines * pipelines;
  constexpr int kSteps = 3;  // one epoch per step
  const Rows one = taken(folder, {1, 0, global, {}, 0}, 1, kSteps);
  const Rows split =
      taken(folder, {pipelines, 0, global / pipelines, {}, prefetch}, threads, kSteps);
  EXPECT_EQ(one, split);
  const std::vector<int> numbers = split.numbers();
  const ImageList list(folder.path());
  for (int step = 0; step < kSteps; ++step) {
    const auto begin = numbers.begin() + step * global;
    EXPECT_EQ(std::set<int>(begin, begin + global).size(), static_cast<std::size_t>(global));
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(split.labels[i], list.label(numbers[i]));
  }
}

INSTANTIATE_TEST_SUITE_P(Grid, EverySplit,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 5),
                                            ::testing::Values(1, 4), ::testing::Values(0, 3)));

TEST(ImageFolder, ResumesAnywhereUnderAnyNumberOfPipelines) {
  const Folder folder;
  fill_grey(folder, {9, 13, 7});  // 29 images; 4 steps of 6 images per epoch
  constexpr int kSteps = 9;
  const Rows whole = taken(folder, {1, 0, 6, {}, 0}, 1, kSteps);
  for (int stop = 0; stop < kSteps; ++stop) {
    Loader before(source(folder, true, 3, 2), {2, 1, 3, {}, 2});
    Batch batch;
    for (int step = 0; step < stop; ++step) before.next(batch);
    const Position position = before.position();
    for (const int pipelines : {1, 2, 3}) {
      const Rows rest =
          taken(folder, {pipelines, 0, 6 / pipelines, {}, 1}, 2, kSteps - stop, &position);
      EXPECT_TRUE(std::equal(rest.images.begin(), rest.images.end(),
                             whole.images.begin() + stop * 6 * kFloats))
          << "stopped after " << stop << ", resumed on " << pipelines;
      EXPECT_TRUE(
          std::equal(rest.labels.begin(), rest.labels.end(), whole.labels.begin() + 6 * stop));
    }
  }
}

TEST(ImageFolder, EpochsAndSeedsDrawAnew) {
  const Folder folder;
  folder.fill({12});
  const Rows rows = taken(folder, {1, 0, 12, {}, 0}, 1, 2);
  const Rows other = taken(folder, {1, 0, 12, {}, 0}, 1, 1, nullptr, 4);
  const auto half = rows.images.begin() + 12 * kFloats;
  std::set<std::vector<float>> seen;
  for (std::ptrdiff_t i = 0; i < 12 * kFloats; i += kFloats) {
    seen.insert({rows.images.begin() + i, rows.images.begin() + i + kFloats});
    seen.insert({half + i, half + i + kFloats});
    seen.insert({other.images.begin() + i, other.images.begin() + i + kFloats});
  }
  EXPECT_EQ(seen.size(), 36U);
}

TEST(ImageFolder, HalfOfTheImagesAreMirrored) {
  // The left half is black and the right half is white, so the brighter side shows whether an image
  // is mirrored.
  const Folder folder;
  std::filesystem::create_directory(folder / "a");
  Image image{40, 40, std::vector<std::uint8_t>(40 * 40 * 3)};
  for (int i = 0; i < 40 * 40 * 3; ++i) {
    image.rgb[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(i / 3 % 40 * 6);
  }
  for (int i = 0; i < 40; ++i) {
    testing::write_bytes(fmt::format("{}/a/{}.jpg", folder.path(), i), encode_jpeg(image, 95));
  }
  const Rows rows = taken(folder, {1, 0, 40, {}, 0}, 1, 50);
  int mirrored = 0;
  for (std::size_t i = 0; i < rows.images.size(); i += kFloats) {
    mirrored += rows.images[i] > rows.images[i + kSize - 1] ? 1 : 0;
  }
  EXPECT_NEAR(mirrored / 2000.0, 0.5, 5 * 0.5 / std::sqrt(2000.0));
}

TEST(ImageFolder, EvaluationKeepsTheListsOrderInEveryEpoch) {
  const Folder folder;
  fill_grey(folder, {3, 2, 4});
  Loader loader(source(folder, false), {1, 0, 9, {}, 2});
  Batch batch;
  for (int epoch = 0; epoch < 2; ++epoch) {
    loader.next(batch);
    for (int i = 0; i < 9; ++i) {
      EXPECT_EQ(number_of(batch.at("image").as<float>() + i * kFloats), i);
    }
  }
}

TEST(ImageFolder, LabelsAreReadWithoutOpeningAImage) {
  const Folder folder;
  fill_grey(folder, {3, 2, 4});
  const Rows both = taken(folder, {1, 0, 9, {}, 0}, 1, 2);
  auto labels = source(folder, true);
  for (const char* name : {"a/100.jpg", "b/101.jpg"}) std::filesystem::remove(folder / name);
  Loader loader(std::move(labels), {1, 0, 9, {"label"}, 0});
  Batch batch;
  for (int step = 0; step < 2; ++step) {
    loader.next(batch);
    ASSERT_EQ(batch.fields.size(), 1U);
    EXPECT_TRUE(std::equal(both.labels.begin() + 9 * step, both.labels.begin() + 9 * (step + 1),
                           batch.fields[0].as<std::int32_t>()));
  }
}

void cut_short(const std::string& path) {
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
}

TEST(ImageFolder, TheNextOfItsClassStandsInForADamagedImage) {
  const Folder folder;
  fill_grey(folder, {4, 3});
  cut_short(folder / "a/101.jpg");
  cut_short(folder / "a/102.jpg");
  testing::write_bytes(folder / "b/102.jpg",
                       {'n', 'o', 'n', 'e'});  // The last image; the first image of b replaces it.
  const std::map<int, int> stands_in = {{1, 3}, {2, 3}, {6, 4}};
  ::testing::internal::CaptureStderr();
  Loader loader(source(folder, false, 3, 2), {1, 0, 7, {}, 0});
  Batch batch;
  loader.next(batch);
  EXPECT_EQ(loader.skipped_rows(), 3);
  loader.next(batch);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(loader.skipped_rows(), 6);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_THAT(said, HasSubstr("replaced by another image of its class"));
  for (int i = 0; i < 7; ++i) {
    const auto other = stands_in.find(i);
    EXPECT_EQ(number_of(batch.at("image").as<float>() + i * kFloats),
              other == stands_in.end() ? i : other->second);
    EXPECT_EQ(batch.at("label").as<std::int32_t>()[i], i < 4 ? 0 : 1);
  }
}

TEST(ImageFolder, LoadersOfOneListWarnOnce) {
  const Folder folder;
  fill_grey(folder, {2, 2});
  cut_short(folder / "b/100.jpg");
  ImageFolderOptions options;
  options.list = std::make_shared<ImageList>(folder.path());
  options.size = kSize;
  ::testing::internal::CaptureStderr();
  for (const bool train : {true, false, true}) {
    options.train = train;
    Loader loader(image_folder_source(options), {1, 0, 4, {}, 0});
    Batch batch;
    loader.next(batch);
    EXPECT_EQ(loader.skipped_rows(), 1);
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

TEST(ImageFolder, DamageChangesNothingForTheOthersOnAnyThread) {
  const Folder folder;
  fill_grey(folder, {12, 12});
  cut_short(folder / "a/105.jpg");
  const Rows one = taken(folder, {1, 0, 24, {}, 0}, 1, 4);
  EXPECT_EQ(one, taken(folder, {3, 0, 8, {}, 2}, 3, 4));
}

TEST(ImageFolder, AClassWithoutAnyReadableImageEndsInOneLine) {
  const Folder folder;
  fill_grey(folder, {2, 2});
  cut_short(folder / "b/100.jpg");
  cut_short(folder / "b/101.jpg");
  Loader loader(source(folder, true, 3, 2), {1, 0, 4, {}, 1});
  Batch batch;
  EXPECT_THAT([&] { loader.next(batch); },
              ThrowsMessage<Error>(HasSubstr("/b: none of its 2 images can be decoded")));
}

TEST(ImageFolder, AVanishedImageEndsInOneLine) {
  const Folder folder;
  fill_grey(folder, {2, 2});
  auto rows = source(folder, true);
  std::filesystem::remove(folder / "a/100.jpg");
  Loader loader(std::move(rows), {1, 0, 4, {}, 1});
  Batch batch;
  EXPECT_THAT([&] { loader.next(batch); },
              ThrowsMessage<Error>(HasSubstr("a/100.jpg: cannot be opened: No such file")));
}

TEST(ImageFolder, APositionOfOtherImagesIsRefused) {
  const Folder folder, other;
  fill_grey(folder, {4, 4});
  fill_grey(other, {5, 3});
  const Loader saved(source(folder, true), {1, 0, 4, {}, 0});
  Loader loader(source(other, true), {1, 0, 4, {}, 0});
  EXPECT_THAT([&] { loader.seek(saved.position()); },
              ThrowsMessage<Error>(HasSubstr("use the same data and seed")));
}

TEST(ImageList, NumbersClassesAndImagesByTheirNames) {
  const Folder folder;
  for (const char* below : {"b", "a", "C", ".hidden", "b/deeper"}) {
    std::filesystem::create_directories(folder / below);
  }
  for (const char* name : {"a/2.jpg", "a/10.JPEG", "a/notes.txt", "a/3.gif", "a/4.WebP", "a/.x.jpg",
                           "b/1.PnG", "b/deeper/3.jpg", "C/z.jPeg", ".hidden/1.jpg", "stray.jpg"}) {
    testing::write_bytes(folder / name, {1});
  }
  std::filesystem::create_directory(folder / "linked_to");
  testing::write_bytes(folder / "linked_to/l.jpg", {1});
  std::filesystem::create_directory_symlink(folder / "linked_to", folder / "zz");
  const ImageList list(folder.path());
  ASSERT_EQ(list.classes(), 5);
  std::vector<std::string> names;
  for (int i = 0; i < list.images(); ++i) {
    names.push_back(fmt::format("{} {}", list.label(i), list.path(i).substr(folder.path().size())));
  }
  EXPECT_THAT(names, ::testing::ElementsAre("0 /C/z.jPeg", "1 /a/10.JPEG", "1 /a/2.jpg",
                                            "1 /a/4.WebP", "2 /b/1.PnG", "2 /b/deeper/3.jpg",
                                            "3 /linked_to/l.jpg", "4 /zz/l.jpg"));
}

// torchvision's ImageFolder numbers images folder by folder, in the order of their paths. The
// expected order was compared with torchvision 0.29 on 150 images.
TEST(ImageList, ImagesInFoldersOfAClassAreItsOwn) {
  const Folder folder;
  for (const char* name :
       {"a/1.jpg", "a/batch2/2.jpg", "a/batch2/deep/0.png", "a/batch2-more/7.jpg", "a/Zed/9.jpg",
        "a/.hidden/3.jpg", "a/._1.jpg", "b/only/below/4.jpg", "b/only/notes.txt"}) {
    std::filesystem::create_directories(std::filesystem::path(folder / name).parent_path());
    testing::write_bytes(folder / name, {1});
  }
  std::filesystem::create_directory_symlink(folder / "b/only", folder / "a/linked");
  for (int i = 0; i < 40; ++i) {
    const std::string below = fmt::format("{}/c/{:02}/deep", folder.path(), i);
    std::filesystem::create_directories(below);
    testing::write_bytes(below + "/x.jpg", {1});
  }
  const ImageList list(folder.path());
  std::vector<std::string> found;
  for (std::int64_t i = 0; i < list.images(); ++i)
    found.push_back(
        fmt::format("{} {}", list.label(i), list.path(i).substr(list.folder().size() + 1)));
  std::vector<std::string> expected = {"0 a/1.jpg",
                                       "0 a/Zed/9.jpg",
                                       "0 a/batch2/2.jpg",
                                       "0 a/batch2-more/7.jpg",
                                       "0 a/batch2/deep/0.png",
                                       "0 a/linked/below/4.jpg",
                                       "1 b/only/below/4.jpg"};
  for (int i = 0; i < 40; ++i) expected.push_back(fmt::format("2 c/{:02}/deep/x.jpg", i));
  EXPECT_EQ(found, expected);
  std::filesystem::create_directory_symlink(folder / "a", folder / "a/Zed/around");
  EXPECT_THAT([&] { ImageList again(folder.path()); },
              ThrowsMessage<Error>(HasSubstr("a/Zed/around: a link to a folder that contains it")));
}

TEST(ImageList, WrongFoldersAreToldInOneLine) {
  const Folder folder;
  const auto listing = [](const std::string& path) { return [path] { ImageList list(path); }; };
  EXPECT_THAT(listing(folder / "none"), ThrowsMessage<Error>(HasSubstr("No such file")));
  EXPECT_THAT(listing(folder.path()),
              ThrowsMessage<Error>(HasSubstr("has no class folders (and no images)")));
  testing::write_bytes(folder / "x.jpg", {1});
  EXPECT_THAT(listing(folder / "x.jpg"), ThrowsMessage<Error>(HasSubstr("Not a directory")));
  EXPECT_THAT(listing(folder.path()),
              ThrowsMessage<Error>(HasSubstr("has no class folders (but 1 images)")));
  std::filesystem::create_directory(folder / "empty");
  EXPECT_THAT(listing(folder.path()),
              ThrowsMessage<Error>(HasSubstr("/empty: the class folder has no images")));
  ::chmod(folder.path().c_str(), 0755);
  ::chmod((folder / "empty").c_str(), 0);
  // Root may read every folder, so the test changes to another user.
  const bool root = ::geteuid() == 0;
  ASSERT_EQ(::seteuid(root ? 65534 : ::geteuid()), 0);
  EXPECT_THAT(listing(folder.path()), ThrowsMessage<Error>(HasSubstr("Permission denied")));
  ASSERT_EQ(::seteuid(root ? 0 : ::geteuid()), 0);
  ::chmod((folder / "empty").c_str(), 0700);
}

TEST(ImageFolder, RefusesSizesThatCannotBe) {
  const Folder folder;
  fill_grey(folder, {1});
  ImageFolderOptions options;
  EXPECT_THAT([&] { image_folder_source(options); },
              ThrowsMessage<Error>(HasSubstr("image folder: no list of images is given")));
  options.list = std::make_shared<ImageList>(folder.path());
  options.size = 0;
  EXPECT_THAT([&] { image_folder_source(options); },
              ThrowsMessage<Error>(HasSubstr("an image side must have 1 to 8192 pixels, got 0")));
  options.size = 8;
  options.threads = 0;
  EXPECT_THROW(image_folder_source(options), Error);
}

TEST(RowThreads, DoesEachRowOnceAndRethrowsTheLowestFailure) {
  for (const int threads : {1, 2, 7}) {
    RowThreads rows(threads);
    for (int round = 0; round < 200; ++round) {
      std::vector<int> done(static_cast<std::size_t>(round % 23));
      rows.each(round % 23, [&](std::int64_t row, int thread) {
        EXPECT_TRUE(thread >= 0 && thread < threads);
        ++done[static_cast<std::size_t>(row)];
      });
      EXPECT_EQ(std::count(done.begin(), done.end(), 1), round % 23);
    }
    const auto failing = [](std::int64_t row, int) { require(row < 5, "row {}", row); };
    EXPECT_THAT([&] { rows.each(40, failing); }, ThrowsMessage<Error>("row 5"));
  }
}

}  // namespace
}  // namespace hetu
