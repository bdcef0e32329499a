// Tests hostile clients that hold the job's key, over real sockets: invalid frames, floods, unread
// answers and endless tables. Other clients continue, and the server's memory is bounded.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include "base/log.h"
#include "ps/server/messages.h"
#include "tests/ps/server/served_parameters.h"
#include "tests/ps/server/wild_frames.h"

namespace hetu::ps {
namespace {

using namespace server;

constexpr std::int64_t kPart = 1 << 18;  // elements: 1 MiB
constexpr double kMemory_MB = 67.2, kUnread_MB = 33.6;

ServeParameters limits() {
  ServeParameters like;
  like.memory = 64 << 20;
  like.most_unread = 32 << 20;
  return like;
}

/// A connection that sends anything, and reads only on request.
class Rogue {
 public:
  explicit Rogue(const ServedParameters& served, int worker = 9) : worker_(worker) {
    socket_.set(zmq::sockopt::sndhwm, 64);
    socket_.set(zmq::sockopt::rcvhwm, 1);
    socket_.set(zmq::sockopt::rcvbuf, 1 << 14);
    served.connect(socket_, 0);
  }
  /// Returns false if the server takes no more at the moment.
  bool say(const Bytes& header, const Bytes& payload, int more_frames = 0) {
    if (!socket_.send(zmq::buffer(header), zmq::send_flags::sndmore | zmq::send_flags::dontwait)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return false;
    }
    for (int f = 0; f < more_frames; ++f) {
      socket_.send(zmq::buffer(header), zmq::send_flags::sndmore | zmq::send_flags::dontwait);
    }
    socket_.send(zmq::buffer(payload), zmq::send_flags::dontwait);
    return true;
  }
  bool say(const FromClient& message, const Bytes& payload = {}) {
    return say(encode(1, message), payload);
  }
  void come() {
    const std::uint64_t session = std::random_device{}();
    while (!say(Hello{session, worker_, 0, 1, false})) {
    }
  }
  /// Passes each received message that can be decoded to `heard`.
  void read(const std::function<void(const FromServer&)>& heard) {
    std::vector<zmq::message_t> parts;
    while (curve::receive_all(socket_, parts)) {
      heard(decode_from_server(parts[0].data<std::byte>(), parts[0].size()).message);
    }
  }

