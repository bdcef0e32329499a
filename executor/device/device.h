// Where a stage lives: memory, copies, an in-order queue. What runs on a device reaches its memory
// through the queue alone; host pointers into it occur in cpu.cpp and far.cpp, nowhere else.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bfloat16.h"
#include "base/dtype.h"
#include "executor/device/event.h"
#include "ops/kernel.h"
#include "ops/tensor_kernels.h"

namespace hetu {

class FarMemory;

/// From an address on the device to one that a kernel can use while it runs. Only work that a queue
/// runs is given one.
class Reach {
 public:
  explicit Reach(const FarMemory* far) : far_(far) {}
  template <class T>
  T* operator()(T* address) const {
    if (far_ == nullptr || address == nullptr) return address;
    return static_cast<T*>(const_cast<void*>(reached(address)));
  }
  /// Whether host code, too, can read there: of "far" alone.
  bool is_readable() const { return far_ != nullptr; }

 private:
  const void* reached(const void* address) const;

  const FarMemory* far_;
};

/// Does what it is given, one after the other. Any thread may give it work; what it is given
/// refers to memory that must stay until an event behind it.
class Queue {
 public:
  virtual ~Queue() = default;

  /// `work(reach)`: a kernel with its arguments. All that it captures is copied unless the device
  /// computes at once, on this thread.
  template <class Work>
  void run(const Work& work) {
    if (at_once_)
      work(Reach(nullptr));
    else
      push(std::function<void(Reach)>(work));
  }
  /// Whether work is done when the call that gives it returns.
  bool at_once() const { return at_once_; }
  /// From place to place on the device; equal places are left alone.
  void copy(void* to, const void* from, std::int64_t bytes);
  /// From host memory and back; it must stay as it is until an event behind it.
  void upload(void* to, const void* from_host, std::int64_t bytes);
  void download(void* to_host, const void* from, std::int64_t bytes);
  /// The moment when all that it was given so far is done.
  virtual Event record() = 0;
  /// How far it is given work, for another queue of its device; null: all of it is done.
  using Mark = std::shared_ptr<void>;
  virtual Mark mark() { return nullptr; }
  /// What it is given from here on begins once `mark` is reached. Not in what repeat() is given.
  virtual void after(const Mark& /*mark*/) {}
  /// Waits until the queue is idle and forgets a failure, so that work given from here on runs
  /// again. Without this call, each event after a failure reports that failure. A device that
  /// failed for good reports it again at the next event.
  virtual void recover() {}
  /// Gives it what `give` gives it, as one: the second call with a key records it, and later ones
  /// run the record again and do not call `give`, which must give the same then but for what work
  /// reads in the device's memory. Returns whether it was so. Where nothing is recorded, or this
  /// cannot be, `give` is called. Nothing may be waited for, nor any moment recorded, in `give`.
  virtual bool repeat(const std::string& /*key*/, const std::function<void()>& give) {
    give();
    return false;
  }
  /// Whether repeat() records; and how often it has run a record again.
  virtual bool records() const { return false; }
  virtual std::int64_t repeated() const { return 0; }
  /// What NCCL calls its stream: a cudaStream_t; null: not for NCCL. Of "far" the queue itself, for
  /// what stands in for NCCL in tests.
  virtual void* stream() { return nullptr; }
  /// What this thread asks CUDA's libraries for from here on goes to the queue's card.
  virtual void take_thread() {}

 protected:
  explicit Queue(bool at_once) : at_once_(at_once) {}
  virtual void push(std::function<void(Reach)> work) = 0;
  /// Which of the two places is on the device.
  enum class Way { Within, ToDevice, ToHost };
  /// bytes > 0. Here: by host code, with what the queue can reach.
  virtual void move(void* to, const void* from, std::int64_t bytes, Way way);

 private:
  const bool at_once_;
};

class Device {
 public:
  virtual ~Device() = default;

