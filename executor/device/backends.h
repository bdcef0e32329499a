// The functions behind open_device() and the preparation of kernels, for each back end.
#pragma once
#include <memory>

#include "ops/kernel.h"

namespace hetu {

class Device;

std::unique_ptr<Device> open_cpu();
std::unique_ptr<Device> open_far();
std::unique_ptr<Device> open_cuda();
PreparedKernel prepare_on_cuda(const KernelDesc& desc, KernelChoice choice);
std::int64_t factor_scratch_on_cuda(std::int64_t inputs, std::int64_t outputs);

}  // namespace hetu
