// Replacement of cuda.cpp for builds without CUDA: functions that need a GPU throw Unsupported.
#include "base/error.h"
#include "executor/device/backends.h"
#include "executor/device/device.h"

namespace hetu {
namespace {

[[noreturn]] void refuse() {
  fail(Code::Unsupported, "--device cuda: {}; configure with -DHETU_CUDA=ON, or use --device cpu",
       cuda_problem());
}

}  // namespace

std::string cuda_problem() { return "this build has no CUDA"; }

std::unique_ptr<Device> open_cuda() { refuse(); }

PreparedKernel prepare_on_cuda(const KernelDesc&, KernelChoice) { refuse(); }

std::int64_t factor_scratch_on_cuda(std::int64_t, std::int64_t) { refuse(); }

}  // namespace hetu
