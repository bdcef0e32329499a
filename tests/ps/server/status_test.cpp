// Tests the status of a store: it is encoded and decoded, it is true at random moments, and clients
// that don't take part may request it.
#include "ps/server/status.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "base/error.h"
#include "ps/client/ask_status.h"
#include "ps/server/store.h"

namespace hetu::ps::server {
namespace {

constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();

ServerStatus full() {
  ServerStatus s{.server = 2, .servers = 3, .received_bytes = kFar, .sent_bytes = 5, .dropped = 6};
  s.count = {1, 2, 3, 0};
  s.clients = {{7, Presence::Connected, 8, 9, ""}, {1, Presence::Dead, kFar, 0, "is silent"}};
  s.tables_in_all = 70000;
  s.tables = {{"a \"b\"\n",
               "adds",
               kMostElements,
               0,
               4,
               5,
               6,
               {{-1, Presence::NotCome, 0}, {3, Presence::Left, kFar}},
               {{1, -kFar, 1}, {0, kFar, 2}}},
              {"", "", 1, kMostWidth, 0, 0, 0, {}, {}}};
  return s;
}

TEST(Status, ComesBackAsItWas) {
  for (const ServerStatus& status : {full(), ServerStatus{}}) {
    const Bytes bytes = encode_status(status);
    EXPECT_EQ(decode_status(bytes.data(), bytes.size()), status);
  }
}

TEST(Status, OfAnotherLengthOrWithABrokenByteIsRefusedOrHarmless) {
  const Bytes whole = encode_status(full());
  for (std::size_t n = 0; n < whole.size(); ++n) {
    EXPECT_THROW(decode_status(whole.data(), n), Error) << n;
  }
  Bytes longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_THROW(decode_status(longer.data(), longer.size()), Error);
  const unsigned seed = std::random_device()();
  std::mt19937 draw(seed);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    Bytes broken = whole;
    for (int k = 0; k < 3; ++k) broken[draw() % broken.size()] = static_cast<std::byte>(draw());
    try {
      const ServerStatus read = decode_status(broken.data(), broken.size());
      EXPECT_EQ(encode_status(read), broken) << "seed " << seed;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::Comm) << "seed " << seed;
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000) << "seed " << seed;
}

/// No memory is allocated for a list that claims to be longer than its message.
TEST(Status, ALengthBeyondTheMessageIsRefused) {
  Bytes bytes = encode_status(ServerStatus{});
  const std::size_t tables = bytes.size() - 4;
  for (std::size_t i = 0; i < 2; ++i) bytes[tables + i] = std::byte{0xFF};
  try {
    decode_status(bytes.data(), bytes.size());
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("length of a list is 65535, not 0 to 0"),
              std::string::npos)
        << error.what();
  }
}

/// A store and the messages that are sent to it.
struct Said {
  Store store;
  std::int64_t now_us = 1'000'000;

  explicit Said(StoreOptions options = {}) : store(std::move(options)) {}

  void say(Store::Peer from, const FromClient& message, std::int64_t serial, int values = 0) {
    const std::vector<float> zeros(static_cast<std::size_t>(values));
    store.receive(from, encode(1, message, serial),
                  {reinterpret_cast<const std::byte*>(zeros.data()), zeros.size() * sizeof(float)},
                  now_us);
  }
  /// Requests the status. Drops all messages that were sent since the last call.
  std::optional<ServerStatus> ask(std::int64_t first = 0) {
    store.take();
    store.receive(99, encode(1, FromClient(Status{first})), {}, now_us);
    const std::vector<Store::Outgoing> told = store.take();
    if (told.size() != 1) return std::nullopt;
    EXPECT_EQ(told[0].to, 99U);
    const auto header = decode_from_server(told[0].header.data(), told[0].header.size());
    EXPECT_EQ(header.message, FromServer(StatusIs{first}));
    return decode_status(told[0].payload.data, told[0].payload.bytes);
  }
};

TEST(StoreStatus, WhoAsksTakesNoPart) {
  Said said;
  EXPECT_EQ(said.ask()->tables_in_all, 0);
  EXPECT_FALSE(said.store.finished());
  EXPECT_EQ(said.store.wakes_at_us(), std::nullopt);
  said.say(1, Hello{11, 0, 0, 1, false}, 0);
  ASSERT_TRUE(said.ask());
  EXPECT_FALSE(said.store.finished());
  said.say(1, Leave{0}, 1);
  ASSERT_TRUE(said.ask());
  EXPECT_TRUE(said.store.finished());
  EXPECT_EQ(said.store.dropped_frames(), 0);
}

