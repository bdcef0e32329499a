// Sends frames of a hostile client that holds the job's key. A server and a client take a million
// of them without a crash, within bounded memory. A server's log restores every change that it
// accepted.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/log.h"
#include "ps/client/client_state.h"
#include "ps/server/store.h"
#include "tests/ps/resident.h"
#include "tests/ps/server/logged_store.h"
#include "tests/ps/server/wild_frames.h"

namespace hetu::ps {
namespace {

using server::Damage;
using server::Store;
using server::StoreOptions;
using server::WildFrames;

constexpr std::int64_t kMemory = 8 << 20;  // memory limit of a store
// Frames per store. Tables that damaged messages open are never complete and stay in memory, so a
// new store starts after this number of frames.
constexpr int kFramesOfStore = 2'000;

/// Bound on the growth of memory after the first 10^4 frames: twice the limit of a store (it has a
/// twin), and the memory that the allocator keeps.
constexpr double kMostGrowth_MB = 2 * 8.4 + HETU_GROWTH_MB;

/// Checks the growth of memory against the bound.
void check_growth(int frames, double before_MB, double most_MB) {
  const double now_MB = own_resident_MB();
  if (frames > 100'000) {
    std::printf("resident memory after 10,000 frames %.1f MB, after %d %.1f MB\n", before_MB,
                frames, now_MB);
  }
  EXPECT_LT(now_MB, before_MB + most_MB);
}

/// A store, and a second store that receives its changes as the log would deliver them.
class Twins {
 public:
  Twins() : twin_({.dead_after_s = 0, .memory = kMemory}), store_(options()) {}
  Store& store() { return store_; }
  void compare() { EXPECT_EQ(server::state_of(store_), server::state_of(twin_)); }