  /// "cpu", "cuda", "far".
  virtual const char* name() const = 0;
  /// True if host code may use its addresses once an event has come: messages and gradient sums
  /// then lie where kernels leave them. False: they are copied to and from host memory.
  virtual bool in_host_memory() const = 0;
  virtual Queue& queue() = 0;
  /// For what comes from host memory beside queue(), with which marks keep it in order; that queue
  /// itself where work is done at once.
  virtual Queue& uploads() { return queue(); }
  /// Arithmetic on whole tensors; runs on this device's queue.
  virtual const TensorKernels& kernels() const = 0;
  /// A queue of its own, in order in itself and beside queue(), for messages between memories of
  /// devices; its addresses are this device's, which must outlive it. Null: none, its messages go
  /// through host memory.
  virtual std::unique_ptr<Queue> open_messages() { return nullptr; }
  /// Names what it computes on among all processes, so that two that have one GPU know it; "" of
  /// what no two can share.
  virtual std::string card() const { return {}; }
  /// Products of float32 may from now on round their operands to TF32 (11 bits), which a GPU's
  /// matrix units multiply; of no meaning where there are none.
  virtual void use_tf32() {}

  struct Free {
    Device* device = nullptr;
    void operator()(std::byte* memory) const { device->release(memory); }
  };
  using Memory = std::unique_ptr<std::byte, Free>;
  /// Zeroed, aligned to 64 bytes; null if there is not so much.
  Memory alloc(std::int64_t bytes) { return Memory(take(bytes), Free{this}); }

 protected:
  virtual std::byte* take(std::int64_t bytes) = 0;
  virtual void release(std::byte* memory) = 0;
};

/// A kind of device. Stages are compiled for it before, and without, one being opened.
struct Backend {
  const char* name;
  std::unique_ptr<Device> (*open)();
  PrepareKernel prepare;                   ///< the kernels of a stage
  FactorScratch factor_scratch = nullptr;  ///< of its TensorKernels; null: it has no such kernels
  bool uploads = false;                    ///< its memory is not the host's
};

/// "cpu": this process's memory and threads; work is done when the call that gives it returns.
/// "far": for tests of what runs on any device: its addresses mean nothing to the host (reading one
/// is a segmentation fault), its queue is a thread, kernels are the CPU's. Work on it is done by as
/// many threads as OpenMP would use where it is opened. "cuda": one NVIDIA GPU; work is launched by
/// the call that gives it and done later. Throws InvalidArgument, naming the known.
const Backend& backend(std::string_view name);

/// One of that kind. Throws Unsupported where cuda_problem() says why.
std::unique_ptr<Device> open_device(std::string_view name);

/// Why this process can't compute on "cuda"; empty if it can. Asked of the driver once.
std::string cuda_problem();

/// The names of all back ends, built or not.
std::vector<const char*> device_names();

/// A tensor on a device, dense: float32 at `data`; or bfloat16 at `narrow`, which is float32 to
/// whoever reads it and is rounded to the nearest where it is written.
struct DeviceSpan {
  float* data = nullptr;
  std::int64_t elements = 0;
  Device* device = nullptr;
  BFloat16* narrow = nullptr;  ///< not null: there is no `data`

  DType dtype() const { return narrow != nullptr ? DType::BFloat16 : DType::Float32; }
  std::int64_t bytes() const { return elements * dtype_bytes(dtype()); }
  /// `count` of its elements, from `begin` on.
  DeviceSpan part(std::int64_t begin, std::int64_t count) const {
    if (narrow != nullptr) return {nullptr, count, device, narrow + begin};
    return {data + begin, count, device};
  }
  /// Its values once all that the device was given is done. Blocks, like the next two.
  void read(float* to) const;
  std::vector<float> values() const;
  void write(const float* from) const;
  /// += `from`, in host memory. Of float32.
  void add(const float* from) const;
  /// Its values as host code can read them: in place, or else in `room`. The former hold until the
  /// device is given work.
  const float* host(std::vector<float>& room) const;
};

/// A tensor in this process's memory, which must outlive the span.
DeviceSpan host_span(float* data, std::int64_t elements);

}  // namespace hetu
