// An NVIDIA GPU. Memory comes from cudaMalloc, and all kernels run in order on one stream. A thread
// per queue waits for events, so that their times are known without polling. Uploads pass through
// pinned buffers and overlap with kernels.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "config/env.h"
#include "executor/device/backends.h"
#include "executor/device/cuda_graphs.h"
#include "executor/device/cuda_staging.h"
#include "executor/device/device.h"
#include "executor/device/threads.h"
#include "ops/cuda/compute_capability.h"
#include "ops/cuda/gpu/check.h"
#include "ops/cuda/registry.h"
#include "ops/cuda/work.h"

namespace hetu {
namespace {

using cuda::check;
using cuda::let_go;
using cuda::make_event;
using cuda::OwnedEvent;

/// Returns the number of this worker's GPU among those that CUDA_VISIBLE_DEVICES shows. Workers of
/// a host take them in turn.
int gpu_number() {
  static const int chosen = [] {
    int gpus = 0;
    check(cudaGetDeviceCount(&gpus), "counting the GPUs");
    const int one = env().local_worker % std::max(gpus, 1);
    cudaDeviceProp about;
    check(cudaGetDeviceProperties(&about, one), "reading the properties of the GPU");
    log(Level::Info, "device cuda: GPU {} of {}, {}, {} MiB", one, gpus, about.name,
        about.totalGlobalMem >> 20);
    return one;
  }();
  return chosen;
}

void use_gpu() { check(cudaSetDevice(gpu_number()), "selecting the GPU"); }

class CudaQueue final : public Queue {
 public:
  /// The use of a queue: all kernels; uploads beside them; or messages and their sums, which have
  /// the highest priority.
  enum class Use { Compute, Uploads, Messages };

