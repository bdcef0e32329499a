// Tests click logs: every column of a line, bad lines with one error message each, ranges of large
// files, and orders.
#include "datasets/criteo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "base/error.h"
#include "datasets/loader.h"

namespace hetu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class Criteo : public ::testing::Test {
 protected:
  Criteo() { std::filesystem::create_directories(folder_); }
  ~Criteo() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }
  std::string folder() const { return folder_.string(); }

 private:
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / fmt::format("hetu_criteo_{}", ::getpid());
};

// Returns the line of row i: label i % 2, integers i + column, and categories (i * 26 + column) in
// hexadecimal.
std::string line(std::int64_t i) {
  std::string out = fmt::format("{}", i % 2);
  for (int k = 1; k <= 13; ++k) out += fmt::format("\t{}", i + k);
  for (int c = 0; c < 26; ++c) out += fmt::format("\t{:08x}", i * 26 + c);
  return out;
}

std::string lines(std::int64_t first, std::int64_t count) {
  std::string out;
  for (std::int64_t i = first; i < first + count; ++i) out += line(i) + "\n";
  return out;
}

// Returns the line with column number `column` (from 1) replaced.
std::string with(std::int64_t i, int column, const std::string& field) {
  std::string out;
  std::istringstream in(line(i));
  int k = 0;
  for (std::string one; std::getline(in, one, '\t');) {
    if (k++ > 0) out += "\t";
    out += k == column ? field : one;
  }
  return out;
}

CriteoOptions options_of(const std::string& path) {
  CriteoOptions options;
  options.set = std::make_shared<CriteoSet>(open_criteo(path));
  options.hash_size = 1000;
  options.train = false;
  return options;
}

// Returns the line number of each row of an epoch, which is its first integer minus 1.
std::vector<std::int64_t> numbers(RowSource& source, std::int64_t epoch, std::int64_t batch) {
  std::vector<std::int64_t> out;
  for (std::int64_t first = 0; first + batch <= source.rows(); first += batch) {
    Batch b;
    b.epoch = epoch;
    b.first = first;
    resize_batch(b, source.fields(), batch);
    source.read(b);
    for (std::int64_t r = 0; r < batch; ++r)
      out.push_back(std::llround(std::exp(double{b.at("dense").as<float>()[r * 13]})) - 2);
  }
  return out;
}

TEST_F(Criteo, EveryColumnOfARowIsRead) {
  const std::string path =
      write("a.tsv", with(7, 2, "-3") + "\n" + with(8, 14, "") + "\n" + with(9, 15, "") + "\n" +
                         with(10, 40, "FFfffFFF") + "\n" + with(11, 39, "3e9"));
  const auto source = criteo_source(options_of(path));
  ASSERT_EQ(source->rows(), 5);  // the last line has no newline
  Batch b;
  resize_batch(b, source->fields(), 5);
  source->read(b);
  const float* const dense = b.at("dense").as<float>();
  const std::int32_t* const ids = b.at("ids").as<std::int32_t>();
  for (int r = 0; r < 5; ++r) {
    const std::int64_t i = 7 + r;
    EXPECT_EQ(b.at("label").as<std::int32_t>()[r], i % 2);
    for (int k = 1; k <= 13; ++k) {
      const bool zero = (i == 7 && k == 1) || (i == 8 && k == 13);
      EXPECT_FLOAT_EQ(dense[r * 13 + k - 1], zero ? 0.0F : std::log1p(static_cast<float>(i + k)))
          << i << " " << k;
    }
    for (int c = 0; c < 26; ++c) {
      std::int64_t category = i * 26 + c;
      if (i == 9 && c == 0) category = 0;
      if (i == 10 && c == 25) category = 0xFFFFFFFF;
      if (i == 11 && c == 24) category = 0x3e9;
      EXPECT_EQ(ids[r * 26 + c], c * 1000 + category % 1000) << i << " " << c;
    }
  }
}

TEST_F(Criteo, AnEpochHasEachRowOnceInAnOrderOfItsOwn) {
  write("day_0", lines(0, 37));
  write("day_10", lines(137, 63));
  write("day_2", lines(37, 100));
  write("notes.txt", "no click log, and not read");
  CriteoOptions options = options_of(folder());
  std::vector<std::int64_t> ascending(200);
  for (std::size_t i = 0; i < ascending.size(); ++i) ascending[i] = static_cast<std::int64_t>(i);
  for (const std::int64_t window : {1, 7, 64, 1000}) {
    options.window = window;
    options.train = false;
    EXPECT_EQ(numbers(*criteo_source(options), 3, 5), ascending) << window;
    options.train = true;
    std::set<std::vector<std::int64_t>> orders;
    for (const std::uint64_t seed : {1, 2}) {
      options.seed = seed;
      const auto source = criteo_source(options);
      for (const std::int64_t epoch : {0, 1}) {
        std::vector<std::int64_t> found = numbers(*source, epoch, 5);
        EXPECT_EQ(found, numbers(*criteo_source(options), epoch, 1));
        if (window > 1) orders.insert(found);
        std::sort(found.begin(), found.end());
        EXPECT_EQ(found, ascending) << window;
      }
    }
    EXPECT_EQ(orders.size(), window > 1 ? 4 : 0);
  }
  options.max_rows = 40;
  EXPECT_EQ(criteo_source(options)->rows(), 40);
}

