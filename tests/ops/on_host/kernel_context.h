// The context that kernels of ops/cuda run in without a GPU: host memory takes the place of a
// queue's memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ops/cuda/work.h"

namespace hetu::test {

/// Scope guard: kernels of this thread run in its context while it exists.
class HostKernelContext {
 public:
  HostKernelContext()
      : workspace_(std::make_unique_for_overwrite<std::byte[]>(
            static_cast<std::size_t>(cuda::kWorkspaceBytes))) {
    kernel_context_.fault = &fault_;
    kernel_context_.workspace = workspace_.get();
    before_ = cuda::set_kernel_context(&kernel_context_);
  }
  ~HostKernelContext() { cuda::set_kernel_context(before_); }
  HostKernelContext(const HostKernelContext&) = delete;
  HostKernelContext& operator=(const HostKernelContext&) = delete;
  const cuda::Fault& fault() const { return fault_; }

 private:
  std::unique_ptr<std::byte[]> workspace_;
  cuda::Fault fault_;
  cuda::KernelContext kernel_context_;
  const cuda::KernelContext* before_;
};

}  // namespace hetu::test
