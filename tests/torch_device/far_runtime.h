// A simulated accelerator for tests: memory that host code can't touch, streams that run late,
// events.
//
// Device memory consists of two mappings of the same size. Tensors hold addresses in the first
// one, which has no access rights, so that every access by host code ends in a segmentation
// fault. The device itself works in the second mapping, at the same offset (see view_of).
//
// A stream is a queue with its own thread. The thread starts a task only after half a second
// (FAR_DELAY_MS), unless a thread waits for the task or a later one. Code that forgets to wait
// therefore reads old data, even on a busy machine, and code that waits loses no time. Memory is
// filled with 0xff bytes (NaN as a float) before its first use and when it is freed.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace far_device {

using Clock = std::chrono::steady_clock;

/// An in-order queue of work, run by one thread.
class Stream {
 public:
  Stream(int device, int number);

  /// Appends a task and returns its ticket: the number of tasks up to and including it.
  std::uint64_t enqueue(std::function<void()> work);
  /// Blocks until the task with this ticket is done. Throws what a task has thrown.
  void wait(std::uint64_t ticket);
  /// Blocks until everything enqueued so far is done.
  void wait() { wait(last_ticket()); }
  bool is_done(std::uint64_t ticket);
  std::uint64_t last_ticket();

  int device() const { return device_; }
  int number() const { return number_; }

 private:
  struct Task {
    std::function<void()> work;
    Clock::time_point earliest;  // the earliest start if nothing waits for it
  };

  void run();

  const int device_;
  const int number_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::uint64_t enqueued_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t urgent_ = 0;  // tasks up to this ticket start without delay
  std::exception_ptr error_;
};

/// A point in a stream. Recording it again moves it.
class Event {
 public:
  void record(Stream& stream);
  /// Blocks the calling thread. Returns at once if the event was never recorded.
  void wait();
  /// Makes the tasks that follow in `stream` wait.
  void block(Stream& stream);
  bool is_done();
  /// Returns when the stream came to this point. Waits for it.
  Clock::time_point time();

 private:
  struct Point {
    Stream* stream = nullptr;
    std::uint64_t ticket = 0;
    std::shared_ptr<Clock::time_point> time;  // written by the stream
  };
  Point point();

  std::mutex mutex_;
  Point point_;
};

/// Returns the number of devices: FAR_DEVICES in the environment, 2 by default.
int device_count();
/// Returns and sets the calling thread's device.
int current_device();
void set_current_device(int device);

constexpr int kStreams = 4;  // per device; number 0 is the default stream
Stream& stream_of(int device, int number);
/// Returns and sets the calling thread's stream of a device.
Stream& current_stream(int device);
void set_current_stream(int device, int number);
/// Returns a stream other than the default one. Calls take the streams in turn.
Stream& next_stream(int device);
/// Blocks until all streams of a device are idle.
void synchronize(int device);

/// A block of device memory. It belongs to the stream that was current at its allocation.
struct Block {
  int device = 0;
  std::size_t bytes = 0;  // rounded up
  void* address = nullptr;
  Stream* stream = nullptr;
  std::vector<Stream*> users;  // other streams that use it (record_stream)
};
Block* allocate(std::size_t bytes);
/// Frees a block once its streams have done the work that is enqueued at the call.
void release(Block* block);
/// Returns the bytes in blocks that aren't released.
std::size_t allocated_bytes(int device);

/// Returns the address at which the device itself accesses the byte at a device address.
/// Throws std::out_of_range if the address isn't a device address.
void* view_of(const void* address);
/// Returns the device that an address belongs to, or -1.
int device_of(const void* address);

/// Host memory that tasks may access while the host continues.
void* allocate_pinned(std::size_t bytes);
void release_pinned(void* address);
bool is_pinned(const void* address);

}  // namespace far_device
