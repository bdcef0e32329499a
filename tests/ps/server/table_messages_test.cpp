// Tests the messages of the parameter servers: each message is encoded and decoded, and frames that
// Hetu never sends are refused.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "base/log.h"
#include "ps/server/store.h"

namespace hetu::ps::server {
namespace {

ServerOptimizer momentum() {
  ServerOptimizer optimizer;
  optimizer.settings = {Optimizer::Kind::Momentum, 0.5, 0.25, 0.125, 1e-3, 2, 3};
  optimizer.undecayed = {{0, 3}, {7, 9}};
  return optimizer;
}

ServerOptimizer plain() {
  ServerOptimizer optimizer = momentum();
  optimizer.undecayed.clear();
  return optimizer;
}

ServerOptimizer with_most_spans() {
  ServerOptimizer optimizer = momentum();
  optimizer.undecayed.assign(kMostSpans, {1, kMostElements});
  return optimizer;
}

std::vector<FromClient> of_workers() {
  const std::int64_t far = std::numeric_limits<std::int64_t>::max();
  const std::int64_t none = std::numeric_limits<std::int64_t>::min();
  return {Hello{0xFFFF'FFFF'0000'0001U, 7, 2, 3, true},
          Join{5, "stage 2", kMostElements, kMostMembers, kMostMembers - 1},
          Join{6, "w", 9, 2, 1, {Rule::RoundMean, momentum()}},
          Join{6, "w", 9, 2, 1, {Rule::RoundSum, {}}},
          Join{0, std::string(kLongestName, 'w'), 9, 2, 1, {Rule::Each, with_most_spans()}},
          Join{6, "w", 64, 2, 1, {}, 8, {{Initializer::Kind::Normal, -1, 0.5}, ~std::uint64_t{0}}},
          PushRows{3, 4, 0.5, true, false},
          PushRows{kMostTables - 1, far, 0, false, true},
          SetRows{3, 4, kMostPlanes - 1, 6},
          PullRows{3, 4, kMostChunks - 1, none, far, kMostPlanes - 1, -1},
          PullRows{3, 4, 0, far, 0, 0, far},
          Init{1, 2},
          Init{1, 2, kMostPlanes - 1, kMostPlanes, far / 2},
          Push{3, 4, 5},
          Push{3, 4, 5, 0.125},
          Pull{4, 5, 6, 7, 8, kMostPlanes - 1},
          Pull{kMostTables - 1, 6, far, none, 0},
          Pull{0, 0, 1, far, far},
          Who{1, 2, none},
          Beat{12},
          Leave{9},
          Got{1, 2, far},
          Status{},
          Status{far}};
}

std::vector<FromServer> of_servers() {
  return {Welcome{},
          Joined{5, true},
          NotJoined{5, std::string("text with \0 in it", 17)},
          Initialised{1, 2},
          Initialised{1, 2, kMostPlanes - 1},
          Pushed{3, 4, 5},
          PushedRows{3, 0},
          RowValues{3, 4, kMostChunks - 1, 6, 7},
          Values{1, 2, 3, 4},
          Values{1, 2, 3, 4, 5},
          NoValues{1, 2, 3, "worker 3 died"},
          Waits{1, 2, ""},
          BeatBack{false, 12},
          Left{},
          StatusIs{7},
          Refusal{Code::Internal, std::string(kLongestText, 'x')}};
}

TEST(TableMessages, ComeBackAsTheyWere) {
  for (const FromClient& message : of_workers()) {
    const Bytes bytes = encode(77, message, 5);
    const Framed<FromClient> back = decode_from_client(bytes.data(), bytes.size());
    EXPECT_EQ(back.attempt, 77U);
    EXPECT_EQ(back.serial, 5);
    EXPECT_EQ(back.message, message) << message.index();
    EXPECT_LE(bytes.size(), kLongestHeader);
    EXPECT_THROW(decode_from_server(bytes.data(), bytes.size()), Error);
  }
  for (const FromServer& message : of_servers()) {
    const Bytes bytes = encode(78, message);
    const Framed<FromServer> back = decode_from_server(bytes.data(), bytes.size());
    EXPECT_EQ(back.attempt, 78U);
    EXPECT_EQ(back.message, message) << message.index();
    EXPECT_LE(bytes.size(), kLongestHeader);
    EXPECT_THROW(decode_from_client(bytes.data(), bytes.size()), Error);
  }
}

TEST(TableMessages, OfAnotherLengthAreRefused) {
  const auto refused = [](Bytes bytes, const auto& decode) {
    bytes.push_back(std::byte{0});
    EXPECT_THROW(decode(bytes.data(), bytes.size()), Error);
    bytes.pop_back();
    while (!bytes.empty()) {
      bytes.pop_back();
      EXPECT_THROW(decode(bytes.data(), bytes.size()), Error);
    }
  };
  for (const FromClient& message : of_workers()) refused(encode(1, message), decode_from_client);
  for (const FromServer& message : of_servers()) refused(encode(1, message), decode_from_server);
}

TEST(TableMessages, OutOfRangeAreRefused) {
  const auto refused = [](const FromClient& message) {
    const Bytes bytes = encode(1, message);
    EXPECT_THROW(decode_from_client(bytes.data(), bytes.size()), Error);
  };
  refused(Hello{1, -1, 0, 1, false});
  refused(Hello{1, 0, 1, 1, false});
  refused(Hello{1, 0, 0, 0, false});
  refused(Hello{1, 0, 0, kMostServers + 1, false});
  refused(Join{0, "w", 0, 1, 0});
  refused(Join{0, "w", kMostElements + 1, 1, 0});
  refused(Join{0, "w", 1, 0, 0});
  refused(Join{0, "w", 1, kMostMembers + 1, 0});
  refused(Join{0, "w", 1, 1, 1});
  refused(Join{0, "w", 1, 1, -1});
  refused(Join{kMostTables, "w", 1, 1, 0});
  refused(Join{0, std::string(kLongestName + 1, 'w'), 1, 1, 0});
  Join join{0, "w", 9, 1, 0, {Rule::Each, momentum()}};
  const auto refused_with = [&](const auto& change) {
    Join wrong = join;
    change(wrong.rule, *wrong.rule.optimizer);
    refused(wrong);
  };
  refused_with([](UpdateRule& r, ServerOptimizer&) { r.rule = static_cast<Rule>(kRules); });
  refused_with([](UpdateRule&, ServerOptimizer& o) {
    o.settings.kind = static_cast<Optimizer::Kind>(kOptimizerKinds);
  });
  refused_with([](UpdateRule&, ServerOptimizer& o) { o.settings.momentum = -1; });
  refused_with([](UpdateRule&, ServerOptimizer& o) { o.settings.epsilon = NAN; });
  refused_with([](UpdateRule&, ServerOptimizer& o) { o.settings.l2 = INFINITY; });
  refused_with([](UpdateRule&, ServerOptimizer& o) { o.undecayed.resize(kMostSpans + 1); });
  refused_with([](UpdateRule&, ServerOptimizer& o) { o.undecayed[0].begin = -1; });
  refused_with([](UpdateRule&, ServerOptimizer& o) { o.undecayed[0].end = kMostElements + 1; });
  join = {0, "w", 9, 1, 0, {}, 3, {}};
  join.width = -1;
  refused(join);
  join.width = kMostWidth + 1;
  refused(join);
  join.width = 3;
  join.first.values.kind = static_cast<Initializer::Kind>(Initializer::kKinds);
  refused(join);
  join.first.values = {Initializer::Kind::Normal, NAN, 0};
  refused(join);
  refused(PushRows{0, 0, 0, false, true});
  refused(PushRows{0, 1, -1, false, true});
  refused(SetRows{0, 0, 0, 0});
  refused(SetRows{0, 1, kMostPlanes, 0});
  refused(SetRows{0, 1, 0, -1});
  refused(PullRows{0, 0, 0, 0, 0, 0, 0});
  refused(PullRows{0, 1, kMostChunks, 0, 0, 0, 0});
  refused(PullRows{0, 1, -1, 0, 0, 0, 0});
  refused(PullRows{0, 1, 0, 0, -1, 0, 0});
  refused(PullRows{0, 1, 0, 0, 0, 0, -2});
  refused(Init{0, 0, -1, 1});
  refused(Init{0, 0, kMostPlanes, kMostPlanes});
  refused(Init{0, 0, 0, 0});
  refused(Init{0, 0, 0, kMostPlanes + 1});
  refused(Init{0, 0, 0, 1, -1});
  // the store continues to count from this number
  refused(Init{0, 0, 0, 1, (std::int64_t{1} << 62)});
  refused(SetRows{0, 1, 0, (std::int64_t{1} << 62)});
  refused(Push{0, 0, 1, -0.5});
  refused(Push{0, 0, 1, NAN});
  refused(Pull{0, 0, 1, 0, 0, kMostPlanes});
  refused(Init{-1, 0});
  refused(Init{0, -1});
  refused(Push{0, 0, 0});
  refused(Pull{0, 0, 0, 0, 0});
  refused(Pull{0, 0, 1, 0, -1});
  refused(Got{0, 0, 0});
  refused(Beat{-1});
  refused(Leave{-1});
}

/// Sends valid messages, damaged messages, messages in the wrong order and random bytes, with
/// matching payloads or not. Valid messages must succeed throughout.
TEST(TableMessages, NonsenseHarmsNoStore) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  set_log_level(Level::Error);
  constexpr std::int64_t kElements = 64;
  std::int64_t applied = 0;
  Store store({.dead_after_s = 0,
               .on_applied = [&](const Applied& a) { applied += a.table == "mine" ? 1 : 0; }});
  const std::vector<float> ones(kElements, 1);
  const auto* data = reinterpret_cast<const std::byte*>(ones.data());
  const Payload full{data, kElements * sizeof(float)};
  constexpr Store::Peer kMine = 100;
  const auto say = [&](const FromClient& message, const Payload& payload = {}) {
    store.receive(kMine, encode(1, message), payload, 0);
  };
  // a session that damage to other messages can't produce
  say(Hello{0x1234'5678'9ABC'DEF0U, 1, 0, 1, false});
  say(Join{0, "mine", kElements, 1, 0});
  say(Init{0, 0}, full);
  const std::vector<FromClient> frames = {
      Hello{2, 2, 0, 1, false},
      Hello{3, 3, 0, 1, true},
      Join{0, "w", kElements, 2, 0},
      Join{1, "w", kElements, 2, 1},
      Join{0, "mine", kElements, 1, 0},
      Join{2, "m", kElements, 2, 1, {Rule::RoundMean, momentum()}},
      Join{3, "e", kElements, 1, 0, {Rule::Each, momentum()}},
      Join{4, "r", 64, 1, 0, {Rule::Each, plain()}, 8, {}},
      Join{5, "s", 1 << 20, 2, 0, {Rule::RoundSum, {}}, 2, {}},
      PushRows{4, 1, 0.5, false, true},
      PushRows{5, 1, 0.5, true, true},
      SetRows{4, 1, 0, 3},
      PullRows{4, 1, 0, 0, 0, 0, -1},
      PullRows{5, 1, 0, 0, 0, 0, 2},
      Who{4, 0, 9},
      Init{0, 0},
      Init{2, 0, 1, 2, 9},
      Init{2, 0, 0, 2, 9},
      Init{3, 0},
      Push{0, 0, 1},
      Push{2, 0, 1, 0.5},
      Push{3, 0, 1, 0.5},
      Pull{0, 0, 1, 0, 0},
      Pull{3, 0, 1, 0, 0, 1},
      Who{0, 0, 3},
      Got{0, 0, 1},
      Beat{5},
      Leave{1}};
  std::int64_t mine = 0;
  std::vector<std::byte> big(1000);
  for (int i = 0; i < 100'000; ++i) {
    Bytes frame = encode(static_cast<std::uint32_t>(draw() % 3), frames[draw() % frames.size()]);
    if (draw() % 8 == 0) {
      frame.resize(draw() % 100);
      for (std::byte& byte : frame) byte = static_cast<std::byte>(draw());
    }
    for (unsigned n = draw() % 4; n > 1 && !frame.empty(); --n) {
      frame[draw() % frame.size()] = static_cast<std::byte>(draw());
    }
    if (draw() % 8 == 0) frame.resize(draw() % (2 * frame.size() + 1));
    const std::int64_t few[] = {0, 1, static_cast<std::int64_t>(draw() % 9), 1 << 30};
    std::memcpy(big.data(), few, sizeof few);
    const Payload payload = draw() % 2 == 0   ? full
                            : draw() % 2 == 0 ? Payload{big.data(), draw() % big.size()}
                                              : Payload{};
    store.receive(1 + draw() % 8, frame, payload, 0);
    if (i % 1000 == 0) say(Push{0, 0, ++mine}, full);
    store.take();
  }
  EXPECT_EQ(applied, mine);
  EXPECT_GT(store.dropped_frames(), 20'000);
  say(Pull{0, 0, 1, mine, mine});
  const std::vector<Store::Outgoing> out = store.take();
  ASSERT_EQ(out.size(), 1U);
  ASSERT_EQ(out[0].payload.bytes, full.bytes);
  float value = 0;
  std::memcpy(&value, out[0].payload.data, sizeof value);
  EXPECT_EQ(value, static_cast<float>(mine + 1));
  set_log_level(Level::Info);
}

}  // namespace
}  // namespace hetu::ps::server
