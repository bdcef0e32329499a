// Status checks. Every call of CUDA's libraries must go through one of them; lint checks this.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime_api.h>

namespace hetu::cuda {

/// Throws Internal with the failed operation and CUDA's error text, or Unsupported if the GPU is
/// out of memory.
void check(cudaError_t status, const char* what);
void check(cublasStatus_t status, const char* what);

}  // namespace hetu::cuda
