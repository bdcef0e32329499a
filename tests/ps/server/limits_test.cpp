// Tests the memory that one client may occupy on a server. Other clients continue when it asks for
// more.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/log.h"
#include "ps/server/store.h"

namespace hetu::ps::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kMiB = 1 << 20;

/// A store, and the messages that each connection received. Connections read at once, unless they
/// are stalled.
class Hall {
 public:
  explicit Hall(StoreOptions options) : store_(std::move(options)) {}

  void say(Peer peer, const FromClient& message, const Bytes& payload = {}) {
    store_.receive(peer, encode(1, message), {payload.data(), payload.size()}, 0);
    read();
  }
  void come(Peer peer) { say(peer, Hello{peer, static_cast<int>(peer), 0, 1, false}); }
  void stall(Peer peer) { stalls_ = peer; }
  /// Lets the stalled connection read everything that it was sent.
  void wake() {
    stalls_ = 0;
    unread_.clear();
    while (store_.holds_back()) {
      store_.go_on();
      read();
    }
  }
  Store& store() { return store_; }
  /// Returns the unread bytes of the stalled connection.
  std::int64_t unread_bytes() const {
    std::int64_t all = 0;
    for (const Outgoing& out : unread_) {
      all += static_cast<std::int64_t>(out.header.size() + out.payload.bytes);
    }
    return all;
  }
  /// Returns all messages of a kind that a connection was ever sent.
  template <class Message>
  std::vector<Message> heard(Peer peer) {
    std::vector<Message> all;
    for (const FromServer& message : heard_[peer]) {
      if (const auto* one = std::get_if<Message>(&message)) all.push_back(*one);
    }
    return all;
  }
  std::string refusal(Peer peer) {
    const auto all = heard<Refusal>(peer);
    return all.empty() ? "" : all.back().text;
  }

 private:
  void read() {
    for (Outgoing& out : store_.take()) {
      heard_[out.to].push_back(decode_from_server(out.header.data(), out.header.size()).message);
      if (out.to == stalls_) unread_.push_back(std::move(out));
    }
  }

  Store store_;
  Peer stalls_ = 0;
  std::vector<Outgoing> unread_;
  std::map<Peer, std::vector<FromServer>> heard_;
};

Bytes zeros(std::int64_t elements) { return Bytes(static_cast<std::size_t>(elements) * 4); }

Bytes ids_of(std::int64_t first, std::int64_t count, std::size_t more = 0) {
  Bytes bytes(static_cast<std::size_t>(count) * 8 + more);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t id = first + i;
    std::memcpy(bytes.data() + i * 8, &id, 8);
  }
  return bytes;
}

/// A client that trains on a table of its own. Other clients must not affect it.
class Honest {
 public:
  explicit Honest(Hall& hall) : hall_(hall) {
    hall.come(1);
    hall.say(1, Join{0, "honest", kElements, 1, 0});
    hall.say(1, Init{0, 0}, zeros(kElements));
  }
  void step() {
    ++steps_;
    hall_.say(1, Push{0, 0, steps_}, zeros(kElements));
    hall_.say(1, Pull{0, 0, steps_, steps_, steps_});
    const auto values = hall_.heard<Values>(1);
    ASSERT_EQ(values.size(), static_cast<std::size_t>(steps_)) << hall_.refusal(1);
    EXPECT_EQ(values.back().pushes, steps_);
  }

 private:
  static constexpr std::int64_t kElements = 1000;
  Hall& hall_;
  std::int64_t steps_ = 0;
};

TEST(Limits, TablesWithoutEndAreRefusedAndNamed) {
  for (const int width : {0, 1}) {
    SCOPED_TRACE(width);
    Hall hall({.dead_after_s = 0, .memory = 32 * kMiB});
    Honest honest(hall);
    hall.come(2);
    int opened = 0;
    for (; opened < kMostTables && hall.heard<NotJoined>(2).empty(); ++opened) {
      hall.say(
          2,
          Join{opened, "t" + std::to_string(opened), 10'000'000, kMostMembers, 0, {}, width, {}});
      if (opened % 10 == 0) honest.step();
    }
    EXPECT_GT(opened, 2);
    const auto refused = hall.heard<NotJoined>(2);
    ASSERT_EQ(refused.size(), 1U);
    EXPECT_THAT(
        refused[0].text,
        AllOf(HasSubstr("parameter server 0"), HasSubstr("of at most 32.0 MiB (33554432 bytes)"),
              HasSubstr("worker 2"), HasSubstr("\"t" + std::to_string(opened - 1) + "\"")));
    honest.step();
    // The tables have other members that may still come, so they stay.
    hall.store().peer_died(2, "fell");
    honest.step();
  }
}

