// Tests of the memory and streams of the emulated GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulator/memory.h"
#include "tests/emulator/streams.h"

namespace hetu::emulator {
namespace {

TEST(EmulatedMemory, KnowsWhatIsWhere) {
  Memory memory(1000);
  auto* const a = static_cast<std::byte*>(memory.allocate(600, Kind::Device));
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(memory.allocate(600, Kind::Device), nullptr) << "more than the card has";
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % 256, 0U);
  EXPECT_EQ(a[599], std::byte{0xff});
  const auto find = [&](const std::byte* at) {
    return memory.find(reinterpret_cast<std::uintptr_t>(at));
  };
  ASSERT_NE(find(a + 599), nullptr);
  EXPECT_EQ(find(a + 599)->bytes, 600U);
  EXPECT_EQ(find(a + 600), nullptr);
  EXPECT_EQ(find(a - 1), nullptr);
  EXPECT_FALSE(memory.free(a, Kind::Pinned));
  EXPECT_FALSE(memory.free(a + 8, Kind::Device));
  EXPECT_TRUE(memory.free(a, Kind::Device));
  EXPECT_EQ(find(a), nullptr);
  EXPECT_NE(memory.allocate(1000, Kind::Device), nullptr) << "what is free again";
}

TEST(EmulatedStreams, WorkIsDoneWhenItIsWaitedFor) {
  const auto of_first = std::make_shared<Stream>();
  Stream &first = *of_first, second;
  std::vector<int> done;
  const auto mark = [&](int number) { return [&done, number] { done.push_back(number); }; };
  first.give(mark(1));
  Event event;
  event.record(of_first);
  first.give(mark(2));
  second.give([event] { event.wait(); });
  second.give(mark(3));
  EXPECT_THAT(done, testing::IsEmpty());
  second.finish();
  EXPECT_THAT(done, testing::ElementsAre(1, 3)) << "of the other stream up to the event alone";
  event.wait();
  first.finish();
  EXPECT_THAT(done, testing::ElementsAre(1, 3, 2));
  Event().wait();  // never recorded
}

TEST(EmulatedStreams, KnowWhatOfTheirWorkIsBesideThatOfAnother) {
  std::array<char, 16> memory;
  const auto touch = [&](std::size_t from, std::size_t bytes, bool writes) {
    return Touch{&memory[from], bytes, writes, writes ? "a write" : "a read"};
  };
  Stream stream;
  const auto beside = [&](const Touch& one, std::uint64_t number) -> std::string {
    const auto meets = [&](const Touch& other) { return meet(one, other); };
    const Touch* const found = stream.unordered(meets, number);
    return found == nullptr ? "" : found->what;
  };
  stream.give(Work([] {}, {touch(0, 8, false)}), 1);
  stream.give(Work([] {}, {touch(12, 4, true)}), 3);
  EXPECT_EQ(beside(touch(0, 16, false), 2), "") << "two reads; the write came after it";
  EXPECT_EQ(beside(touch(7, 1, true), 2), "a read");
  EXPECT_EQ(beside(touch(8, 4, true), 4), "");
  EXPECT_EQ(beside(touch(15, 1, false), 4), "a write");
  stream.finish();
  EXPECT_EQ(beside(touch(0, 16, true), 4), "");
  std::string meanwhile;
  stream.give(Work([&] { meanwhile = beside(touch(0, 1, false), 4); }, {touch(0, 1, true)}), 5);
  stream.finish();
  EXPECT_EQ(meanwhile, "a write") << "what is done just now";
}

// A stream whose work waits for another GPU, as NCCL's does.
TEST(EmulatedStreams, GoOnWhileOneWaitsForAnother) {
  Turn turn;
  const auto waits = std::make_shared<Stream>(&turn);
  Stream second(&turn);
  std::promise<void> begun, peer;
  std::vector<int> done;
  waits->give([&] {
    turn.apart([&] {
      begun.set_value();
      peer.get_future().wait();
    });
    done.push_back(2);
  });
  Event event;
  event.record(waits);
  std::thread at_it([&] {
    const std::lock_guard lock(turn);
    waits->finish();
  });
  begun.get_future().wait();
  std::thread behind_it([&] {
    const std::lock_guard lock(turn);
    second.give([&] { done.push_back(1); });
    second.finish();
    second.give([event] { event.wait(); });
    second.give([&] { done.push_back(3); });
    peer.set_value();
    second.finish();
  });
  at_it.join();
  behind_it.join();
  EXPECT_THAT(done, testing::ElementsAre(1, 2, 3));
}

TEST(EmulatedStreams, CapturesRunNothing) {
  Stream stream;
  int runs = 0;
  stream.capture();
  EXPECT_TRUE(stream.captures());
  EXPECT_TRUE(stream.forbids_waiting());
  std::thread([&] { EXPECT_FALSE(stream.forbids_waiting()); }).join();
  stream.give([&] { ++runs; });
  stream.finish();
  bool whole = false;
  const std::vector<Work> work = stream.captured(whole);
  EXPECT_TRUE(whole);
  EXPECT_EQ(runs, 0);
  ASSERT_EQ(work.size(), 1U);
  stream.capture();
  stream.break_capture();
  stream.captured(whole);
  EXPECT_FALSE(whole);
  stream.give(work[0]);
  stream.finish();
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace hetu::emulator
