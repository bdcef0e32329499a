// The kernels of the CUDA back end. Built where HETU_CUDA is on; its own kernels are built for the
// host too, by the tests. Read by executor/device and tests.
#pragma once
#include <string_view>
#include <vector>

#include "ops/kernel.h"
#include "ops/tensor_kernels.h"

namespace hetu {

/// CUDA kernel rows of an operator, best first; every operator has one.
std::vector<const KernelRow*> cuda_kernels(std::string_view op);

/// Of CUDA: prepares the first row that takes it, or for Reference the last one, which uses the
/// fewest of CUDA's libraries. Needs no card. Throws Unsupported naming the node.
PreparedKernel prepare_cuda(const KernelDesc& desc, KernelChoice choice = KernelChoice::Best);

/// Sweeps, sums and norms of whole tensors; run on the queue of the calling thread.
const TensorKernels& cuda_tensor_kernels();

}  // namespace hetu
