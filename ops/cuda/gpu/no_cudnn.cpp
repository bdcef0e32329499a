// CudnnConv for builds without cuDNN's headers: convolutions use the kernels of conv.cu.
#include "base/error.h"
#include "ops/cuda/cudnn_conv.h"

namespace hetu::cuda {

struct CudnnConv::Plan {};

bool has_cudnn() { return false; }

CudnnConv::CudnnConv(const ConvTask&) { HETU_ASSERT(false); }

bool CudnnConv::there(bool) const { return false; }

void CudnnConv::operator()(const void*, const void*, const void*) const { HETU_ASSERT(false); }

}  // namespace hetu::cuda
