// The log of a parameter server: a store made from it is the store that wrote it, wherever a kill
// cut it off; what is damaged or someone else's is told, and never taken.
#include "ps/server/log.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include <fstream>
#include <random>

#include "graph/base/error.h"
#include "graph/base/log.h"
#include "tests/ps/server/random_workers.h"
#include "tests/temporary_folder.h"

namespace hetu::ps::server {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

LogOptions options_of(const TemporaryFolder& folder) {
  return {.folder = folder.path(), .job = "j1"};
}

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write_all(const std::string& path, const std::string& bytes) {
  fs::remove(path);  // the system writes a file that was cut to nothing at once
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A small log and what there was to know after each of its records.
struct Recorded {
  std::string bytes;
  std::vector<std::pair<std::size_t, Bytes>> states;  ///< from so many bytes on
};

Recorded record(unsigned seed, int steps) {
  const TemporaryFolder folder;
  Workers workers(seed, 3, 2);
  LoggedStore logged(workers.options(), options_of(folder));
  const std::string path = folder.path() + "/server-0.log.0";
  Recorded recorded;
  for (int i = 0; i < steps; ++i) {
    recorded.states.emplace_back(fs::file_size(path), state_of(logged.store()));
    workers.step(logged.store());
    logged.settle(0);
    recorded.states.emplace_back(fs::file_size(path), state_of(logged.store()));
  }
  recorded.states.emplace_back(fs::file_size(path), state_of(logged.store()));
  recorded.bytes = read_all(path);
  return recorded;
}

/// A store from the log of a folder.
Bytes recovered_from(const TemporaryFolder& folder) {
  LoggedStore logged({.dead_after_s = 0}, options_of(folder));
  return state_of(logged.store());
}

TEST(Log, CutAnywhereItHoldsWhatStoodBefore) {
  set_log_level(Level::Error);
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  const Recorded whole = record(seed, 30);
  const Bytes empty = whole.states.front().second;
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/server-0.log.0";
  for (std::size_t bytes = 0; bytes <= whole.bytes.size(); ++bytes) {
    SCOPED_TRACE(bytes);
    write_all(path, whole.bytes.substr(0, bytes));
    const Bytes* expected = &empty;
    for (const auto& [from, state] : whole.states) {
      if (from <= bytes) expected = &state;
    }
    {
      LoggedStore logged({.dead_after_s = 0}, options_of(folder));
      ASSERT_EQ(state_of(logged.store()), *expected);
      logged.store().worker_died(4711, "was killed");
      logged.settle(0);
      const Bytes later = state_of(logged.store());
      ASSERT_NE(later, *expected);
      ASSERT_EQ(recovered_from(folder), later);  // it goes on behind the cut
    }
  }
  for (const auto& [bytes, state] : whole.states) {  // as a loss of power may leave it
    write_all(path, whole.bytes.substr(0, bytes) + std::string(100, '\0'));
    ASSERT_EQ(recovered_from(folder), state);
  }
  set_log_level(Level::Info);
}

TEST(Log, ADamagedByteIsToldWithItsPlace) {
  set_log_level(Level::Error);
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  const Recorded whole = record(seed, 30);
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/server-0.log.0";
  for (std::size_t at = 0; at < whole.bytes.size(); ++at) {
    std::string bytes = whole.bytes;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << draw() % 8));
    write_all(path, bytes);
    try {
      recovered_from(folder);
      FAIL() << "byte " << at << " of " << bytes.size() << " is damaged, and nobody sees it";
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Code::Io);
      const std::string start = path + ", byte ";
      ASSERT_EQ(std::string(error.what()).rfind(start, 0), 0U) << error.what();
      // The record that is named begins at or before it; the one after that, behind it.
      const auto named = static_cast<std::size_t>(std::stoul(error.what() + start.size()));
      ASSERT_LE(named, at);
      const bool has_between =
          std::any_of(whole.states.begin(), whole.states.end(),
                      [&](const auto& state) { return state.first > named && state.first <= at; });
      ASSERT_FALSE(has_between) << error.what() << " but " << at << " is damaged";
    }
  }
  set_log_level(Level::Info);
}