TEST_F(Criteo, EveryEpochOfOneFileHasAnOrderOfItsOwn) {
  CriteoOptions options = options_of(write("a.tsv", lines(0, 100)));
  options.train = true;
  for (const std::int64_t window : {20, 1000}) {
    options.window = window;
    const auto source = criteo_source(options);
    EXPECT_NE(numbers(*source, 0, 10), numbers(*source, 1, 10)) << window;
    EXPECT_EQ(numbers(*source, 0, 10), numbers(*source, 0, 20)) << window;
  }
}

// Ranges begin at any row, and the chunks that are read begin at any byte of a line.
TEST_F(Criteo, ALargeFileIsReadByRanges) {
  constexpr std::int64_t kRows = 20000;
  const CriteoFile file(write("large.tsv", lines(0, kRows)));
  ASSERT_EQ(file.rows(), kRows);
  ASSERT_GT(file.bytes(), 3 << 20);
  std::mt19937_64 random(11);
  for (int n = 0; n < 40; ++n) {
    const auto first = static_cast<std::int64_t>(random() % kRows);
    const auto count = static_cast<std::int64_t>(
        random() % static_cast<std::uint64_t>(std::min<std::int64_t>(kRows - first, 9000)));
    std::int64_t next = first;
    file.read(first, count, [&](std::int64_t number, std::string_view text) {
      ASSERT_EQ(number, next + 1);
      ASSERT_EQ(text, line(next++));
    });
    EXPECT_EQ(next, first + count) << "seed 11, range " << n;
  }
}

TEST_F(Criteo, ABadLineIsNamedInOneMessage) {
  struct Case {
    std::string text, found;
  };
  for (const Case& c : std::vector<Case>{
           {with(1, 1, ""), "column 1 (label) is '', expected 0 or 1"},
           {with(1, 1, "2"), "column 1 (label) is '2', expected 0 or 1"},
           {with(1, 2, "1.5"), "column 2 (I1) is '1.5', expected a decimal integer"},
           {with(1, 14, "12345678901234567890"), "column 14 (I13) is '12345678901234567890', expe"},
           {with(1, 15, "xyz"), "column 15 (C1) is 'xyz', expected 1 to 8 hexadecimal digits"},
           {with(1, 40, "123456789"), "column 40 (C26) is '123456789', expected 1 to 8 hex"},
           {with(1, 40, "-1"), "column 40 (C26) is '-1', expected 1 to 8 hexadecimal digits"},
           {line(1) + "\r", "column 40 (C26) is '00000033\\x0d', expected"},
           {with(1, 20, std::string(60, 'a')),
            "column 20 (C6) is 'aaaaaaaaaaaaaaaaaaaaaaaa'…, expected"},
           {line(1) + "\t", "41 columns, expected 40, tab-separated: label, 13 integers, 26 cat"},
           {line(1).substr(2), "39 columns, expected 40, tab-separated: label, 13 integers, 26 ca"},
           {"", "1 columns, expected 40"},
           {std::string(5000, '7'), "the line has more than 4096 bytes, expected 40 tab-separated"},
           {std::string(3'000'000, '\t'),
            "the line has more than 4096 bytes, expected 40 tab-sep"}}) {
    const std::string path = write("bad.tsv", line(0) + "\n" + c.text + "\n" + line(2) + "\n");
    const auto source = criteo_source(options_of(path));
    ASSERT_EQ(source->rows(), 3);
    EXPECT_THAT([&] { numbers(*source, 0, 3); },
                ThrowsMessage<Error>(HasSubstr(path + ":2: " + c.found)))
        << c.text.substr(0, 100);
    const CriteoCheck check = check_criteo(path, [](int, int) {});
    EXPECT_EQ(check.bad_rows, 1);
    EXPECT_THAT(check.problems, ElementsAre(HasSubstr(path + ":2: " + c.found)));
  }
}

