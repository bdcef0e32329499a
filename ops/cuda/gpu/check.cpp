#include "ops/cuda/gpu/check.h"

#include "base/error.h"

namespace hetu::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  const Code code = status == cudaErrorMemoryAllocation ? Code::Unsupported : Code::Internal;
  fail(code, "CUDA: {} failed: {} ({})", what, cudaGetErrorString(status),
       cudaGetErrorName(status));
}

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(Code::Internal, "cuBLASLt: {} failed: {}", what, cublasLtGetStatusString(status));
}

}  // namespace hetu::cuda