TEST(StoreStatus, SaysWhatHappenedInRandomRuns) {
  const unsigned seed = std::random_device()();
  std::mt19937 draw(seed);
  for (int run = 0; run < 30; ++run) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " run " << run);
    Said said;
    const int members = 1 + static_cast<int>(draw() % 4);
    std::vector<std::int64_t> clocks(static_cast<std::size_t>(members)), serials = clocks;
    std::vector<std::int64_t> asked(static_cast<std::size_t>(members));  // 0: no pull is open
    std::vector<bool> left(static_cast<std::size_t>(members));
    const auto slowest = [&] {
      std::int64_t least = kFar;
      for (std::size_t m = 0; m < clocks.size(); ++m) {
        if (!left[m]) least = std::min(least, clocks[m]);
      }
      return least;
    };
    for (int m = 0; m < members; ++m) {
      const auto peer = static_cast<Store::Peer>(m) + 1;
      said.say(peer, Hello{static_cast<std::uint64_t>(m) + 1, m + 10, 0, 1, false}, 0);
      said.say(peer, Join{0, "t", 6, members, m}, ++serials[static_cast<std::size_t>(m)]);
      said.say(peer, Init{0, 0}, ++serials[static_cast<std::size_t>(m)], 6);
    }
    std::int64_t pushes = 0;
    std::int64_t pulls = 0;
    for (int step = 0; step < 60; ++step) {
      const auto m = static_cast<std::size_t>(draw()) % clocks.size();
      const auto peer = static_cast<Store::Peer>(m) + 1;
      if (left[m]) continue;
      const unsigned what = draw() % 12;
      if (what == 0) {
        said.say(peer, Leave{clocks[m]}, ++serials[m]);
        left[m] = true;
        asked[m] = 0;
      } else if (what < 7) {
        said.say(peer, Push{0, 0, ++clocks[m]}, ++serials[m], 6);
        ++pushes;
      } else if (asked[m] == 0) {
        asked[m] = clocks[m] + static_cast<std::int64_t>(draw() % 3);
        if (asked[m] > 0) said.say(peer, Pull{0, 0, ++pulls, asked[m], 0}, ++serials[m]);
      }
      for (std::int64_t& least : asked) {
        if (least <= slowest()) least = 0;
      }
      const std::optional<ServerStatus> found = said.ask();
      ASSERT_TRUE(found);
      const auto gone = static_cast<std::int64_t>(std::count(left.begin(), left.end(), true));
      EXPECT_EQ(found->count, (std::array<std::int64_t, kPresences>{members - gone, gone, 0, 0}));
      if (gone == members) {
        EXPECT_EQ(found->tables_in_all, 0);
        break;
      }
      ASSERT_EQ(found->tables.size(), 1U);
      const TableStatus& table = found->tables[0];
      EXPECT_EQ(std::tie(table.name, table.elements, table.bytes, table.pushes),
                std::make_tuple("t", 6, 24, pushes));
      std::vector<int> waits;
      for (std::size_t i = 0; i < clocks.size(); ++i) {
        EXPECT_EQ(table.members[i].clock, clocks[i]);
        EXPECT_EQ(table.members[i].worker, static_cast<int>(i) + 10);
        EXPECT_EQ(table.members[i].presence, left[i] ? Presence::Left : Presence::Connected);
        if (asked[i] != 0) waits.push_back(static_cast<int>(i));
      }
      ASSERT_EQ(table.waiting.size(), waits.size());
      for (std::size_t w = 0; w < waits.size(); ++w) {
        EXPECT_EQ(table.waiting[w].member, waits[w]);
        EXPECT_EQ(table.waiting[w].least, asked[static_cast<std::size_t>(waits[w])]);
        std::vector<int> slow;
        for (std::size_t i = 0; i < clocks.size(); ++i) {
          if (!left[i] && clocks[i] < table.waiting[w].least) slow.push_back(static_cast<int>(i));
        }
        EXPECT_EQ(waited_for(table, table.waiting[w]), slow);
      }
    }
  }
}

TEST(StoreStatus, ComesInPagesAndAtMostAHundredTimesASecond) {
  Said said;
  constexpr int kTables = 500;
  said.say(1, Hello{11, 0, 0, 1, false}, 0);
  for (int t = 0; t < kTables; ++t) said.say(1, Join{t, "t" + std::to_string(t), 6, 9, 0}, t + 1);
  std::vector<std::string> names;
  int pages = 0;
  while (names.size() < kTables) {
    const std::optional<ServerStatus> page = said.ask(static_cast<std::int64_t>(names.size()));
    ASSERT_TRUE(page && !page->tables.empty());
    EXPECT_EQ(page->tables_in_all, kTables);
    for (const TableStatus& table : page->tables) names.push_back(table.name);
    ++pages;
  }
  EXPECT_GT(pages, 1);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  for (int i = pages; i < 100; ++i) EXPECT_TRUE(said.ask(kFar));
  EXPECT_FALSE(said.ask(kFar));
  EXPECT_EQ(said.store.dropped_frames(), 1);
  said.now_us += 1'000'000;
  EXPECT_TRUE(said.ask(kFar));
}

TEST(StoreStatus, TablesOfSeveralServersArePutTogether) {
  TableStatus table{.name = "t",
                    .elements = 9,
                    .bytes = 20,
                    .updates = 4,
                    .members = {{0, Presence::Connected, 7},
                                {1, Presence::Connected, 3},
                                {2, Presence::Left, 0},
                                {-1, Presence::NotCome, 0}}};
  AskedStatus one{"a", "", {.tables_in_all = 1, .tables = {table}}};
  table.bytes = 16;
  table.updates = 3;
  table.members[0].clock = 5;
  table.members[1].clock = 4;
  table.members[3] = {3, Presence::Connected, 6};
  table.waiting = {{0, 4, 2}};
  const AskedStatus two{
      "b", "", {.server = 1, .servers = 2, .tables_in_all = 1, .tables = {table}}};
  const std::vector<WholeTable> whole = whole_tables({one, two, {"c", "does not answer", {}}});
  ASSERT_EQ(whole.size(), 1U);
  EXPECT_EQ(whole[0].about.bytes, 36);
  EXPECT_EQ(whole[0].about.updates, 3);
  EXPECT_EQ(whole[0].about.members[0].clock, 5);
  EXPECT_EQ(whole[0].about.members[1].clock, 3);
  // This member has not reached the first server yet, which is therefore the slower one.
  EXPECT_EQ(whole[0].about.members[3].presence, Presence::Connected);
  EXPECT_EQ(whole[0].about.members[3].clock, 0);
  EXPECT_EQ(whole[0].lag, 5);
  EXPECT_EQ(whole[0].waits_for, (std::vector<std::vector<int>>{{1, 3}}));
}

}  // namespace
}  // namespace hetu::ps::server