/// What two stores say is the same, but for the places of messages on a line that began anew.
void expect_same(const std::vector<Store::Outgoing>& one,
                 const std::vector<Store::Outgoing>& other) {
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    const auto said = [](const Store::Outgoing& out) {
      return decode_from_server(out.header.data(), out.header.size()).message;
    };
    ASSERT_EQ(one[i].to, other[i].to);
    ASSERT_EQ(said(one[i]), said(other[i]));
    ASSERT_EQ(one[i].payload.bytes, other[i].payload.bytes);
    if (one[i].payload.bytes == 0) continue;
    ASSERT_EQ(std::memcmp(one[i].payload.data, other[i].payload.data, one[i].payload.bytes), 0);
  }
}

/// A store that is made again and again from its log, and one that lives on, hear and say the same.
class Twins {
 public:
  Twins(unsigned seed, std::mt19937& draw, std::int64_t elements, const LogOptions& options)
      : draw_(draw), elements_(elements), options_(options), workers_(seed, elements) {
    logged_ = std::make_unique<LoggedStore>(workers_.options(), options);
  }

  void run(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      SCOPED_TRACE(i);
      for (unsigned n = draw_() % 4; n > 0; --n) workers_.step(logged_->store(), &twin_);
      expect_same(logged_->settle(draw_() % 2 == 0 ? 1 : 10 * elements_), twin_.take());
      if (testing::Test::HasFatalFailure()) return;
      if (draw_() % 20 == 0) restart();
      if (testing::Test::HasFatalFailure()) return;
    }
    logged_->settle(1);  // a snapshot that a restart has cut off is due again
    while (logged_->log().is_saving()) logged_->settle(1);
  }
  int restarts() const { return restarts_; }

 private:
  void restart() {
    ++restarts_;
    logged_.reset();  // in the middle of a snapshot, as it may be
    logged_ = std::make_unique<LoggedStore>(workers_.options(), options_, draw_() % 10'000);
    ASSERT_EQ(state_of(logged_->store()), state_of(twin_));
    workers_.come_again(logged_->store(), &twin_);
  }

  std::mt19937& draw_;
  const std::int64_t elements_;
  const LogOptions options_;
  Workers workers_;
  Store twin_{{.dead_after_s = 0}};
  std::unique_ptr<LoggedStore> logged_;
  int restarts_ = 0;
};

TEST(Log, ReplayedItIsTheStoreThatWroteItAndGoesOnLikeIt) {
  set_log_level(Level::Error);
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  int restarts = 0, snapshots = 0;
  for (int run = 0; run < 16; ++run) {
    SCOPED_TRACE(run);
    const TemporaryFolder folder;
    LogOptions options = options_of(folder);
    options.snapshot_after = 1 + draw() % 3;
    options.sync = run == 0;
    const std::int64_t elements = run % 4 == 0 ? 5'000 : 1 + draw() % 50;
    options.least_bytes = draw() % 2 == 0 ? 100 * elements : 1;
    Twins twins(seed + static_cast<unsigned>(run), draw, elements, options);
    ASSERT_NO_FATAL_FAILURE(twins.run(options.sync ? 40 : run % 4 == 0 ? 250 : 500));
    restarts += twins.restarts();
    const bool has_all = fs::exists(folder.path() + "/server-0.log.0");
    snapshots += has_all ? 0 : 1;
    int files = 0, spares = 0;
    for (const auto& file : fs::directory_iterator(folder.path()))
      ++(file.path().filename().string().find("spare-") == std::string::npos ? files : spares);
    ASSERT_EQ(files, has_all ? 1 : 2);
    ASSERT_EQ(spares > 0, !has_all && !options.sync);
    ASSERT_LE(spares, 2);
  }
  EXPECT_GT(restarts, 150);
  EXPECT_GT(snapshots, 8);
  set_log_level(Level::Info);
}

