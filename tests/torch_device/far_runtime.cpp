#include "tests/torch_device/far_runtime.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace far_device {
namespace {

constexpr std::size_t kMemory = std::size_t{16} << 30;  // addresses per device; pages come on use
constexpr std::size_t kGrain = 512;                     // block sizes are multiples of it
constexpr int kPoison = 0xff;

int number_from(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

std::chrono::milliseconds delay() {
  static const std::chrono::milliseconds found(number_from("FAR_DELAY_MS", 500));
  return found;
}

char* reserve(int protection) {
  void* const found =
      ::mmap(nullptr, kMemory, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) throw std::bad_alloc();
  return static_cast<char*>(found);
}

// The memory of one device. Freed blocks are reused only for requests of the same size.
struct Memory {
  char* const addresses = reserve(PROT_NONE);
  char* const view = reserve(PROT_READ | PROT_WRITE);
  std::mutex mutex;
  std::map<std::size_t, std::vector<std::size_t>> free;  // offsets, by size
  std::size_t used = 0;                                  // offsets from here on are unused
  std::size_t allocated = 0;

  bool contains(const void* address) const {
    const auto* const at = static_cast<const char*>(address);
    return at >= addresses && at < addresses + kMemory;
  }
};

// Streams and memory are never destroyed: threads use them until the process ends.
struct Device {
  Memory memory;
  std::vector<std::unique_ptr<Stream>> streams;
  std::atomic<int> turn{0};
};

std::vector<Device*>& devices() {
  static auto* const all = [] {
    auto* const made = new std::vector<Device*>;
    for (int d = 0; d < device_count(); ++d) {
      made->push_back(new Device);
      for (int s = 0; s < kStreams; ++s)
        made->back()->streams.push_back(std::make_unique<Stream>(d, s));
    }
    return made;
  }();
  return *all;
}

Device& device_at(int number) {
  if (number < 0 || number >= device_count())
    throw std::out_of_range("there is no device far:" + std::to_string(number) + "; there are " +
                            std::to_string(device_count()));
  return *devices()[static_cast<std::size_t>(number)];
}

thread_local int this_device = 0;
thread_local std::map<int, int> this_stream;  // number, by device

std::mutex pinned_mutex;
std::map<const char*, std::size_t>& pinned() {
  static auto* const all = new std::map<const char*, std::size_t>;
  return *all;
}

}  // namespace

Stream::Stream(int device, int number) : device_(device), number_(number) {
  std::thread([this] { run(); }).detach();
}

std::uint64_t Stream::enqueue(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back({std::move(work), Clock::now() + delay()});
  changed_.notify_all();
  return ++enqueued_;
}

void Stream::wait(std::uint64_t ticket) {
  std::unique_lock lock(mutex_);
  if (ticket > urgent_) urgent_ = ticket;
  changed_.notify_all();
  changed_.wait(lock, [&] { return done_ >= ticket; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

bool Stream::is_done(std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  return done_ >= ticket;
}

std::uint64_t Stream::last_ticket() {
  const std::lock_guard lock(mutex_);
  return enqueued_;
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !tasks_.empty(); });
    changed_.wait_until(lock, tasks_.front().earliest, [&] { return urgent_ > done_; });
    {
      const Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      try {
        task.work();
      } catch (...) {
        const std::lock_guard again(mutex_);
        if (!error_) error_ = std::current_exception();
      }
    }  // the task is destroyed without the lock: it may release memory
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

void Event::record(Stream& stream) {
  auto time = std::make_shared<Clock::time_point>();
  const std::uint64_t ticket = stream.enqueue([time] { *time = Clock::now(); });
  const std::lock_guard lock(mutex_);
  point_ = {&stream, ticket, std::move(time)};
}

Event::Point Event::point() {
  const std::lock_guard lock(mutex_);
  return point_;
}

void Event::wait() {
  const Point at = point();
  if (at.stream) at.stream->wait(at.ticket);
}

void Event::block(Stream& stream) {
  const Point at = point();
  if (at.stream && at.stream != &stream) stream.enqueue([at] { at.stream->wait(at.ticket); });
}

bool Event::is_done() {
  const Point at = point();
  return !at.stream || at.stream->is_done(at.ticket);
}

Clock::time_point Event::time() {
  const Point at = point();
  if (!at.stream) throw std::logic_error("the event was never recorded");
  at.stream->wait(at.ticket);
  return *at.time;
}

int device_count() {
  static const int found = number_from("FAR_DEVICES", 2);
  return found;
}

int current_device() { return this_device; }

void set_current_device(int device) {
  device_at(device);
  this_device = device;
}

Stream& stream_of(int device, int number) {
  return *device_at(device).streams.at(static_cast<std::size_t>(number));
}

Stream& current_stream(int device) { return stream_of(device, this_stream[device]); }

void set_current_stream(int device, int number) {
  stream_of(device, number);
  this_stream[device] = number;
}

Stream& next_stream(int device) {
  return stream_of(device, 1 + device_at(device).turn++ % (kStreams - 1));
}

void synchronize(int device) {
  for (const auto& stream : device_at(device).streams) stream->wait();
}

Block* allocate(std::size_t bytes) {
  const int device = this_device;
  Memory& memory = device_at(device).memory;
  auto* const block = new Block;
  block->device = device;
  block->bytes = (bytes + kGrain - 1) / kGrain * kGrain;
  block->stream = &current_stream(device);
  const std::lock_guard lock(memory.mutex);
  memory.allocated += block->bytes;
  std::vector<std::size_t>& free = memory.free[block->bytes];
  if (!free.empty()) {
    block->address = memory.addresses + free.back();
    free.pop_back();
    return block;
  }
  if (memory.used + block->bytes > kMemory) {
    delete block;
    throw std::bad_alloc();
  }
  block->address = memory.addresses + memory.used;
  std::memset(memory.view + memory.used, kPoison, block->bytes);
  memory.used += block->bytes;
  return block;
}

void release(Block* block) {
  std::vector<std::pair<Stream*, std::uint64_t>> users;
  for (Stream* const user : block->users) users.emplace_back(user, user->last_ticket());
  Memory& memory = device_at(block->device).memory;
  {
    const std::lock_guard lock(memory.mutex);
    memory.allocated -= block->bytes;
  }
  block->stream->enqueue([block, users, &memory] {
    for (const auto& [user, ticket] : users) user->wait(ticket);
    std::memset(view_of(block->address), kPoison, block->bytes);
    const std::lock_guard lock(memory.mutex);
    const auto offset = static_cast<char*>(block->address) - memory.addresses;
    memory.free[block->bytes].push_back(static_cast<std::size_t>(offset));
    delete block;
  });
}

std::size_t allocated_bytes(int device) {
  Memory& memory = device_at(device).memory;
  const std::lock_guard lock(memory.mutex);
  return memory.allocated;
}

void* view_of(const void* address) {
  const int device = device_of(address);
  if (device < 0) throw std::out_of_range("an address outside of the memory of far devices");
  Memory& memory = device_at(device).memory;
  return memory.view + (static_cast<const char*>(address) - memory.addresses);
}

int device_of(const void* address) {
  for (int d = 0; d < device_count(); ++d)
    if (device_at(d).memory.contains(address)) return d;
  return -1;
}

void* allocate_pinned(std::size_t bytes) {
  const std::size_t rounded = (bytes + kGrain - 1) / kGrain * kGrain;
  auto* const made = static_cast<char*>(std::aligned_alloc(kGrain, rounded));
  if (!made) throw std::bad_alloc();
  std::memset(made, kPoison, rounded);
  const std::lock_guard lock(pinned_mutex);
  pinned()[made] = rounded;
  return made;
}

void release_pinned(void* address) {
  {
    const std::lock_guard lock(pinned_mutex);
    const auto found = pinned().find(static_cast<char*>(address));
    std::memset(address, kPoison, found->second);
    pinned().erase(found);
  }
  std::free(address);
}

bool is_pinned(const void* address) {
  const auto* const at = static_cast<const char*>(address);
  const std::lock_guard lock(pinned_mutex);
  auto next = pinned().upper_bound(at);
  if (next == pinned().begin()) return false;
  --next;
  return at < next->first + next->second;
}

}  // namespace far_device