TEST(Limits, WhatEndsGivesItsRoomBack) {
  Hall hall({.dead_after_s = 0, .memory = 8 * kMiB});
  for (Peer peer = 2; peer < 30; ++peer) {
    hall.come(peer);
    hall.say(peer, Join{0, "dense", kMiB, 1, 0});
    hall.say(peer, Init{0, 0}, zeros(kMiB));
    hall.say(peer, Join{1, "rows", kMiB, 1, 0, {}, 64, {}});
    hall.say(peer, PullRows{1, 1}, ids_of(0, 4096));
    hall.say(peer, Join{2, "rounds", 1000, 2, 0, {Rule::RoundMean, {}}});
    hall.say(peer, Init{2, 0}, zeros(1000));
    hall.say(peer, Push{2, 0, 1}, zeros(1000));
    hall.say(peer + 100, Hello{peer + 100, 0, 0, 1, false});
    hall.say(peer + 100, Join{2, "rounds", 1000, 2, 1, {Rule::RoundMean, {}}});
    EXPECT_EQ(hall.refusal(peer), "");
    EXPECT_EQ(hall.heard<NotJoined>(peer).size(), 0U);
    EXPECT_EQ(hall.heard<Pushed>(peer).size(), 1U);
    hall.store().peer_died(peer, "fell");
    hall.store().peer_died(peer + 100, "fell");
  }
}

TEST(Limits, FirstValuesRowsAndRoundsAreRefusedAndNamed) {
  Hall hall({.dead_after_s = 0, .memory = 4 * kMiB});
  Honest honest(hall);
  hall.come(2);
  hall.say(2, Join{0, "dense", kMiB, 1, 0});
  hall.say(2, Init{0, 0}, zeros(kMiB));
  EXPECT_THAT(hall.refusal(2), AllOf(HasSubstr("worker 2 needs 4.0 MiB (4195328 bytes) more"),
                                     HasSubstr("\"dense\"")));
  honest.step();
  hall.come(3);
  hall.say(3, Join{0, "rows", 64 * kMiB, 1, 0, {}, 64, {}});
  for (std::int64_t first = 0; first < kMiB && hall.refusal(3).empty(); first += 1000) {
    hall.say(3, PullRows{0, 1 + first}, ids_of(first, 1000));
  }
  EXPECT_THAT(hall.refusal(3), AllOf(HasSubstr("worker 3 needs"), HasSubstr("\"rows\"")));
  EXPECT_GT(hall.heard<RowValues>(3).size(), 5U);
  honest.step();
  hall.say(3, PushRows{0, 1}, ids_of(900'000, 1000, 256'000));
  EXPECT_THAT(hall.refusal(3), HasSubstr("worker 3 needs"));
  EXPECT_TRUE(hall.heard<PushedRows>(3).empty());
  honest.step();
}

// Rows that lie far apart must take only the memory that they need. Otherwise a large table would
// fill memory with rows that nobody requests.
TEST(Limits, RowsThatLieFarApartTakeLittle) {
  constexpr std::int64_t kApart = 10'000'000, kAsked = 200;
  Hall hall({.dead_after_s = 0, .memory = 8 * kMiB});
  hall.come(2);
  hall.say(2, Join{0, "rows", kAsked * kApart * 16, 1, 0, {}, 16, {}});
  for (int i = 0; i < kAsked; ++i) hall.say(2, PullRows{0, 1, i}, ids_of(i * kApart, 1));
  EXPECT_EQ(hall.refusal(2), "");
  EXPECT_EQ(hall.heard<RowValues>(2).size(), static_cast<std::size_t>(kAsked));
}