 private:
  StoreOptions options() {
    return {.dead_after_s = 0,
            .memory = kMemory,
            .most_unread = 1 << 20,
            .on_change = [this](const server::Change& change) { twin_.replay(change); }};
  }
  Store twin_;
  Store store_;
};

struct Counts {
  std::int64_t dropped = 0;
  std::int64_t taken = 0;
};

void take_frames(int frames, Counts& counts) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  WildFrames source(seed, WildFrames::kMembers);
  Damage& damage = source.damage();
  std::unique_ptr<Twins> twins;
  std::int64_t now_us = 1;
  double before_MB = 0;
  for (int i = 0; i < frames && !testing::Test::HasFailure(); ++i) {
    if (i % kFramesOfStore == 0) {
      if (twins) counts.dropped += twins->store().dropped_frames();
      twins = std::make_unique<Twins>();
    }
    const WildFrames::Frame frame = source.next();
    Store& store = twins->store();
    now_us += static_cast<std::int64_t>(damage.below(1000));
    try {
      store.receive(frame.peer, frame.header, {frame.payload.data(), frame.payload.size()}, now_us);
      if (damage.below(3000) == 0) store.worker_died(static_cast<int>(damage.below(1000)), "fell");
      for (const std::uint64_t peer : source.take_abandoned()) store.peer_died(peer, "fell");
      store.go_on();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "frame " << i << ": " << error.what();
    }
    for (const Store::Outgoing& sent : store.take()) {
      ++counts.taken;
      const auto told = server::decode_from_server(sent.header.data(), sent.header.size());
      if (sent.to == frame.peer) source.hear(frame.sender, told.message);
    }
    if (i % 500 == 499) twins->compare();
    if (i == 10'000) before_MB = own_resident_MB();
  }
  counts.dropped += twins->store().dropped_frames();
  check_growth(frames, before_MB, kMostGrowth_MB);
}

void fuzz_store(int frames) {
  set_log_level(Level::Error);
  Counts counts;
  take_frames(frames, counts);
  EXPECT_GT(counts.dropped, frames / 5);
  EXPECT_GT(counts.taken, frames / 8);
  set_log_level(Level::Info);
}

TEST(Fuzz, AServerTakesNoHarmFromAClientThatMeansIt) { fuzz_store(20'000); }
TEST(Fuzz, DISABLED_NorFromAMillionFrames) { fuzz_store(1'000'000); }

/// Sends a message to a store on one of several connections. Returns the answers.
std::vector<server::FromServer> say(Store& store, std::uint64_t peer,
                                    const server::FromClient& message, const Bytes& values = {}) {
  store.receive(peer, server::encode(1, message), {values.data(), values.size()}, 0);
  std::vector<server::FromServer> all;
  for (const Store::Outgoing& sent : store.take()) {
    all.push_back(server::decode_from_server(sent.header.data(), sent.header.size()).message);
  }
  return all;
}

TEST(Fuzz, StatesMakeNoPartWithoutItsValues) {
  set_log_level(Level::Error);
  Store store({.dead_after_s = 0});
  const server::Join join = WildFrames::join_of(2, 0, 1);
  const Bytes values(4 * WildFrames::kElements);
  say(store, 1, server::Hello{1, 0, 0, 1, false});
  say(store, 1, join);
  EXPECT_EQ(say(store, 1, server::Init{2, 0, 1, 2}, values).size(), 1U);
  EXPECT_TRUE(say(store, 1, server::Init{2, 0, 2, 3}, values).empty());
  EXPECT_EQ(store.dropped_frames(), 1);
  EXPECT_EQ(say(store, 1, server::Init{2, 0, 0, 2}, values).size(), 1U);
  EXPECT_EQ(say(store, 1, server::Pull{2, 0, 1, 0, 0}),
            std::vector<server::FromServer>({server::Values{2, 0, 1, 0, 0}}));
  set_log_level(Level::Info);
}

TEST(Fuzz, AJoinThatHasWaitedIsTakenThoughThereIsNoRoomLeft) {
  Twins twins;
  Store& store = twins.store();
  const auto rows = [](int table, const char* name, int members, int member,
                       std::int64_t elements) {
    return server::Join{table, name, elements, members, member, {}, 1, {}};
  };
  for (const std::uint64_t who : {1, 2, 3}) {
    say(store, who, server::Hello{who, static_cast<int>(who), 0, 1, false});
  }
  say(store, 1, rows(0, "w", 2, 0, 100));
  say(store, 2, rows(0, "w", 2, 1, 100));
  say(store, 1, server::Leave{0});
  // The table has blocks of 16384 rows, and keeps 24 bytes per block: some 3 MB.
  EXPECT_TRUE(say(store, 3, rows(0, "w", 1, 0, std::int64_t{1} << 31)).empty());
  int opened = 1;
  while (std::holds_alternative<server::Joined>(
      say(store, 3, rows(opened, fmt::format("{}", opened).c_str(), 1, 0, 1 << 29)).at(0))) {
    ++opened;
  }
  EXPECT_GT(opened, 2);
  const auto told = say(store, 2, server::Leave{0});
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[1], server::FromServer(server::Joined{0, false}));
  twins.compare();
}

/// A client whose servers' answers are damaged in transit and mixed with other answers.
class Beset : public client::ClientState {
 public:
  Beset(int servers, Damage& damage, int& heard)
      : ClientState({.worker = 0, .timeout_s = 0},
                    std::vector<std::string>(static_cast<std::size_t>(servers), "a server")),
        damage_(damage),
        heard_(heard) {
    for (int s = 0; s < servers; ++s) {
      stores_.push_back(std::make_unique<Store>(
          StoreOptions{.server = s, .servers = servers, .dead_after_s = 0}));
    }
  }
  /// Damages one of `answers` answers from now on.
  void damage_one_of(std::size_t answers) { one_of_ = answers; }
  void exchange() {
    for (bool any = true; any && !has_ended();) {
      any = false;
      for (const Outgoing& sent : take()) {
        any = true;
        store(sent.server).receive(1, sent.header, sent.payload, 0);
      }
      for (int s = 0; s < static_cast<int>(stores_.size()); ++s) {
        for (Store::Outgoing& sent : store(s).take()) {
          any = true;
          hear(s, std::move(sent));
        }
      }
    }
  }
  void hear_nonsense() {
    Bytes header = some_header();
    if (damage_.below(2) == 0) damage_.hurt(header);
    Bytes payload(damage_.below(3) == 0 ? damage_.below(400) : 4 * WildFrames::kElements);
    ++heard_;
    receive(static_cast<int>(damage_.below(stores_.size())), header,
            {payload.data(), payload.size()});
  }

 protected:
  void ring() override { exchange(); }

 private:
  Store& store(int server) { return *stores_[static_cast<std::size_t>(server)]; }
  void hear(int server, Store::Outgoing sent) {
    ++heard_;
    if (one_of_ == 0 || damage_.below(one_of_) != 0) {
      return receive(server, sent.header, sent.payload);
    }
    if (damage_.below(2) == 0) damage_.hurt(sent.header);
    Bytes payload(sent.payload.data, sent.payload.data + sent.payload.bytes);
    if (damage_.below(2) == 0) damage_.hurt(payload);
    receive(server, sent.header, {payload.data(), payload.size()});
    if (damage_.below(4) == 0) receive(server, sent.header, {payload.data(), payload.size()});
  }
  Bytes some_header() {
    using namespace server;
    const auto few = [&] { return static_cast<int>(damage_.below(4)); };
    const FromServer all[] = {Welcome{},
                              Joined{few(), true},
                              NotJoined{few(), "no"},
                              Initialised{few(), few(), few()},
                              Pushed{few(), few(), few()},
                              Values{few(), few(), 1 + few(), few(), few()},
                              NoValues{few(), few(), 1 + few(), "dead"},
                              Waits{few(), few(), "worker 3"},
                              BeatBack{few() > 0, few()},
                              Left{},
                              PushedRows{few(), few()},
                              RowValues{few(), 1 + few(), few(), few(), few()},
                              StatusIs{few()},
                              Refusal{Code::Comm, "no"}};
    // A refusal ends the client, so it is rare.
    const std::size_t which = damage_.below(50) == 0 ? 13 : damage_.below(13);
    const auto attempt = static_cast<std::uint32_t>(1 + damage_.below(2));
    return encode(attempt, all[which], damage_.below(5) == 0 ? few() : 0);
  }

  Damage& damage_;
  int& heard_;
  std::size_t one_of_ = 0;
  std::vector<std::unique_ptr<Store>> stores_;
};

/// Does the work of a worker while its servers send invalid answers. Throws Error once the client
/// is dead.
void work(Beset& client, Damage& damage) {
  std::vector<float> values(WildFrames::kElements), rows(WildFrames::kRows * 4);
  std::vector<std::int64_t> versions(WildFrames::kRows, -1), ids(WildFrames::kRows);
  std::iota(ids.begin(), ids.end(), 0);
  const int dense = client.open({"w", WildFrames::kElements, 1}, 0, values.data());
  const int sparse = client.open_rows({"r", WildFrames::kRows, 4}, 0);
  client.damage_one_of(30);
  for (int step = 1; step <= 20; ++step) {
    if (damage.below(3) == 0) client.hear_nonsense();
    client.push(dense, std::vector<float>(values.size(), 1));
    client.push_rows(sparse, {ids, {}, rows});
    client.pull(dense, step, values.data(), 0);
    client.pull_rows(sparse, step,
                     {.ids = ids.data(),
                      .count = WildFrames::kRows,
                      .into = rows.data(),
                      .versions = versions.data()});
    for (int tries = 0; tries < 5 && !client.is_idle(); ++tries) {
      client.hear_nonsense();
      client.beat();
      client.exchange();
    }
    if (!client.is_idle()) return;
    client.wait(dense, {});
    client.wait(sparse, {});
  }
}

void fuzz_client(int frames) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Damage damage(seed);
  int heard = 0;
  int died = 0;
  int lived = 0;
  double before_MB = 0;
  while (heard < frames) {
    Beset client(1 + static_cast<int>(damage.below(2)), damage, heard);
    try {
      work(client, damage);
      ++lived;
    } catch (const Error& error) {
      EXPECT_LT(std::string(error.what()).size(), 5000U);
      ++died;
    }
    if (before_MB == 0 && heard > 10'000) before_MB = own_resident_MB();
  }
  EXPECT_GT(died, 0);
  EXPECT_GT(lived, 0);
  check_growth(frames, before_MB, HETU_GROWTH_MB);
}

TEST(Fuzz, AClientTakesNoHarmFromAServerThatMeansIt) { fuzz_client(20'000); }
TEST(Fuzz, DISABLED_NorFromAMillionAnswers) { fuzz_client(1'000'000); }

}  // namespace
}  // namespace hetu::ps