TEST(Log, WhileItIsReadWhoComesHearsThatSomebodyLives) {
  const auto answer = [](const FromClient& message) {
    const Bytes bytes = encode(7, message);
    return while_it_recovers(bytes.data(), bytes.size());
  };
  const auto hello = answer(Hello{1, 2, 0, 1, true});
  ASSERT_TRUE(hello.has_value());
  const Framed<FromServer> heard = decode_from_server(hello->data(), hello->size());
  EXPECT_EQ(heard.attempt, 7U);
  EXPECT_EQ(heard.message, FromServer(BeatBack{}));
  EXPECT_FALSE(answer(Push{0, 0, 1}).has_value());
  EXPECT_FALSE(answer(Leave{0}).has_value());
  EXPECT_FALSE(while_it_recovers(hello->data(), 3).has_value());
}

TEST(Log, WhatIsNotItsOwnIsTold) {
  set_log_level(Level::Error);
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/server-0.log.0";
  {
    Workers workers(1, 3, 2);
    LoggedStore logged(workers.options(), options_of(folder));
    for (int i = 0; i < 50; ++i) workers.step(logged.store());
    logged.settle(0);
  }
  const std::string bytes = read_all(path);
  const auto told = [&](LogOptions options, const std::string& in, const std::string& what) {
    EXPECT_THAT([&] { LoggedStore({.dead_after_s = 0}, options); },
                ThrowsMessage<Error>(AllOf(HasSubstr(in), HasSubstr(what))));
  };
  LogOptions other = options_of(folder);
  other.job = "j2";
  told(other, path, "the log of job j1, and not of j2");
  other = options_of(folder);
  other.servers = 2;
  told(other, path, "server 0 of 1, and not part 0 of that of 0 of 2");
  other = options_of(folder);
  other.server = 1;
  other.servers = 2;
  fs::copy(path, folder.path() + "/server-1.log.0");
  told(other, "/server-1.log.0", "server 0 of 1");
  fs::rename(path, folder.path() + "/server-0.log.3");
  told(options_of(folder), path, "is missing");
  write_all(path, "something of somebody");
  fs::remove(folder.path() + "/server-0.log.3");
  told(options_of(folder), path, "damaged");
  other.folder = folder.path() + "/none";
  told(other, other.folder, "No such file or directory");
  write_all(path, bytes);
  fs::rename(path, folder.path() + "/server-0.snapshot.0");
  write_all(path, bytes);
  told(options_of(folder), "/server-0.snapshot.0", "byte");
}

using Records = std::vector<Bytes>;

/// What a reader that knows that the file was written over an old one finds in it.
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

/// An old file of records that is written over, and what a kill at any moment leaves of it.
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

  /// Adds records of such sizes at once.
  void write(const std::vector<std::size_t>& sizes) {
    const std::string before = read_all(path_);
    const auto begin = static_cast<std::size_t>(bytes());
    Records now = kept_;
    for (const std::size_t size : sizes) now.push_back(add(*over_, size));
    over_->flush();
    const std::string after = read_all(path_);
    const std::size_t all = static_cast<std::size_t>(bytes()) - begin;  // then zeros of a head
    for (int i = 0; i < 12 && begin > 0; ++i) {  // the first one comes before the file has its name
      const std::size_t behind = i < 4 ? all * static_cast<std::size_t>(i) / 3 : draw_() % all;
      std::string bytes = before;
      bytes.replace(begin + kHead, behind, after, begin + kHead, behind);
      expect(bytes, kept_);
    }
    expect(after, now);
    if (const std::size_t page = 4096 - begin % 4096; begin > 0 && page < kHead) {
      std::string bytes = after;  // between two pages of the first head
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
    if (round % 4 == 0) {  // the next head lies in two pages
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

/// Files of this process may be no longer than so many bytes.
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
