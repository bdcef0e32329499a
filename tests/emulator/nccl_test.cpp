// Tests of messages between streams of the emulated GPU, with the stand-in for NCCL: when they are
// exchanged, what they don't wait for, and what is reported. Both ranks use the one GPU of this
// process, which NCCL would refuse.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "base/error.h"
#include "executor/device/device.h"
#include "executor/direct/nccl_library.h"
#include "tests/emulator/runtime.h"

namespace hetu::emulator {
namespace {

using comm::kNcclBytes;
using comm::kNcclInProgress;
using comm::kNcclSuccess;
using comm::NcclComm;

constexpr std::size_t kBytes = 64;
constexpr int kInvalidArgument = 4, kInvalidUsage = 5;

const comm::NcclLibrary& nccl() {
  static const comm::NcclLibrary one = comm::load_nccl(HETU_FAKE_NCCL);
  return one;
}

void a_while() { std::this_thread::sleep_for(std::chrono::milliseconds(40)); }

/// Waits until the communicator is ready and returns its result.
int ready(NcclComm comm) {
  int result = kNcclInProgress;
  while (nccl().comm_get_async_error(comm, &result) == kNcclSuccess && result == kNcclInProgress)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return result;
}

/// Returns true if the communicator reports `what` within 10 s.
bool says(NcclComm comm, int what) {
  for (int i = 0; i < 10'000 && ready(comm) != what; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return ready(comm) == what;
}

struct Side {
  NcclComm comm = nullptr;
  cudaStream_t stream = nullptr;
  unsigned char* memory = nullptr;

  // Add to the current group. Without a group they are launched at once.
  void send(int to, std::size_t bytes = kBytes) const {
    nccl().send(memory, bytes, kNcclBytes, to, comm, stream);
  }
  void receive(int from, std::size_t bytes = kBytes) const {
    nccl().recv(memory, bytes, kNcclBytes, from, comm, stream);
  }
  /// Waits for everything that was launched, and returns the result.
  cudaError_t finish() const { return cudaStreamSynchronize(stream); }
};

class EmulatedNccl : public testing::Test {
 protected:
  void SetUp() override {
    comm::NcclUniqueId id;
    ASSERT_EQ(nccl().get_unique_id(&id), kNcclSuccess);
    for (int r = 0; r < 2; ++r) {
      Side& side = sides_[r];
      comm::NcclConfig config;
      ASSERT_EQ(nccl().comm_init_rank_config(&side.comm, 2, id, r, &config), kNcclInProgress);
      ASSERT_EQ(cudaStreamCreateWithPriority(&side.stream, 0, 0), cudaSuccess);
      void* made = nullptr;
      ASSERT_EQ(cudaMalloc(&made, kBytes), cudaSuccess);
      side.memory = static_cast<unsigned char*>(made);
      std::memset(side.memory, r, kBytes);
    }
    ASSERT_EQ(cudaStreamCreateWithPriority(&compute_, 0, 0), cudaSuccess);
    std::thread other([&] { EXPECT_EQ(ready(sides_[1].comm), kNcclSuccess); });
    EXPECT_EQ(ready(sides_[0].comm), kNcclSuccess);
    other.join();
  }
  void TearDown() override {
    abort();
    card().broken = card().last = cudaSuccess;
    for (const Side& side : sides_) {
      static_cast<void>(cudaStreamDestroy(side.stream));
      static_cast<void>(cudaFree(side.memory));
    }
    static_cast<void>(cudaStreamDestroy(compute_));
  }
  void abort() {
    for (Side& side : sides_)
      if (side.comm != nullptr) nccl().comm_abort(std::exchange(side.comm, nullptr));
  }
  void fill(const Side& side, int value) const {
    ASSERT_EQ(cudaMemsetAsync(side.memory, value, kBytes, compute_), cudaSuccess);
  }
  /// Makes the stream wait for the work that `compute_` has been given so far.
  void wait_for_compute(cudaStream_t stream) const {
    cudaEvent_t event = nullptr;
    ASSERT_EQ(cudaEventCreateWithFlags(&event, 0), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(event, compute_), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(stream, event, 0), cudaSuccess);
    ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
  }
  void finish_both() const {
    std::thread other([&] { EXPECT_EQ(sides_[1].finish(), cudaSuccess); });
    EXPECT_EQ(sides_[0].finish(), cudaSuccess);
    other.join();
  }

  std::array<Side, 2> sides_;
  cudaStream_t compute_ = nullptr;
};

TEST_F(EmulatedNccl, AMessageHasWhatItsStreamHasWaitedFor) {
  const Side &from = sides_[0], &to = sides_[1];
  fill(from, 8);
  wait_for_compute(from.stream);
  from.send(1);
  to.receive(0);
  EXPECT_EQ(to.memory[0], 1) << "nobody has waited for the message";
  finish_both();
  EXPECT_EQ(to.memory[kBytes - 1], 8);
}

TEST_F(EmulatedNccl, AWriteThatItsStreamHasNotWaitedForIsTold) {
  fill(sides_[0], 7);
  sides_[0].send(1);
  sides_[1].receive(0);
  EXPECT_EQ(sides_[0].finish(), cudaErrorIllegalAddress);
}

TEST_F(EmulatedNccl, AWriteThatDoesNotWaitForItIsTold) {
  sides_[0].send(1);
  std::thread waits([&] { sides_[0].finish(); });
  a_while();
  fill(sides_[0], 7);
  EXPECT_EQ(cudaStreamSynchronize(compute_), cudaErrorIllegalAddress);
  abort();
  waits.join();
}

TEST_F(EmulatedNccl, AKernelThatDoesNotWaitForItIsTold) {
  const std::unique_ptr<Device> device = open_device("cuda");
  sides_[1].receive(0);
  std::thread waits([&] { sides_[1].finish(); });
  device->queue().run([&](AddressMap at) {
    device->kernels().fill(reinterpret_cast<float*>(at(sides_[1].memory)), 3, kBytes / 4);
  });
  EXPECT_THROW(device->queue().record().wait(), Error);
  abort();
  waits.join();
  card().broken = cudaSuccess;
}

TEST_F(EmulatedNccl, OtherStreamsGoOnWhileOneWaitsForItsPeer) {
  const Side &from = sides_[0], &to = sides_[1];
  to.receive(0);
  std::thread waits([&] { EXPECT_EQ(to.finish(), cudaSuccess); });
  a_while();
  fill(from, 7);
  EXPECT_EQ(cudaStreamSynchronize(compute_), cudaSuccess);
  EXPECT_EQ(from.memory[0], 7);
  EXPECT_EQ(to.memory[0], 1);
  from.send(1);
  EXPECT_EQ(from.finish(), cudaSuccess);
  waits.join();
  EXPECT_EQ(to.memory[0], 7);
}

TEST_F(EmulatedNccl, OpposingSendsOutsideOfAGroupWaitForEver) {
  std::array<std::thread, 2> threads;
  std::atomic<int> done = 0;
  for (int r = 0; r < 2; ++r)
    threads[r] = std::thread([&, r] {
      sides_[r].send(1 - r);
      ready(sides_[r].comm);
      sides_[r].receive(1 - r);
      static_cast<void>(sides_[r].finish());
      ++done;
    });
  a_while();
  EXPECT_EQ(done, 0);
  abort();
  for (std::thread& thread : threads) thread.join();
}

TEST_F(EmulatedNccl, OpposingSendsOfOneGroupDoNot) {
  std::array<void*, 2> room = {};
  for (int r = 0; r < 2; ++r) {
    ASSERT_EQ(cudaMalloc(&room[r], kBytes), cudaSuccess);
    nccl().group_start();
    sides_[r].send(1 - r);
    nccl().recv(room[r], kBytes, kNcclBytes, 1 - r, sides_[r].comm, sides_[r].stream);
    EXPECT_EQ(nccl().group_end(), kNcclInProgress);
  }
  finish_both();
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(*static_cast<unsigned char*>(room[r]), 1 - r);
    EXPECT_EQ(cudaFree(room[r]), cudaSuccess);
  }
}

TEST_F(EmulatedNccl, MemoryThatIsNotTheCardsBreaksIt) {
  sides_[0].send(1, kBytes + 1);
  EXPECT_EQ(sides_[0].finish(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamSynchronize(compute_), cudaErrorIllegalAddress);
}

TEST_F(EmulatedNccl, SidesThatDoNotAgreeAreTold) {
  sides_[0].send(1, kBytes);
  sides_[1].receive(0, kBytes - 4);
  std::array<std::thread, 2> threads;
  for (int r = 0; r < 2; ++r) threads[r] = std::thread([&, r] { sides_[r].finish(); });
  for (const Side& side : sides_) EXPECT_TRUE(says(side.comm, kInvalidArgument));
  abort();
  for (std::thread& thread : threads) thread.join();
}

/// The result of rank r if it is the first to reach the message and its memory is written then.
class WrittenMeanwhile : public EmulatedNccl, public testing::WithParamInterface<int> {};

TEST_P(WrittenMeanwhile, IsTold) {
  const Side &first = sides_[GetParam()], &last = sides_[1 - GetParam()];
  const auto put = [&](const Side& side) { &side == &sides_[0] ? side.send(1) : side.receive(0); };
  ASSERT_EQ(cudaMemsetAsync(first.memory, 5, kBytes, first.stream), cudaSuccess);
  put(first);
  std::thread waits([&] { first.finish(); });
  while (*static_cast<volatile unsigned char*>(first.memory) != 5) a_while();
  a_while();
  first.memory[kBytes / 2] = 9;  // as a kernel would
  put(last);
  std::thread other([&] { last.finish(); });
  EXPECT_TRUE(says(first.comm, kInvalidArgument));
  abort();
  waits.join();
  other.join();
}

INSTANTIATE_TEST_SUITE_P(Ranks, WrittenMeanwhile, testing::Values(0, 1));

TEST(EmulatedNcclAlone, NothingIsTakenBeforeAllAreThere) {
  comm::NcclUniqueId id;
  ASSERT_EQ(nccl().get_unique_id(&id), kNcclSuccess);
  NcclComm comm = nullptr;
  comm::NcclConfig config;
  ASSERT_EQ(nccl().comm_init_rank_config(&comm, 2, id, 0, &config), kNcclInProgress);
  int result = kNcclSuccess;
  ASSERT_EQ(nccl().comm_get_async_error(comm, &result), kNcclSuccess);
  EXPECT_EQ(result, kNcclInProgress);
  EXPECT_EQ(nccl().send(nullptr, 0, kNcclBytes, 1, comm, nullptr), kInvalidUsage);
  EXPECT_EQ(nccl().send(nullptr, 0, kNcclBytes, 2, comm, nullptr), kInvalidArgument);
  nccl().comm_abort(comm);
}

}  // namespace
}  // namespace hetu::emulator
