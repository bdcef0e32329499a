// Every call of CUDA's libraries goes through one of these; lint sees to it.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime_api.h>

namespace hetu::cuda {

/// Throws Internal, or Unsupported where the card has no memory left, with what failed and CUDA's
/// words.
void check(cudaError_t status, const char* what);
void check(cublasStatus_t status, const char* what);

}  // namespace hetu::cuda