 private:
  const int worker_;
  zmq::context_t context_{1};
  zmq::socket_t socket_{context_, zmq::socket_type::dealer};
};

Bytes floats(std::int64_t elements) { return Bytes(static_cast<std::size_t>(elements) * 4); }

/// Pushes and pulls as an honest client. Each pull must return the whole values.
void train(const ServedParameters& served, int steps) {
  constexpr std::int64_t kElements = 10'000;
  const auto client = served.client(0, 300);
  std::vector<float> values(kElements, 1);
  const int table = client->open({"honest", kElements, 1}, 0, values.data());
  for (int step = 1; step <= steps; ++step) {
    client->push(table, std::vector<float>(kElements, 1));
    client->pull(table, step, values.data());
    client->wait(table, {});
    ASSERT_EQ(values, std::vector<float>(kElements, static_cast<float>(1 + step)));
  }
}

/// An honest client trains while another one misbehaves without a pause. Holds the number of
/// messages of the latter, and the growth of the server's memory.
struct Beside {
  std::int64_t said = 0;
  double grown_MB = 0;
};
Beside train_beside(const std::function<std::int64_t(Rogue&, std::int64_t turn)>& misbehave) {
  const ServedParameters served(1, true, kDeadAfterS, "", limits());
  train(served, 1);
  const double before_MB = served.resident_MB(0);
  std::atomic<bool> is_over{false};
  std::atomic<std::int64_t> said{0};
  std::thread rogue([&] {
    Rogue one(served);
    one.come();
    for (std::int64_t turn = 0; !is_over; ++turn) said += misbehave(one, turn);
  });
  while (said < 200) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  train(served, 200);
  is_over = true;
  rogue.join();
  return {said, served.resident_MB(0) - before_MB};
}

TEST(Floods, OfUpdatesWhoseAnswersNobodyReads) {
  std::int64_t number = 0;
  const Beside found = train_beside([&](Rogue& rogue, std::int64_t turn) {
    if (turn == 0) {
      rogue.say(Join{0, "flood", kPart, 1, 0});
      rogue.say(Init{0, 0}, floats(kPart));
    }
    const bool is_said = rogue.say(Push{0, 0, number + 1}, floats(kPart));
    if (is_said) ++number;
    return static_cast<std::int64_t>(is_said);
  });
  // The sender must wait once 32 of its messages are waiting.
  EXPECT_LT(found.grown_MB, HETU_GROWTH_MB + 3 * kMemory_MB) << found.said << " messages";
}

TEST(Floods, OfPullsWhoseAnswersNobodyReads) {
  set_log_level(Level::Error);
  std::int64_t number = 0;
  const Beside found = train_beside([&](Rogue& rogue, std::int64_t turn) {
    if (turn == 0) {
      rogue.say(Join{0, "flood", kPart, 1, 0});
      rogue.say(Init{0, 0}, floats(kPart));
    }
    // A push before each pull gives each answer values of its own.
    const bool is_said =
        rogue.say(Push{0, 0, number + 1}, floats(kPart)) && rogue.say(Pull{0, 0, number + 1, 0, 0});
    if (is_said) ++number;
    return static_cast<std::int64_t>(2 * is_said);
  });
  EXPECT_LT(found.grown_MB, HETU_GROWTH_MB + 3 * kMemory_MB + kUnread_MB)
      << found.said << " messages";
  set_log_level(Level::Info);
}

TEST(Floods, OfRowsThatNobodyReads) {
  constexpr int kWidth = 1 << 12;
  std::int64_t number = 0;
  Bytes ids(static_cast<std::size_t>(most_rows(kWidth)) * 8);  // row 0, repeated
  const Beside found = train_beside([&](Rogue& rogue, std::int64_t turn) {
    if (turn == 0) rogue.say(Join{0, "flood", 16 * kWidth, 1, 0, {}, kWidth, {}});
    const int chunk = static_cast<int>(number % 1000);
    const bool is_said = rogue.say(PullRows{0, 1 + number / 1000, chunk}, ids);
    number += is_said ? 1 : 0;
    return static_cast<std::int64_t>(is_said);
  });
  EXPECT_LT(found.grown_MB, HETU_GROWTH_MB + 3 * kMemory_MB) << found.said << " messages";
}

TEST(Floods, OfTables) {
  std::atomic<std::int64_t> refused{0};
  std::string why;
  const Beside found = train_beside([&](Rogue& rogue, std::int64_t turn) {
    const int table = static_cast<int>(turn % kMostTables);
    const bool is_said = rogue.say(Join{
        table, fmt::format("flood {}", turn), 1 << 30, kMostMembers, 0, {}, 1 + table % 2, {}});
    rogue.read([&](const FromServer& message) {
      if (const auto* no = std::get_if<NotJoined>(&message)) ++refused, why = no->text;
    });
    return static_cast<std::int64_t>(is_said);
  });
  EXPECT_GT(refused, 0);
  EXPECT_THAT(why, testing::AllOf(testing::HasSubstr("of at most 64.0 MiB (67108864 bytes)"),
                                  testing::HasSubstr("worker 9 needs")));
  EXPECT_LT(found.grown_MB, HETU_GROWTH_MB + 3 * kMemory_MB) << found.said << " messages";
}

/// Sends random frames of one to four parts over a socket.
void fuzz_served(int frames) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const ServedParameters served(1, true, kDeadAfterS, "", limits());
  train(served, 1);
  WildFrames source(seed, WildFrames::kMembers);
  std::vector<std::unique_ptr<Rogue>> rogues(WildFrames::kMembers);
  std::vector<std::uint64_t> peers(rogues.size());
  double before_MB = 0;
  for (int i = 0; i < frames; ++i) {
    const WildFrames::Frame frame = source.next();
    const std::size_t who = frame.sender;
    if (rogues[who] == nullptr || peers[who] != frame.peer) {
      rogues[who] = std::make_unique<Rogue>(served, static_cast<int>(who));
      peers[who] = frame.peer;
    }
    const bool is_odd = source.damage().below(50) == 0;
    const int more = is_odd ? static_cast<int>(source.damage().below(3)) : 0;
    while (!rogues[who]->say(frame.header, frame.payload, more)) {
    }
    rogues[who]->read([&](const FromServer& message) { source.hear(who, message); });
    if (i % 1000 == 999) train(served, 1);
    if (i == 10'000) before_MB = served.resident_MB(0);
  }
  train(served, 10);
  const double now_MB = served.resident_MB(0);
  if (frames > 100'000) {
    std::printf("a server's resident memory after 10,000 frames %.1f MB, after %d %.1f MB\n",
                before_MB, frames, now_MB);
  }
  EXPECT_LT(now_MB, before_MB + kMemory_MB + HETU_GROWTH_MB);
}

TEST(Floods, OfNonsense) { fuzz_served(11'000); }
TEST(Floods, DISABLED_OfMuchNonsense) { fuzz_served(200'000); }

}  // namespace
}  // namespace hetu::ps
