// Functions of fake_nccl.cpp beyond NCCL's entry points, which are looked up by name, and a queue
// for tests without a device.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "executor/device/device.h"

namespace hetu::comm {

/// A queue over host memory that is served by a thread.
class FakeStream final : public Queue {
 public:
  FakeStream() : Queue(/*at_once=*/false), thread_([this] { serve(); }) {}
  ~FakeStream() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Event record() override { return {}; }
  void* stream() override { return static_cast<Queue*>(this); }

  std::atomic<int> unfinished{0};  ///< work items that were pushed and have not ended

 private:
  void push(std::function<void(AddressMap)> work) override {
    ++unfinished;
    {
      const std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
    }
    changed_.notify_all();
  }
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || !work_.empty(); });
      if (work_.empty()) return;
      const auto work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      work(AddressMap(nullptr));
      --unfinished;
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void(AddressMap)>> work_;
  bool stop_ = false;
  std::thread thread_;
};

struct FakeNccl {
  int (*live)() = nullptr;      ///< "fake_nccl_live": communicators that were not aborted
  int (*made)() = nullptr;      ///< "fake_nccl_made": unique ids that were issued
  long (*moved)() = nullptr;    ///< "fake_nccl_moved": messages that have arrived
  void (*fail)(int) = nullptr;  ///< "fake_nccl_fail": sets the asynchronous error of later queries
};

/// Returns the functions of the library that HETU_FAKE_NCCL names.
FakeNccl load_fake_nccl();

}  // namespace hetu::comm