TEST_F(Criteo, WhatCannotBeReadIsSaidAtOnce) {
  EXPECT_THAT([&] { open_criteo(folder() + "/nothing"); },
              ThrowsMessage<Error>(HasSubstr("nothing: no such file or folder")));
  write("._day_0", "written by macOS beside others");
  write(".a.txt", "an editor's copy");
  EXPECT_THAT([&] { open_criteo(folder()); },
              ThrowsMessage<Error>(HasSubstr("has no click logs; expected day_0, day_1, …")));
  const std::string path = write("empty.tsv", "");
  EXPECT_THAT([&] { open_criteo(path); }, ThrowsMessage<Error>(HasSubstr("has no rows")));
  CriteoOptions options = options_of(write("a.tsv", lines(0, 3)));
  for (const std::int64_t size : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 27}) {
    options.hash_size = size;
    EXPECT_THAT(
        [&] { criteo_source(options); },
        ThrowsMessage<Error>(HasSubstr("is out of range; use 1 to 82595524 rows for each")));
  }
  options.hash_size = 82595524;
  EXPECT_NO_THROW(criteo_source(options));
}

TEST_F(Criteo, AFileThatShrinksIsNamed) {
  const std::string path = write("a.tsv", lines(0, 50));
  const auto source = criteo_source(options_of(path));
  std::filesystem::resize_file(path, 1000);
  EXPECT_THROW(numbers(*source, 0, 10), Error);
  std::filesystem::resize_file(path, 0);
  EXPECT_THAT([&] { numbers(*source, 0, 10); },
              ThrowsMessage<Error>(HasSubstr("a.tsv: has 0 rows now, but had 50 at the start")));
}

TEST_F(Criteo, CheckCountsWhatIsThereAndListsTheFirstBadRows) {
  std::string text = lines(0, 10);
  for (int i = 0; i < 8; ++i) text += with(i, 3, "x") + "\n";
  write("day_0", text);
  write("day_1", with(0, 5, "-2") + "\n" + with(1, 30, "") + "\n");
  int calls = 0;
  const CriteoCheck r = check_criteo(folder(), [&calls](int done, int files) {
    EXPECT_EQ(done, ++calls);
    EXPECT_EQ(files, 2);
  });
  EXPECT_EQ(r.files, 2);
  EXPECT_EQ(r.rows, 20);
  EXPECT_EQ(r.bad_rows, 8);
  EXPECT_EQ(r.clicks, 6);
  EXPECT_EQ(r.missing, 1);
  EXPECT_EQ(r.negative, 1);
  ASSERT_EQ(r.problems.size(), 6U);
  EXPECT_THAT(r.problems[4], HasSubstr("day_0:15: column 3 (I2) is 'x'"));
  EXPECT_THAT(r.problems[5], HasSubstr("day_0: and 3 more bad rows"));
}

TEST_F(Criteo, CheckNeedsNoProgress) {
  write("day_0", lines(0, 10));
  EXPECT_EQ(check_criteo(folder(), nullptr).rows, 10);
}

TEST_F(Criteo, RefusesASetWithoutFiles) {
  CriteoOptions options;
  const auto refused = ThrowsMessage<Error>(HasSubstr("no files are given; open a file or folder"));
  EXPECT_THAT([&] { criteo_source(options); }, refused);
  options.set = std::make_shared<CriteoSet>();
  EXPECT_THAT([&] { criteo_source(options); }, refused);
}

TEST_F(Criteo, SkipsLinksToNowhere) {
  write("day_0", lines(0, 10));
  for (const char* name : {"day_1", "gone", "a.tsv", "z.txt"})
    std::filesystem::create_symlink("/no/such/file", std::filesystem::path(folder()) / name);
  EXPECT_EQ(open_criteo(folder()).rows(), 10);
}

// Root may read every folder, so the test changes to another user.
TEST_F(Criteo, FoldersThatMustNotBeReadAreIoErrors) {
  write("day_0", lines(0, 10));
  const std::filesystem::path below = std::filesystem::path(folder()) / "below";
  std::filesystem::create_directories(below / "inner");
  std::filesystem::permissions(folder(), std::filesystem::perms(0755));
  std::filesystem::permissions(below, std::filesystem::perms::none);
  const bool root = ::geteuid() == 0;
  ASSERT_EQ(::seteuid(root ? 65534 : ::geteuid()), 0);
  for (const std::string& path : {below.string(), (below / "inner").string()}) {
    EXPECT_THAT([&] { list_criteo_files(path); },
                ThrowsMessage<Error>(HasSubstr(path + ": cannot be read: Permission denied")));
  }
  ASSERT_EQ(::seteuid(root ? 0 : ::geteuid()), 0);
  std::filesystem::permissions(below, std::filesystem::perms::owner_all);
}

}  // namespace
}  // namespace hetu
