// Frames are decoded exactly as they were encoded, and nothing else is accepted.
#include "ps/coordinator/messages.h"

#include <gmock/gmock.h>

#include <random>

namespace hetu::ps {
namespace {

ClientOptions some_options() {
  ClientOptions options;
  options.policy.stages = 3;
  options.policy.pipelines = 5;
  options.policy.sync_period = 7;
  options.policy.soft = 0.25;
  options.policy.seed = 99;
  options.worker = 11;
  options.pipeline = 4;
  options.stage = 2;
  options.group_log = "groups.jsonl";
  options.endpoint = "tcp://a:1";
  options.on_failure_shrink = true;
  return options;
}

std::vector<Bytes> from_workers() {
  return {encode(FromWorker(Hello{some_options()})),
          encode(FromWorker(BeginRun{{12, 100, 60}})),
          encode(FromWorker(Ask{13})),
          encode(FromWorker(Heartbeat{})),
          encode(FromWorker(Leave{})),
          encode(FromWorker(Arrive{true, false})),
          encode(FromWorker(StopSoon{}))};
}

std::vector<Bytes> from_coordinators() {
  return {encode(FromCoordinator(Welcome{})),
          encode(FromCoordinator(Answer{{0, 3}, {7, 9}, 5, 12, 3, {0.25, 0.75}})),
          encode(FromCoordinator(Heartbeat{})),
          encode(FromCoordinator(Refusal{Code::Plan, "no"})),
          encode(FromCoordinator(Lost{2, 40, 38, "was killed"})),
          encode(FromCoordinator(Endpoints{{"tcp://a:1", ""}})),
          encode(FromCoordinator(Rendezvous{{0, 2}, false, true})),
          encode(FromCoordinator(Left{}))};
}

TEST(Messages, AreReadAsTheyWereWritten) {
  std::size_t kind = 0;
  for (const Bytes& frame : from_workers()) {
    const FromWorker message = decode_from_worker(frame.data(), frame.size());
    EXPECT_EQ(message.index(), kind++);
    EXPECT_EQ(encode(message), frame);
  }
  kind = 0;
  for (const Bytes& frame : from_coordinators()) {
    const FromCoordinator message = decode_from_coordinator(frame.data(), frame.size());
    EXPECT_EQ(message.index(), kind++);
    EXPECT_EQ(encode(message), frame);
  }
  const Bytes frame = from_coordinators()[1];
  EXPECT_EQ(std::get<Answer>(decode_from_coordinator(frame.data(), frame.size())),
            (Answer{{0, 3}, {7, 9}, 5, 12, 3, {0.25, 0.75}}));
}

TEST(Messages, OfAnyOtherLengthAreRefused) {
  const auto refused = [](const auto& decode, Bytes frame) {
    for (std::size_t bytes = 0; bytes < frame.size(); ++bytes) {
      EXPECT_THROW(decode(frame.data(), bytes), Error) << bytes << " of " << frame.size();
    }
    frame.push_back(std::byte{0});
    EXPECT_THROW(decode(frame.data(), frame.size()), Error);
    EXPECT_THROW(decode(frame.data(), std::size_t{0}), Error);
  };
  for (const Bytes& frame : from_workers()) refused(decode_from_worker, frame);
  for (const Bytes& frame : from_coordinators()) refused(decode_from_coordinator, frame);
}

TEST(Messages, OfTheOtherDirectionAreRefused) {
  for (const Bytes& frame : from_workers()) {
    if (frame == encode(FromCoordinator(Heartbeat{}))) continue;
    EXPECT_THROW(decode_from_coordinator(frame.data(), frame.size()), Error);
  }
  for (const Bytes& frame : from_coordinators()) {
    if (frame == encode(FromWorker(Heartbeat{}))) continue;
    EXPECT_THROW(decode_from_worker(frame.data(), frame.size()), Error);
  }
}

TEST(Messages, WithDamagedBytesAreReadOrRefused) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  const std::vector<Bytes> frames = from_coordinators();
  for (int i = 0; i < 20000; ++i) {
    Bytes frame = frames[draw() % frames.size()];
    for (unsigned n = 1 + draw() % 3; n > 0; --n) frame[draw() % frame.size()] = std::byte(draw());
    try {
      const FromCoordinator message = decode_from_coordinator(frame.data(), frame.size());
      EXPECT_EQ(encode(message), frame);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::Comm);
    }
  }
}

TEST(Messages, OfAnotherVersionSayWhatIsRight) {
  Bytes frame = encode(FromWorker(Heartbeat{}));
  frame[0] = std::byte{77};
  EXPECT_THAT([&] { decode_from_worker(frame.data(), frame.size()); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("same Hetu on all hosts")));
}

}  // namespace
}  // namespace hetu::ps
