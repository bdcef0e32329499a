// The CPU of this process. Work is done at once, by the thread that gives it.
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "executor/device/backends.h"
#include "executor/device/device.h"

namespace hetu {
namespace {

constexpr std::int64_t kAlignment = 64;

class CpuQueue final : public Queue {
 public:
  CpuQueue() : Queue(/*at_once=*/true) {}
  Event record() override {
    return Event(std::chrono::steady_clock::now().time_since_epoch().count());
  }

 private:
  void push(std::function<void(AddressMap)> work) override { work(AddressMap(nullptr)); }
};

class Cpu final : public Device {
 public:
  const char* name() const override { return "cpu"; }
  bool in_host_memory() const override { return true; }
  Queue& queue() override { return queue_; }
  const TensorKernels& kernels() const override { return cpu_tensor_kernels(); }

 private:
  std::byte* take(std::int64_t bytes) override {
    const std::int64_t whole = (bytes / kAlignment + 1) * kAlignment;
    void* memory = std::aligned_alloc(kAlignment, static_cast<std::size_t>(whole));
    if (memory != nullptr) std::memset(memory, 0, static_cast<std::size_t>(whole));
    return static_cast<std::byte*>(memory);
  }
  void release(std::byte* memory) override { std::free(memory); }

  CpuQueue queue_;
};

}  // namespace

std::unique_ptr<Device> open_cpu() { return std::make_unique<Cpu>(); }

}  // namespace hetu
