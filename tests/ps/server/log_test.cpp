// Tests the log of a parameter server. A store that is recovered from it equals the store that
// wrote it, wherever a kill truncated it. Damage and other servers' files are reported and never
// accepted.
#include "ps/server/log.h"

#include <gmock/gmock.h>

#include <random>

#include "base/error.h"
#include "base/log.h"
#include "tests/ps/server/log_files.h"
#include "tests/ps/server/random_workers.h"
#include "tests/temporary_folder.h"

namespace hetu::ps::server {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// A small log, and the state after each of its records.
struct Recorded {
  std::string bytes;
  std::vector<std::pair<std::size_t, Bytes>> states;  ///< by log length in bytes
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
      ASSERT_EQ(recovered_from(folder), later);  // it continues after the cut
    }
  }
  for (const auto& [bytes, state] : whole.states) {  // a loss of power may leave zeros
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
      // The reported record begins at or before the damaged byte, and the next record begins after
      // it.
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

/// Checks that two stores send the same messages, except for message numbers on a connection that
/// was reset.
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

/// A store that is restarted from its log again and again, and one that keeps running. Both receive
/// and send the same messages.
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
    logged_->settle(1);  // A snapshot that a restart interrupted is due again.
    while (logged_->log().is_saving()) logged_->settle(1);
  }
  int restarts() const { return restarts_; }

 private:
  void restart() {
    ++restarts_;
    logged_.reset();  // possibly in the middle of a snapshot
    logged_ = std::make_unique<LoggedStore>(workers_.options(), options_, 1 + draw_() % 10'000);
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
  told(other, path, "the log of job j1, not of job j2");
  other = options_of(folder);
  other.servers = 2;
  told(other, path, "server 0 of 1, not part 0 of the log of server 0 of 2");
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

}  // namespace
}  // namespace hetu::ps::server