  explicit CudaQueue(Use use) : Queue(/*at_once=*/false) {
    use_gpu();
    int least = 0, most = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &most), "reading the priorities of streams");
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                       use == Use::Messages ? most : least),
          "creating a stream");
    kernel_context_.stream = stream;
    check(cudaHostAlloc(reinterpret_cast<void**>(&fault_), sizeof(cuda::Fault),
                        cudaHostAllocMapped | cudaHostAllocPortable),
          "allocating pinned memory");
    *fault_ = cuda::Fault();
    check(cudaHostGetDevicePointer(reinterpret_cast<void**>(&kernel_context_.fault), fault_, 0),
          "mapping pinned memory");
    if (use == Use::Compute) prepare_products();
    if (use != Use::Messages) staging_ = std::make_unique<cuda::Staging>();
    downloads_ = std::make_unique<cuda::Downloads>();
    thread_ = std::thread([this] { serve(); });
  }

  ~CudaQueue() override {
    {
      const std::lock_guard lock(waiting_mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
    let_go(cudaStreamSynchronize(cuda_stream()));
    graphs_.clear();
    if (kernel_context_.multiplier != nullptr)
      static_cast<void>(cublasLtDestroy(static_cast<cublasLtHandle_t>(kernel_context_.multiplier)));
    kernel_context_.convolver.reset();
    staging_.reset();
    downloads_.reset();
    let_go(cudaFree(kernel_context_.workspace));
    let_go(cudaFreeHost(fault_));
    let_go(cudaStreamDestroy(cuda_stream()));
  }

  void* stream() override { return kernel_context_.stream; }
  void take_thread() override { use_gpu(); }

  Event record() override { return record(/*recovers=*/false); }

  void recover() override { record(/*recovers=*/true).wait(); }

  Mark mark() override {
    const std::lock_guard lock(mutex_);
    use_gpu();
    std::shared_ptr<std::remove_pointer_t<cudaEvent_t>> event = make_event();
    check(cudaEventRecord(event.get(), cuda_stream()), "recording an event");
    return event;
  }
  void after(const Mark& mark) override {
    if (!mark) return;
    const std::lock_guard lock(mutex_);
    use_gpu();
    check(cudaStreamWaitEvent(cuda_stream(), static_cast<cudaEvent_t>(mark.get()), 0),
          "waiting for an event");
  }

  bool repeat(const std::string& key, const std::function<void()>& give) override {
    const std::lock_guard lock(mutex_);
    use_gpu();
    repeats_ = true;
    const bool repeated = graphs_.repeat(key, give, cuda_stream());
    repeats_ = false;
    return repeated;
  }
  bool records() const override { return true; }
  std::int64_t repeated() const override { return graphs_.repeated(); }

  /// Enables TF32. Call it before the first product.
  void use_tf32() { kernel_context_.tf32 = true; }

  /// Zeroes newly allocated memory, after earlier work.
  void clear(void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    check(cudaMemsetAsync(memory, 0, bytes, cuda_stream()), "clearing memory");
  }

 private:
  struct Waiting {
    OwnedEvent event;
    std::shared_ptr<Event::Coming> coming;
    std::vector<cuda::Downloads::Piece> downloads;
    bool recovers = false;  // clears the failure once the event is reached
  };

  Event record(bool recovers) {
    auto coming = std::make_shared<Event::Coming>();
    const std::lock_guard lock(mutex_);
    use_gpu();
    OwnedEvent event = spare_event();
    check(cudaEventRecord(event.get(), cuda_stream()), "recording an event");
    {
      const std::lock_guard waiting(waiting_mutex_);
      waiting_.push_back({std::move(event), coming, downloads_->taken(), recovers});
    }
    changed_.notify_one();
    return Event(std::move(coming));
  }

  cudaStream_t cuda_stream() const { return static_cast<cudaStream_t>(kernel_context_.stream); }

  void prepare_products() {
    check(cudaMalloc(&kernel_context_.workspace, static_cast<std::size_t>(cuda::kWorkspaceBytes)),
          "allocating the workspace");
    cublasLtHandle_t multiplier = nullptr;
    check(cublasLtCreate(&multiplier), "creating the handle");
    kernel_context_.multiplier = multiplier;
  }

  // Launches the work immediately, on the calling thread. Kernels find stream and workspace in the
  // kernel context.
  void push(std::function<void(AddressMap)> work) override {
    const std::lock_guard lock(mutex_);
    use_gpu();
    const cuda::KernelContext* const before = cuda::set_kernel_context(&kernel_context_);
    try {
      work(AddressMap(nullptr));
    } catch (...) {
      cuda::set_kernel_context(before);
      throw;
    }
    cuda::set_kernel_context(before);
  }

  // A CUDA copy to host memory that isn't pinned returns only when the bytes have arrived. Small
  // downloads therefore pass through pinned memory, except within repeat(): a replayed graph would
  // write that memory again.
  void move(void* to, const void* from, std::int64_t bytes, CopyDirection direction) override {
    const std::lock_guard lock(mutex_);
    use_gpu();
    const auto size = static_cast<std::size_t>(bytes);
    HETU_ASSERT(direction != CopyDirection::ToDevice || staging_);
    if (direction == CopyDirection::ToDevice)
      staging_->upload(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes,
                       cuda_stream());
    else if (direction == CopyDirection::Within || repeats_ ||
             !downloads_->take(static_cast<std::byte*>(to), from, size, cuda_stream()))
      check(cudaMemcpyAsync(to, from, size,
                            direction == CopyDirection::Within ? cudaMemcpyDeviceToDevice
                                                               : cudaMemcpyDeviceToHost,
                            cuda_stream()),
            "copying memory");
  }

  OwnedEvent spare_event() {
    const std::lock_guard waiting(waiting_mutex_);
    if (spare_.empty()) return make_event();
    OwnedEvent event = std::move(spare_.back());
    spare_.pop_back();
    return event;
  }

  // Completes events in order. After a failure, every later event reports it.
  void serve() {
    std::exception_ptr error;
    std::unique_lock lock(waiting_mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      Waiting next = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      try {
        use_gpu();
        check(cudaEventSynchronize(next.event.get()), "running a kernel");
        if (next.recovers) {
          error = nullptr;
          *fault_ = cuda::Fault();
        }
        look_for_fault();
      } catch (...) {
        if (!error) error = std::current_exception();
      }
      downloads_->land(next.downloads, !error);
      next.coming->complete(std::chrono::steady_clock::now().time_since_epoch().count(), error);
      lock.lock();
      spare_.push_back(std::move(next.event));
    }
  }

  // Throws the error of a kernel that found an index out of range. The CPU's kernels check indices
  // before they start.
  void look_for_fault() const {
    if (fault_->taken == 0) return;
    fail(Code::InvalidArgument, "'{}': index {} at position {} is outside [0, {})", fault_->node,
         fault_->value, fault_->position, fault_->below);
  }

  cuda::KernelContext kernel_context_;
  cuda::Fault* fault_ = nullptr;  // mapped host memory that kernels write to
  std::unique_ptr<cuda::Staging> staging_;
  std::unique_ptr<cuda::Downloads> downloads_;
  bool repeats_ = false;  // within repeat()
  // Serializes work given to the queue; recursive because repeat() gives work while it holds the
  // mutex.
  std::recursive_mutex mutex_;
  cuda::Graphs graphs_;

  std::mutex waiting_mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  std::vector<OwnedEvent> spare_;
  bool stop_ = false;
  std::thread thread_;
};

class Cuda final : public Device {
 public:
  const char* name() const override { return "cuda"; }
  bool in_host_memory() const override { return false; }
  Queue& queue() override { return queue_; }
  Queue& uploads() override { return uploads_; }
  const TensorKernels& kernels() const override { return cuda_tensor_kernels(); }
  void use_tf32() override { queue_.use_tf32(); }
  std::unique_ptr<Queue> open_messages() override {
    return std::make_unique<CudaQueue>(CudaQueue::Use::Messages);
  }
  std::string gpu_id() const override {
    use_gpu();
    cudaDeviceProp about;
    check(cudaGetDeviceProperties(&about, gpu_number()), "reading the properties of the GPU");
    std::string name = "GPU-";
    for (const char byte : about.uuid.bytes)
      name += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return name;
  }

 private:
  std::byte* take(std::int64_t bytes) override {
    use_gpu();
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, size);
    if (status == cudaErrorMemoryAllocation) {
      let_go(cudaGetLastError());  // reported by returning null
      return nullptr;
    }
    check(status, "allocating memory");
    queue_.clear(memory, size);
    return static_cast<std::byte*>(memory);
  }
  // cudaFree waits for earlier work.
  void release(std::byte* memory) override { let_go(cudaFree(memory)); }

  CudaQueue queue_{CudaQueue::Use::Compute};
  CudaQueue uploads_{CudaQueue::Use::Uploads};
};

