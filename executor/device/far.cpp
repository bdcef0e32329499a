// A device for tests on machines without an accelerator. It detects code that wouldn't work on a
// GPU: its addresses are unmapped, its queue is a thread, and its events come later. Each
// allocation has two ranges of the same size. The far one has no access rights, and its addresses
// are handed out. The real one holds the data, and AddressMap translates to it.
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <thread>

#include "base/error.h"
#include "executor/device/backends.h"
#include "executor/device/device.h"
#include "executor/device/far_memory.h"
#include "executor/device/threads.h"

namespace hetu {
namespace {

constexpr std::int64_t kPage = 4096;

class FarQueue final : public Queue {
 public:
  explicit FarQueue(const FarMemory& memory)
      : Queue(/*at_once=*/false), memory_(memory), thread_([this, n = thread_count()] {
          set_thread_count(n);
          serve();
        }) {}
  ~FarQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void* stream() override { return static_cast<Queue*>(this); }

  Mark mark() override { return std::make_shared<Event>(record()); }
  // Not by push(): waits must not become part of a record.
  void after(const Mark& mark) override {
    if (mark)
      give({[event = std::static_pointer_cast<Event>(mark)](AddressMap) { event->wait(); },
            nullptr});
  }

  // Behaves as a CUDA graph: a record keeps the arguments that the work had when it was recorded.
  bool repeat(const std::string& key, const std::function<void()>& give) override {
    const auto [at, first] = recorded_.try_emplace(key);
    Record& record = at->second;
    if (first || record.work.empty()) {
      recording_ = first ? nullptr : &record;
      recorder_ = std::this_thread::get_id();
      give();
      recording_ = nullptr;
      return false;
    }
    for (const auto& work : record.work) this->give({work, nullptr});
    ++repeated_;
    return true;
  }
  bool records() const override { return true; }
  std::int64_t repeated() const override { return repeated_; }

  Event record() override {
    auto coming = std::make_shared<Event::Coming>();
    give({{}, coming});
    return Event(std::move(coming));
  }

  void recover() override {
    recording_ = nullptr;
    auto coming = std::make_shared<Event::Coming>();
    give({{}, coming, /*recovers=*/true});
    Event(std::move(coming)).wait();
  }

 private:
  struct Task {
    std::function<void(AddressMap)> work;
    std::shared_ptr<Event::Coming> event;  // in place of work
    bool recovers = false;                 // clears the failure before the event
  };

  void push(std::function<void(AddressMap)> work) override {
    if (recording_ != nullptr && recorder_ == std::this_thread::get_id())
      recording_.load()->work.push_back(work);
    give({std::move(work), nullptr});
  }

  void give(Task task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

  // Runs tasks in order. After a failure nothing more is computed, and every later event reports
  // the failure.
  void serve() {
    std::exception_ptr error;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      if (task.recovers) error = nullptr;
      if (task.event) {
        task.event->complete(std::chrono::steady_clock::now().time_since_epoch().count(), error);
      } else if (!error) {
        try {
          task.work(AddressMap(&memory_));
        } catch (...) {
          error = std::current_exception();
        }
      }
      lock.lock();
    }
  }

  struct Record {
    std::vector<std::function<void(AddressMap)>> work;
  };

  const FarMemory& memory_;
  // Used by the thread that calls repeat(), as are the next three.
  std::map<std::string, Record> recorded_;
  std::atomic<Record*> recording_ = nullptr;
  std::atomic<std::thread::id> recorder_;
  std::int64_t repeated_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool stop_ = false;
  std::thread thread_;
};

class Far final : public Device {
 public:
  const char* name() const override { return "far"; }
  bool in_host_memory() const override { return false; }
  Queue& queue() override { return queue_; }
  Queue& uploads() override { return uploads_; }
  const TensorKernels& kernels() const override { return cpu_tensor_kernels(); }
  std::unique_ptr<Queue> open_messages() override { return std::make_unique<FarQueue>(memory_); }

 private:
  std::byte* take(std::int64_t bytes) override { return memory_.take(bytes); }
  // Releases the memory after earlier work, which may still use it.
  void release(std::byte* address) override {
    queue_.run([this, address](AddressMap) { memory_.release(address); });
  }

  FarMemory memory_;
  FarQueue queue_{memory_};
  FarQueue uploads_{memory_};
};

}  // namespace

const void* AddressMap::to_kernel_address(const void* address) const {
  return far_->to_kernel_address(address);
}

std::byte* FarMemory::take(std::int64_t bytes) {
  const std::int64_t whole = (bytes / kPage + 1) * kPage;
  const auto size = static_cast<std::size_t>(whole);
  void* const far =
      mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (far == MAP_FAILED) return nullptr;
  void* const real = std::aligned_alloc(kPage, size);
  if (real == nullptr) {
    munmap(far, size);
    return nullptr;
  }
  std::memset(real, 0, size);
  const std::lock_guard lock(mutex_);
  ranges_[static_cast<const std::byte*>(far)] = {static_cast<std::byte*>(real), whole};
  return static_cast<std::byte*>(far);
}

void FarMemory::release(std::byte* address) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(address);
  if (found == ranges_.end()) return;
  std::free(found->second.real);
  munmap(address, static_cast<std::size_t>(found->second.bytes));
  ranges_.erase(found);
}

FarMemory::~FarMemory() {
  while (!ranges_.empty()) release(const_cast<std::byte*>(ranges_.begin()->first));
}

const void* FarMemory::to_kernel_address(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  const std::lock_guard lock(mutex_);
  auto range = ranges_.upper_bound(at);
  if (range != ranges_.begin() && at < (--range)->first + range->second.bytes)
    return range->second.real + (at - range->first);
  fail(Code::Internal, "a host address was given to a kernel of the device 'far'");
}

std::unique_ptr<Device> open_far() { return std::make_unique<Far>(); }

}  // namespace hetu
