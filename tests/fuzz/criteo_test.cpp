// Random and damaged click logs. Each line is read, or refused in one short line. The result
// depends on the line alone. Files of any bytes need bounded memory.
#include "datasets/criteo.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/error.h"

namespace hetu {
namespace {

constexpr const char* kFields[] = {"",     "0",        "1",        "-1", "7",
                                   "ab12", "ffffffff", "00000000", " 1", "1 ",
                                   "+1",   "0x1",      "1e5",      "é",  "9223372036854775807",
                                   "-0",   "nan",      "\r",       "\v", "9223372036854775808"};

class Lines {
 public:
  explicit Lines(std::uint64_t seed) : random_(seed) {}

  std::string next() {
    std::string line = below(2) ? "1" : "0";
    for (int k = 0; k < 13; ++k) line += "\t" + (below(9) ? number() : std::string());
    for (int c = 0; c < 26; ++c) line += "\t" + (below(9) ? fmt::format("{:x}", draw()) : "");
    if (below(3) == 0) return line;
    for (std::size_t hits = 1 + below(3); hits > 0; --hits) damage(line);
    return line;
  }

  std::size_t below(std::size_t n) { return random_() % n; }

 private:
  std::uint32_t draw() { return static_cast<std::uint32_t>(random_()); }
  std::string number() { return fmt::format("{}", static_cast<std::int64_t>(below(1000)) - 3); }

  void damage(std::string& line) {
    const std::size_t at = below(line.size() + 1);
    switch (below(6)) {
      case 0:
        if (at < line.size()) line[at] = static_cast<char>(below(256));
        break;
      case 1:
        line.erase(at, 1 + below(4));
        break;
      case 2:
        line.resize(at);
        break;
      case 3:
        line.insert(at, std::string(below(3) ? 1 : 5000, static_cast<char>(below(256))));
        break;
      default: {  // another field
        const std::size_t tab = line.find('\t', at), end = line.find('\t', tab + 1);
        if (tab == std::string::npos || end == std::string::npos) break;
        line.replace(tab + 1, end - tab - 1, kFields[below(std::size(kFields))]);
      }
    }
  }

  std::mt19937_64 random_;
};

bool is_short_line(const std::string& text) {
  return text.size() < 300 && text.find('\n') == std::string::npos &&
         text.find('\t') == std::string::npos;
}

void fuzz_lines(int count, std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Lines source(seed);
  int read = 0;
  for (int n = 0; n < count && !testing::Test::HasFailure(); ++n) {
    const std::string line = source.next();
    CriteoRow one, other;
    other.integers.fill(-77);
    other.categories.fill(77);
    other.click = true;
    other.missing = 7;
    const std::string trouble = parse_criteo_line(line, one);
    EXPECT_EQ(trouble, parse_criteo_line(line, other)) << line;
    EXPECT_TRUE(is_short_line(trouble)) << trouble;
    if (!trouble.empty()) continue;
    ++read;
    EXPECT_EQ(one.click, other.click) << line;
    EXPECT_EQ(one.integers, other.integers) << line;
    EXPECT_EQ(one.categories, other.categories) << line;
    EXPECT_EQ(one.missing, other.missing) << line;
  }
  EXPECT_GT(read, count / 4);
  EXPECT_LT(read, count * 3 / 4);
}

// Checks random files. check_criteo() finds as many rows as it counts. Reading a file for training
// works, or names the first bad line that the check found.
void fuzz_files(int count, std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Lines source(seed);
  const auto path =
      (std::filesystem::temp_directory_path() / fmt::format("hetu_fuzz_{}.tsv", ::getpid()))
          .string();
  int good = 0;
  for (int n = 0; n < count && !testing::Test::HasFailure(); ++n) {
    std::string text;
    for (std::size_t lines = 1 + source.below(8); lines > 0; --lines)
      text += source.next() + (lines > 1 || source.below(2) ? "\n" : "");
    std::ofstream(path, std::ios::binary) << text;
    if (text.empty()) {
      EXPECT_THAT([&] { open_criteo(path); },
                  testing::ThrowsMessage<Error>(testing::HasSubstr("has no rows")));
      continue;
    }
    CriteoOptions options;
    options.set = std::make_shared<CriteoSet>(open_criteo(path));
    options.hash_size = 1 + static_cast<std::int64_t>(source.below(100));
    options.train = false;
    const CriteoCheck check = check_criteo(path, [](int, int) {});
    EXPECT_EQ(check.rows, options.set->rows());
    const auto rows = criteo_source(options);
    Batch batch;
    resize_batch(batch, rows->fields(), rows->rows());
    try {
      rows->read(batch);
      ++good;
      EXPECT_EQ(check.bad_rows, 0);
      const std::int32_t* ids = batch.at("ids").as<std::int32_t>();
      for (std::int64_t i = 0; i < 26 * rows->rows(); ++i)
        EXPECT_EQ(ids[i] / options.hash_size, i % 26);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::Io);
      ASSERT_FALSE(check.problems.empty()) << e.what();
      EXPECT_EQ(check.problems[0], e.what());
    }
  }
  std::filesystem::remove(path);
  EXPECT_GT(good, count / 20);
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss / 1024, 1024) << "MB";
}

TEST(Criteo, AnyLineIsReadOrRefusedInOneLine) { fuzz_lines(20000, 31); }
TEST(Criteo, AnyFileIsReadOrItsFirstBadLineNamed) { fuzz_files(400, 32); }
TEST(Criteo, DISABLED_ManyLines) { fuzz_lines(3000000, 33); }
TEST(Criteo, DISABLED_ManyFiles) { fuzz_files(20000, 34); }

}  // namespace
}  // namespace hetu
