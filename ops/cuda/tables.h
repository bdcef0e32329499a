// The tables of CUDA kernels, as ops/cpu/tables.h for the CPU. A row stands for one operator and
// family of dtypes.
#pragma once
#include <vector>

#include "ops/kernel.h"

namespace hetu::cuda {

using KernelTable = std::vector<KernelRow>;

const KernelTable& elementwise_rows();
const KernelTable& shape_rows();
const KernelTable& linear_rows();
const KernelTable& norm_rows();
const KernelTable& residual_rows();
const KernelTable& reduce_rows();
const KernelTable& embedding_rows();
const KernelTable& attention_rows();
const KernelTable& flash_attention_rows();
const KernelTable& flash_attention_grad_rows();
/// Returns the rows for heads of at most 64 columns, which precede the flash attention rows above.
const KernelTable& flash_registers_rows();
const KernelTable& flash_registers_grad_rows();
const KernelTable& loss_rows();
const KernelTable& order_rows();
const KernelTable& conv_rows();
/// Returns the rows for channels-last images of two-byte floats with fewer than eight channels,
/// which precede cuDNN's rows and those above.
const KernelTable& few_channels_rows();
const KernelTable& few_channels_grad_rows();
/// Returns the rows by cuDNN, or none in a build without cuDNN.
const KernelTable& cudnn_rows();
const KernelTable& batch_norm_rows();
const KernelTable& batch_norm_grad_rows();
const KernelTable& max_pool_rows();
const KernelTable& pool_rows();
const KernelTable& recurrent_rows();
const KernelTable& interaction_rows();

}  // namespace hetu::cuda
