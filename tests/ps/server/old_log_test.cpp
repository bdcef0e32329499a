// Tests logs that overwrite old files, and full disks. After a kill or an error, the log holds the
// records that were there before.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include <memory>
#include <random>

#include "base/error.h"
#include "base/log.h"
#include "tests/ps/server/log_files.h"
#include "tests/ps/server/random_workers.h"
#include "tests/temporary_folder.h"

namespace hetu::ps::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

using Records = std::vector<Bytes>;

/// Returns the records that a reader finds if it knows that the file overwrites an old one.
Records read_over(const std::string& path) {
  RecordReader reader(path);
  reader.ends_at_zeros();
  Records found;
  while (true) {
    Bytes record;
    if (reader.next(record) != RecordReader::Found::Record) return found;
    found.push_back(record);
  }
}

/// An old file of records that is overwritten. A kill at any moment must leave the earlier records.
class OldFile {
 public:
  OldFile(const TemporaryFolder& folder, unsigned seed)
      : draw_(seed), path_(folder.path() + "/old"), cut_off_(folder.path() + "/cut-off") {
    RecordWriter old(path_, 0);
    for (int i = 0; i < 100; ++i) add(old, draw_() % 9000);
    old.flush();
    over_ = std::make_unique<RecordWriter>(path_, RecordWriter::Over{});
  }
  std::int64_t bytes() const { return over_->bytes(); }
  const std::string& path() const { return path_; }
  const Records& kept() const { return kept_; }

  /// Adds records of the given sizes in one flush.
  void write(const std::vector<std::size_t>& sizes) {
    const std::string before = read_all(path_);
    const auto begin = static_cast<std::size_t>(bytes());
    Records now = kept_;
    for (const std::size_t size : sizes) now.push_back(add(*over_, size));
    over_->flush();
    const std::string after = read_all(path_);
    // the zeros of the next head follow
    const std::size_t all = static_cast<std::size_t>(bytes()) - begin;
    // The first write happens before the file gets its name.
    for (int i = 0; i < 12 && begin > 0; ++i) {
      const std::size_t behind = i < 4 ? all * static_cast<std::size_t>(i) / 3 : draw_() % all;
      std::string bytes = before;
      bytes.replace(begin + kHead, behind, after, begin + kHead, behind);
      expect(bytes, kept_);
    }
    expect(after, now);
    if (const std::size_t page = 4096 - begin % 4096; begin > 0 && page < kHead) {
      std::string bytes = after;  // The kill lies between two pages of the first head.
      bytes.replace(begin + page, kHead - page, kHead - page, '\0');
      expect(bytes, kept_);
      ++between_pages_;
    }
    kept_ = now;
  }
  int between_pages() const { return between_pages_; }

  static constexpr std::size_t kHead = 12;

 private:
  Bytes add(RecordWriter& to, std::size_t bytes) {
    Bytes record(bytes);
    for (std::byte& byte : record) byte = std::byte(draw_());
    to.add({{record.data(), bytes / 2}, {record.data() + bytes / 2, bytes - bytes / 2}});
    return record;
  }
  void expect(const std::string& bytes, const Records& records) {
    write_all(cut_off_, bytes);
    ASSERT_EQ(read_over(cut_off_), records);
  }

  std::mt19937 draw_;
  const std::string path_, cut_off_;
  std::unique_ptr<RecordWriter> over_;
  Records kept_;
  int between_pages_ = 0;
};

TEST(Log, WrittenOverAnOldOneItEndsWhereAKillHasCutItOff) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  const TemporaryFolder folder;
  OldFile file(folder, seed);
  for (int round = 0; round < 15; ++round) {
    std::vector<std::size_t> sizes(1 + draw() % 3);
    for (std::size_t& size : sizes) size = draw() % 3000;
    if (round % 4 == 0) {  // the next head spans two pages
      const std::size_t at = (static_cast<std::size_t>(file.bytes()) + OldFile::kHead) % 4096;
      sizes = {(2 * 4096 - 1 - draw() % 11 - at) % 4096};
    }
    if (round == 7) sizes.push_back(100'000);
    ASSERT_NO_FATAL_FAILURE(file.write(sizes));
  }
  EXPECT_GE(file.between_pages(), 3);
  const auto unaware = [&] {
    RecordReader reader(file.path());
    Bytes record;
    while (reader.next(record) == RecordReader::Found::Record) {
    }
  };
  EXPECT_THAT(unaware, ThrowsMessage<Error>(HasSubstr("no record begins here")));
}

/// Limits the length of this process's files to `bytes`.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

TEST(Log, WrittenOverAnOldOneHalfARecordIsNone) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  for (unsigned i = 0; i < 20; ++i) {
    const TemporaryFolder folder;
    OldFile file(folder, seed + i);
    file.write({100, 2000});
    {
      const FullDisk full(static_cast<rlim_t>(file.bytes()) + OldFile::kHead + 1 + draw() % 2900);
      EXPECT_THROW(file.write({3000}), Error);
    }
    EXPECT_EQ(read_over(file.path()), file.kept());
  }
}

TEST(Log, AFullDiskAnswersNobodyAndLosesNothing) {
  set_log_level(Level::Error);
  for (const std::int64_t elements : {3, 20'000}) {
    const TemporaryFolder folder;
    Workers workers(7, elements, 2);
    Bytes kept;
    {
      LoggedStore logged(workers.options(), options_of(folder));
      const FullDisk full(elements < 100 ? 2000 : 300'000);
      EXPECT_THAT(
          [&] {
            while (true) {
              kept = state_of(logged.store());
              workers.step(logged.store());
              logged.settle(0);
            }
          },
          ThrowsMessage<Error>(AllOf(HasSubstr("/server-0.log.0"), HasSubstr("File too large"),
                                     HasSubstr("make room"))));
      EXPECT_THROW(logged.log().commit(), Error);
    }
    EXPECT_EQ(recovered_from(folder), kept);
  }
  set_log_level(Level::Info);
}

}  // namespace
}  // namespace hetu::ps::server
