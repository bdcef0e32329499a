// Devices: memory, copies and an in-order queue. Device memory is accessed only through a queue.
// Host pointers into it occur only in cpu.cpp and far.cpp.
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

/// Converts a device address to an address that a kernel can use while it runs. Only work run by a
/// queue receives one.
class AddressMap {
 public:
  explicit AddressMap(const FarMemory* far) : far_(far) {}
  template <class T>
  T* operator()(T* address) const {
    if (far_ == nullptr || address == nullptr) return address;
    return static_cast<T*>(const_cast<void*>(to_kernel_address(address)));
  }
  /// Returns true if host code may read such addresses, too; only for "far".
  bool is_readable() const { return far_ != nullptr; }

 private:
  const void* to_kernel_address(const void* address) const;

  const FarMemory* far_;
};

/// Runs work in the order in which it is given. Any thread may give work. Memory that the work
/// refers to must stay valid until an event recorded behind it.
class Queue {
 public:
  virtual ~Queue() = default;

  /// Runs `work(addresses)`, a kernel with its arguments. The work is copied with its captures,
  /// unless the device computes at once on this thread.
  template <class Work>
  void run(const Work& work) {
    if (at_once_)
      work(AddressMap(nullptr));
    else
      push(std::function<void(AddressMap)>(work));
  }
  /// Returns true if work is done when the call that gives it returns.
  bool at_once() const { return at_once_; }
  /// Copies within the device. Does nothing if both addresses are equal.
  void copy(void* to, const void* from, std::int64_t bytes);
  /// Copy from and to host memory, which must stay valid and unchanged until an event recorded
  /// behind the copy.
  void upload(void* to, const void* from_host, std::int64_t bytes);
  void download(void* to_host, const void* from, std::int64_t bytes);
  /// Returns the event at which all work given so far is done.
  virtual Event record() = 0;
  /// A point in a queue that another queue of the same device can wait for; null: everything given
  /// so far is done.
  using Mark = std::shared_ptr<void>;
  virtual Mark mark() { return nullptr; }
  /// Makes work given from here on wait until `mark` is reached. Not allowed within
  /// repeat().
  virtual void after(const Mark& /*mark*/) {}
  /// Waits until the queue is idle and clears a failure, so that new work runs again. Without this
  /// call, each event after a failure reports that failure. A device that failed permanently
  /// reports its failure again at the next event.
  virtual void recover() {}
  /// Runs the work that `give` gives as one unit. The second call with a key records the work, and
  /// later calls replay the record without calling `give`. So `give` must give the same work each
  /// time, except for what the work reads in device memory. Returns true if a record was replayed.
  /// A queue that can't record calls `give` each time. Within `give`, the caller must neither wait
  /// nor record events.
  virtual bool repeat(const std::string& /*key*/, const std::function<void()>& give) {
    give();
    return false;
  }
  /// Returns true if repeat() records work. repeated() returns the number of replays.
  virtual bool records() const { return false; }
  virtual std::int64_t repeated() const { return 0; }
  /// Returns NCCL's stream, a cudaStream_t; null: not for NCCL. "far" returns the queue itself, for
  /// the replacement of NCCL in tests.
  virtual void* stream() { return nullptr; }
  /// Makes the calling thread use this queue's GPU in calls of CUDA's libraries.
  virtual void take_thread() {}

 protected:
  explicit Queue(bool at_once) : at_once_(at_once) {}
  virtual void push(std::function<void(AddressMap)> work) = 0;
  /// Direction of a copy.
  enum class CopyDirection { Within, ToDevice, ToHost };
  /// Copies bytes > 0. The default implementation copies with host code on addresses that the
  /// queue's work can use.
  virtual void move(void* to, const void* from, std::int64_t bytes, CopyDirection direction);

 private:
  const bool at_once_;
};

/// A device with its memory and queues.
class Device {
 public:
  virtual ~Device() = default;

