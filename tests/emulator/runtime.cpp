// The functions of the CUDA runtime that Hetu and code from nvcc call, implemented on the emulated
// GPU.
// Source: NVIDIA, CUDA Runtime API 13.0.
#include "tests/emulator/runtime.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/emulator/card_functions.h"
#include "tests/emulator/fat_binary.h"

namespace hetu::emulator {

Card& card() {
  static Card* const one = [] {
    auto* const made = new Card;  // until the process ends: destructors of statics use it
    made->eager = std::getenv("EMULATED_CARD_EAGER") != nullptr;
    made->streams[nullptr] = std::make_shared<Stream>(&made->one_at_a_time);
    return made;
  }();
  return *one;
}

void Card::look_for_race(const Stream* me, std::uint64_t number, const char* what,
                         const std::function<bool(const Touch&)>& meets) const {
  for (const auto& [name, other] : streams) {
    const Touch* const found = other.get() == me ? nullptr : other->unordered(meets, number);
    if (found != nullptr)
      throw Problem(fmt::format("{}: it does not wait for another stream's work before it, {}",
                                what, found->what));
  }
}

void Card::give(cudaStream_t to, Work work) {
  const std::shared_ptr<Stream> s = stream(to);
  ++given;
  if ((!work.touches.empty() || work.has_met) && !s->captures())
    work.run = [this, me = s.get(), number = given, work] {
      for (const Touch& touch : work.touches)
        look_for_race(me, number, touch.what,
                      [&](const Touch& other) { return meet(touch, other); });
      work.run();
      if (work.has_met) look_for_race(me, number, "kernel", work.has_met);
    };
  s->give(std::move(work), given);
  if (eager && !s->captures()) s->finish();
}

void check_access(const void* from, std::size_t bytes, const char* what) {
  const auto at = reinterpret_cast<std::uintptr_t>(from);
  const Allocation* const in = card().memory.find(at);
  if (in == nullptr) throw Problem(fmt::format("{}: {} is in no buffer", what, from));
  if (at + bytes > in->begin + in->bytes)
    throw Problem(fmt::format("{}: {} bytes at {} of a buffer of {}", what, bytes, at - in->begin,
                              in->bytes));
}

cudaError_t guarded(const std::function<cudaError_t(Card&)>& f) {
  Card& c = card();
  const std::lock_guard lock(c.one_at_a_time);
  cudaError_t made = c.broken;
  if (made == cudaSuccess) try {
      made = f(c);
    } catch (const Problem& problem) {
      std::fprintf(stderr, "emulated card: %s\n", problem.what());
      made = c.broken = cudaErrorIllegalAddress;
    }
  if (made != cudaSuccess) c.last = made;
  return made;
}

bool may_not_wait(Card& c) {
  bool any = false;
  for (const auto& [name, stream] : c.streams)
    if (stream->forbids_waiting()) {
      stream->break_capture();
      any = true;
    }
  return any;
}

namespace {

bool is_pageable(const Card& c, const void* at) {
  return c.memory.find(reinterpret_cast<std::uintptr_t>(at)) == nullptr;
}

cudaError_t allocate(void** to, std::size_t bytes, Kind kind) {
  return guarded([&](Card& c) {
    if (may_not_wait(c)) return cudaErrorStreamCaptureUnsupported;
    *to = c.memory.allocate(bytes, kind);
    return *to == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

cudaError_t release(void* at, Kind kind) {
  if (at == nullptr) return cudaSuccess;
  return guarded([&](Card& c) {
    const auto streams = c.streams;  // finish() may let others add streams
    for (const auto& [name, stream] : streams) stream->finish();
    return c.memory.free(at, kind) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

/// A copy of a kernel's arguments, which are on the caller's stack.
struct Arguments {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<void*> at;

  Arguments(const Kernel& kernel, void** from) {
    for (const std::size_t size : kernel.module->parameters(kernel.entry)) {
      const auto* const first = static_cast<const std::byte*>(from[bytes.size()]);
      bytes.emplace_back(first, first + size);
    }
    for (auto& one : bytes) at.push_back(one.data());
  }
};

cudaError_t launch(const void* function, dim3 grid, dim3 block, void** arguments,
                   std::size_t shared, cudaStream_t stream) {
  return guarded([&](Card& c) {
    const auto found = c.kernels.find(function);
    if (found == c.kernels.end()) return cudaErrorInvalidDeviceFunction;
    const Kernel& kernel = found->second;
    if (shared > kernel.most_shared || block.x * block.y * block.z > 1024)
      return cudaErrorInvalidValue;
    const auto held = std::make_shared<const Arguments>(kernel, arguments);
    Work work([&c, &kernel, grid, block, shared, held] {
      const Launch how{
          {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared, held->at.data()};
      kernel.module->run(kernel.entry, how, c.memory);
    });
    work.has_met = [&c](const Touch& other) {
      const GlobalMemory& uses = c.memory.uses();
      const auto begin = reinterpret_cast<std::uintptr_t>(other.begin);
      return other.writes ? uses.has_touched(begin, other.bytes)
                          : uses.has_written(begin, other.bytes);
    };
    c.give(stream, std::move(work));
    return cudaSuccess;
  });
}

struct Configuration {
  dim3 grid, block;
  std::size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

constexpr CardFunctions functions = {
    [](const std::function<void()>& f) {
      return guarded([&](Card&) {
               f();
               return cudaSuccess;
             }) == cudaSuccess;
    },
    [] {
      const std::lock_guard lock(card().one_at_a_time);
      return may_not_wait(card());
    },
    [](cudaStream_t stream) {
      const std::lock_guard lock(card().one_at_a_time);
      return card().streams.count(stream) != 0;
    },
    [](cudaStream_t to, Work work) { card().give(to, std::move(work)); },
    [](const std::function<void()>& f) { card().one_at_a_time.apart(f); },
    check_access};

}  // namespace
}  // namespace hetu::emulator

using namespace hetu::emulator;  // NOLINT: what follows has the library's names

// NOLINTBEGIN(bugprone-reserved-identifier,readability-function-size): theirs
extern "C" {

// ---- functions called by nvcc's own code

void** __cudaRegisterFatBinary(void* binary) {
  card().modules.emplace(binary, nullptr);
  auto** const handle = new void*;
  *handle = binary;
  return handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void** handle) { delete handle; }

void __cudaRegisterFunction(void** handle, const char* function, char*, const char* name, int,
                            uint3*, uint3*, dim3*, dim3*, int*) {
  Card& c = card();
  std::unique_ptr<Module>& module = c.modules[*handle];
  if (module == nullptr) module = std::make_unique<Module>(ptx_of(*handle));
  c.kernels[function] = {module.get(), name};
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared,
                                     CUstream_st* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  const Configuration c = configurations.back();
  configurations.pop_back();
  *grid = c.grid;
  *block = c.block;
  *shared = c.shared;
  *static_cast<cudaStream_t*>(stream) = c.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared, cudaStream_t stream) {
  return launch(reinterpret_cast<const void*>(kernel), grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             std::size_t shared, cudaStream_t stream) {
  return launch(function, grid, block, arguments, shared, stream);
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute what, int value) {
  return guarded([&](Card& c) {
    const auto found = c.kernels.find(function);
    if (found == c.kernels.end()) return cudaErrorInvalidDeviceFunction;
    if (what == cudaFuncAttributeMaxDynamicSharedMemorySize) {
      if (value > static_cast<int>(kMostShared)) return cudaErrorInvalidValue;
      found->second.most_shared = static_cast<std::size_t>(value);
    }
    return cudaSuccess;
  });
}

// ---- the GPU

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int number) { return number == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* to, int) {
  *to = cudaDeviceProp();
  std::snprintf(to->name, sizeof to->name, "emulated card");
  // Each process has its own GPU.
  std::snprintf(to->uuid.bytes, sizeof to->uuid.bytes, "%d", static_cast<int>(getpid()));
  to->totalGlobalMem = card().memory.most();
  to->major = 9;
  to->multiProcessorCount = 132;
  to->sharedMemPerBlockOptin = kMostShared;
  to->warpSize = 32;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* most) {
  *least = 0;
  *most = -5;
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    default:
      return "an error of the emulated card";
  }
}
cudaError_t cudaGetLastError() {
  Card& c = card();
  const std::lock_guard lock(c.one_at_a_time);
  return c.broken != cudaSuccess ? c.broken : std::exchange(c.last, cudaSuccess);
}

// ---- memory

cudaError_t cudaMalloc(void** to, std::size_t bytes) { return allocate(to, bytes, Kind::Device); }
cudaError_t cudaFree(void* at) { return release(at, Kind::Device); }
cudaError_t cudaMallocHost(void** to, std::size_t bytes) {
  return allocate(to, bytes, Kind::Pinned);
}
cudaError_t cudaHostAlloc(void** to, std::size_t bytes, unsigned) {
  return allocate(to, bytes, Kind::Pinned);
}
cudaError_t cudaFreeHost(void* at) { return release(at, Kind::Pinned); }
cudaError_t cudaHostGetDevicePointer(void** to, void* of, unsigned) {
  *to = of;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return guarded([&](Card& c) {
    const bool from_card = kind != cudaMemcpyHostToDevice, to_card = kind != cudaMemcpyDeviceToHost;
    if (from_card) check_access(from, bytes, "copy, source");
    if (to_card) check_access(to, bytes, "copy, destination");
    const auto copy = [=] {
      if (from_card) check_access(from, bytes, "copy, source");
      if (to_card) check_access(to, bytes, "copy, destination");
      std::memmove(to, from, bytes);
    };
    if (!from_card && is_pageable(c, from)) {  // the caller may change it at once
      const auto* const first = static_cast<const std::byte*>(from);
      const auto held = std::make_shared<const std::vector<std::byte>>(first, first + bytes);
      const auto copy_held = [=] {
        check_access(to, bytes, "copy, destination");
        std::memcpy(to, held->data(), bytes);
      };
      c.give(stream, Work(copy_held, {{to, bytes, true, "copy, destination"}}));
      return cudaSuccess;
    }
    std::vector<Touch> touches;
    if (from_card) touches.push_back({from, bytes, false, "copy, source"});
    if (to_card) touches.push_back({to, bytes, true, "copy, destination"});
    c.give(stream, Work(copy, touches));
    if (!to_card && is_pageable(c, to)) {
      if (may_not_wait(c)) return cudaErrorStreamCaptureUnsupported;
      std::shared_ptr(c.stream(stream))->finish();
    }
    return cudaSuccess;
  });
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return guarded([&](Card& c) {
    check_access(to, bytes, "memset");
    const auto set = [=] {
      check_access(to, bytes, "memset");
      std::memset(to, value, bytes);
    };
    c.give(stream, Work(set, {{to, bytes, true, "memset"}}));
    return cudaSuccess;
  });
}

/// Wraps dlopen for cuDNN and NCCL, which would look for a real GPU: only the libraries that stand
/// in for them get the emulated one. A library without a stand-in may still be opened by its path.
void* dlopen(const char* name, int flags) {
  using Open = void* (*)(const char*, int);
  static const auto real = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "dlopen"));
  void* const library = real(name, flags);
  if (library == nullptr || name == nullptr) return library;
  if (const auto joins = reinterpret_cast<JoinsCard>(dlsym(library, kJoinsCard))) {
    joins(&functions);
    return library;
  }
  const std::string_view called = name;
  if (called.rfind("libcudnn.so", 0) != 0 && called.rfind("libnccl.so", 0) != 0) return library;
  dlclose(library);
  return real(fmt::format("{} of the emulated card", name).c_str(), flags);  // for dlerror()
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-function-size)