std::string in_words(int version) {  // CUDA's version numbers: 13000 is 13.0
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// Returns the reason why this worker's GPU can't be used; "" if it can.
std::string ask_driver() {
  int gpus = 0, driver = 0;
  const cudaError_t status = cudaGetDeviceCount(&gpus);
  if (status == cudaErrorInsufficientDriver) {
    check(cudaDriverGetVersion(&driver), "reading the version of the driver");
    if (driver == 0) return "no GPU was found: this machine has no NVIDIA driver";
    return fmt::format("the NVIDIA driver supports CUDA {}, but this build needs {}.0 or later",
                       in_words(driver), CUDART_VERSION / 1000);
  }
  if (status != cudaSuccess)
    return fmt::format("no GPU that CUDA can use was found: {}", cudaGetErrorString(status));
  if (gpus == 0) return "no GPU was found";
  cudaDeviceProp about;
  check(cudaGetDeviceProperties(&about, env().local_worker % gpus),
        "reading the properties of the GPU");
  const int capability = about.major * 10 + about.minor;
  if (cuda::has_code_for(capability, cuda::compiled_for())) return "";
  if (capability < cuda::kLeastCapability)
    return fmt::format("the GPU {} has compute capability {}, but Hetu needs {} or later",
                       about.name, capability, cuda::kLeastCapability);
  return fmt::format(
      "the GPU {} has compute capability {}, but this build's kernels are for {}; configure with "
      "-DHETU_CUDA_ARCHITECTURES={}",
      about.name, capability, cuda::compiled_for(), capability);
}

}  // namespace

std::string cuda_problem() {
  static const std::string problem = ask_driver();
  return problem;
}

std::unique_ptr<Device> open_cuda() {
  const std::string problem = cuda_problem();
  if (!problem.empty()) fail(Code::Unsupported, "--device cuda: {}; use --device cpu", problem);
  return std::make_unique<Cuda>();
}

PreparedKernel prepare_on_cuda(const KernelDesc& desc, KernelChoice choice) {
  return prepare_cuda(desc, choice);
}

std::int64_t factor_scratch_on_cuda(std::int64_t inputs, std::int64_t outputs) {
  return cuda_tensor_kernels().factor_scratch(inputs, outputs);
}

}  // namespace hetu
