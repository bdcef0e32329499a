// The context that kernels of ops/cuda run in without a GPU: host memory takes the place of a
// queue's memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ops/cuda/work.h"

namespace hetu::test {

/// Scope guard: kernels of this thread run in its context while it exists.
class HostBench {
 public:
  HostBench()
      : workspace_(std::make_unique_for_overwrite<std::byte[]>(
            static_cast<std::size_t>(cuda::kWorkspaceBytes))) {
    bench_.fault = &fault_;
    bench_.workspace = workspace_.get();
    before_ = cuda::set_bench(&bench_);
  }
  ~HostBench() { cuda::set_bench(before_); }
  HostBench(const HostBench&) = delete;
  HostBench& operator=(const HostBench&) = delete;
  const cuda::Fault& fault() const { return fault_; }

 private:
  std::unique_ptr<std::byte[]> workspace_;
  cuda::Fault fault_;
  cuda::Bench bench_;
  const cuda::Bench* before_;
};

}  // namespace hetu::test