  /// Returns "cpu", "cuda" or "far".
  virtual const char* name() const = 0;
  /// Returns true if host code may use device addresses once an event has come. Messages and
  /// gradient sums are then used where kernels leave them. If false, they are copied to and from
  /// host memory.
  virtual bool in_host_memory() const = 0;
  /// Returns the queue that all kernels run on.
  virtual Queue& queue() = 0;
  /// Returns the queue for uploads beside queue(), ordered by marks. It is queue() itself if work
  /// is done at once.
  virtual Queue& uploads() { return queue(); }
  /// Returns the arithmetic on whole tensors, to be run on this device's queue.
  virtual const TensorKernels& kernels() const = 0;
  /// Opens another queue, independent of queue(), for messages between memories of devices. It uses
  /// this device's addresses, and the device must outlive it. Returns null if messages go through
  /// host memory.
  virtual std::unique_ptr<Queue> open_messages() { return nullptr; }
  /// Returns an identifier of the physical device that is the same in all processes, so that two
  /// that share a GPU notice. Empty if the device can't be shared by mistake.
  virtual std::string gpu_id() const { return {}; }
  /// Allows products of float32 to round their operands to TF32 (11 bits), which a GPU's matrix
  /// units multiply. No effect on other devices.
  virtual void use_tf32() {}

  struct Free {
    Device* device = nullptr;
    void operator()(std::byte* memory) const { device->release(memory); }
  };
  using Memory = std::unique_ptr<std::byte, Free>;
  /// Allocates zeroed memory aligned to 64 bytes; returns null if there isn't enough.
  Memory alloc(std::int64_t bytes) { return Memory(take(bytes), Free{this}); }
  /// Allocates like alloc(), but throws Io if there isn't enough. `purpose` names the contents for
  /// the message, such as "the memory of stage 2".
  Memory alloc_for(std::int64_t bytes, std::string_view purpose);

 protected:
  virtual std::byte* take(std::int64_t bytes) = 0;
  virtual void release(std::byte* memory) = 0;
};

/// A kind of device. Stages can be compiled for it without opening a device.
struct Backend {
  const char* name;
  std::unique_ptr<Device> (*open)();
  PrepareKernel prepare;                   ///< prepares the kernels of a stage
  FactorScratch factor_scratch = nullptr;  ///< of its TensorKernels; null: K-FAC is not supported
  bool uploads = false;                    ///< its memory is not the host's
};

/// Returns the back end with this name.
/// "cpu": memory and threads of this process. Work is done when the call that gives it returns.
/// "cuda": one NVIDIA GPU. Work is launched by the call that gives it and completes later.
/// "far": a device for tests of code that must run on any device. Its addresses mean nothing to the
/// host (reading one is a segmentation fault), its queue is a thread, and its kernels are the
/// CPU's. It uses the number of OpenMP threads at the time when it is opened.
/// Throws InvalidArgument, listing the known names.
const Backend& backend(std::string_view name);

/// Opens a device. Throws Unsupported with the reason given by cuda_problem().
std::unique_ptr<Device> open_device(std::string_view name);

/// Returns the reason why this process can't compute on "cuda", or "" if it can. The driver is
/// queried once.
std::string cuda_problem();

/// Returns the names of all back ends, also of those that this build lacks.
std::vector<const char*> device_names();

/// A dense tensor on a device: float32 at `data`, or bfloat16 at `narrow`. A bfloat16 tensor is
/// read as float32, and written values are rounded to the nearest.
struct DeviceSpan {
  float* data = nullptr;
  std::int64_t elements = 0;
  Device* device = nullptr;
  BFloat16* narrow = nullptr;  ///< not null: bfloat16, and `data` is null

  DType dtype() const { return narrow != nullptr ? DType::BFloat16 : DType::Float32; }
  std::int64_t bytes() const { return elements * dtype_bytes(dtype()); }
  /// Returns `count` elements starting at `begin`.
  DeviceSpan part(std::int64_t begin, std::int64_t count) const {
    if (narrow != nullptr) return {nullptr, count, device, narrow + begin};
    return {data + begin, count, device};
  }
  /// Reads the values after all work given to the queue so far. Blocks, as do values() and write().
  void read(float* to) const;
  std::vector<float> values() const;
  void write(const float* from) const;
  /// Adds `from`, in host memory, to a float32 tensor. Blocks.
  void add(const float* from) const;
  /// Returns the values for host code: in place if possible, else copied to `room`. An address in
  /// place is valid until the device is given work.
  const float* host(std::vector<float>& room) const;
};

/// Returns a span of memory in this process. The memory must outlive the span.
DeviceSpan host_span(float* data, std::int64_t elements);

}  // namespace hetu
