// The kernels of the CUDA back end. Built if HETU_CUDA is on. The tests also build its own kernels
// for the host. Used by executor/device and tests.
#pragma once
#include <string_view>
#include <vector>

#include "ops/kernel.h"
#include "ops/tensor_kernels.h"

namespace hetu {

/// Returns the CUDA kernel rows of an operator, best first. Every operator has at least one.
std::vector<const KernelRow*> cuda_kernels(std::string_view op);

/// Prepares the node's kernel: the first row that accepts the node, or, for Reference, the last
/// row, which uses the fewest of CUDA's libraries. Needs no GPU. Throws Unsupported, naming the
/// node.
PreparedKernel prepare_cuda(const KernelDesc& desc, KernelChoice choice = KernelChoice::Best);

/// Returns the kernels for sweeps, sums and norms of whole tensors. They run on the queue of the
/// calling thread.
const TensorKernels& cuda_tensor_kernels();

}  // namespace hetu