TEST(Limits, AnUpdateWithoutEndIsRefusedAndNamed) {
  Hall hall({.dead_after_s = 0, .memory = 4 * kMiB});
  Honest honest(hall);
  hall.come(2);
  hall.say(2, Join{0, "rounds", 64'000, 2, 0, {Rule::RoundSum, {}}, 64, {}});
  std::int64_t piece = 0;
  while (hall.refusal(2).empty() && piece < 1000) {
    hall.say(2, PushRows{0, ++piece, 0, false, false}, ids_of(0, 100, 25600));
    if (piece % 10 == 0) honest.step();
  }
  EXPECT_THAT(hall.refusal(2), AllOf(HasSubstr("worker 2 needs"), HasSubstr("\"rounds\"")));
  EXPECT_EQ(hall.heard<PushedRows>(2).size(), static_cast<std::size_t>(piece - 1));
  honest.step();
}

TEST(Limits, WhoDoesNotReadIsDeadAndOthersAreServed) {
  set_log_level(Level::Error);
  Hall hall({.dead_after_s = 0, .most_unread = 16 * kMiB});
  Honest honest(hall);
  hall.come(2);
  hall.say(2, Join{0, "w", kMiB, 1, 0});
  hall.say(2, Init{0, 0}, zeros(kMiB));
  hall.stall(2);
  for (std::int64_t pull = 1; pull < 100; ++pull) {
    hall.say(2, Pull{0, 0, pull, 0, 0});
    hall.say(2, Push{0, 0, pull}, zeros(kMiB));
    honest.step();
  }
  EXPECT_GT(hall.unread_bytes(), 16 * kMiB);
  EXPECT_LT(hall.unread_bytes(), 21 * kMiB);  // the limit, and the table once
  const ServerStatus status = hall.store().status(0);
  ASSERT_EQ(status.count[static_cast<std::size_t>(Presence::Dead)], 1);
  EXPECT_THAT(status.clients.back().death, HasSubstr("does not read its answers: "));
  set_log_level(Level::Info);
}

TEST(Limits, SmallAnswersThatAreNotReadCount) {
  set_log_level(Level::Error);
  Hall hall({.dead_after_s = 0, .most_unread = kMiB});
  Honest honest(hall);
  hall.come(2);
  hall.stall(2);
  for (int i = 0; i < 100'000; ++i) hall.say(2, Beat{0});
  EXPECT_LT(hall.unread_bytes(), kMiB);
  EXPECT_EQ(hall.store().status(0).count[static_cast<std::size_t>(Presence::Dead)], 1);
  hall.stall(3);  // This connection has not even sent a hello.
  for (int i = 0; i < 100'000; ++i) hall.say(3, Hello{3, 3, 5, 6, false});
  EXPECT_LT(hall.unread_bytes(), 2 * kMiB);
  honest.step();
  set_log_level(Level::Info);
}

TEST(Limits, RowsWaitForTheirReader) {
  Hall hall({.dead_after_s = 0});
  Honest honest(hall);
  hall.come(2);
  constexpr int kWidth = 1024;
  const std::int64_t rows = most_rows(kWidth);
  hall.say(2, Join{0, "rows", rows * kWidth, 1, 0, {}, kWidth, {}});
  hall.stall(2);
  constexpr int kChunks = 100;
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    hall.say(2, PullRows{0, 1, chunk}, ids_of(0, rows));
    honest.step();
  }
  EXPECT_GT(hall.unread_bytes(), 60 * kMiB);
  EXPECT_LT(hall.unread_bytes(), 72 * kMiB);
  EXPECT_TRUE(hall.store().holds_back());
  hall.wake();
  EXPECT_EQ(hall.heard<RowValues>(2).size(), static_cast<std::size_t>(kChunks));
  EXPECT_EQ(hall.refusal(2), "");
}

TEST(Limits, APullOfMoreThanMayWaitIsRefusedAndNamed) {
  Hall hall({.dead_after_s = 0});
  Honest honest(hall);
  hall.come(2);
  hall.say(2, Join{0, "rows", 100, 2, 0, {}, 1, {}});
  for (int chunk = 0; chunk < 5000; ++chunk) hall.say(2, PullRows{0, 1, chunk, 1});
  EXPECT_THAT(hall.refusal(2),
              AllOf(HasSubstr("worker 2"), HasSubstr("\"rows\""), HasSubstr("268435456 bytes")));
  EXPECT_EQ(hall.heard<Refusal>(2).size(), 5000U - 4096U);
  honest.step();
}

TEST(Limits, ClientsThatComeAndGoAreForgotten) {
  set_log_level(Level::Error);
  constexpr Peer kMost = 1 << 16;
  Hall hall({.dead_after_s = 0});
  Honest honest(hall);
  hall.come(2);
  hall.say(2, Hello{77, 2, 0, 1, false});  // another worker on the same connection
  EXPECT_EQ(hall.store().dropped_frames(), 1);
  for (Peer peer = 3; peer < 3 * kMost; ++peer) {
    hall.come(peer);
    hall.say(peer, Leave{0});
  }
  const ServerStatus status = hall.store().status(0);
  EXPECT_EQ(status.count[static_cast<std::size_t>(Presence::Connected)], 2);
  EXPECT_LE(status.count[static_cast<std::size_t>(Presence::Left)],
            static_cast<std::int64_t>(kMost));
  for (Peer peer = 4 * kMost; peer < 5 * kMost; ++peer) hall.come(peer);
  EXPECT_THAT(hall.refusal(5 * kMost - 1),
              AllOf(HasSubstr("has 65536 clients"), HasSubstr("worker 327679")));
  honest.step();
  set_log_level(Level::Info);
}

TEST(Limits, ManyWhoAreSilentAreCounted) {
  Hall hall({.dead_after_s = 1});
  for (Peer peer = 1; peer <= 40; ++peer) hall.come(peer);
  testing::internal::CaptureStderr();
  for (std::int64_t now_us = 0; now_us <= 2'000'000; now_us += 1'000'000) hall.store().tick(now_us);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 6) << said;
  EXPECT_THAT(said, HasSubstr("and 35 more are silent"));
}

}  // namespace
}  // namespace hetu::ps::server
