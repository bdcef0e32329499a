// Tables of the CPU kernels. They are explicit functions, because a linker drops an unreferenced
// object file of a static library, and static-initializer registrations with it.
#pragma once
#include <vector>

#include "ops/kernel.h"

namespace hetu::cpu {

using KernelTable = std::vector<KernelRow>;

/// Returns the rows, marked as accepting images in any layout. Only for kernels in which element i
/// of the result depends on element i of the inputs alone.
inline KernelTable any_layout(KernelTable rows) {
  for (KernelRow& row : rows) row.layouts = ImageLayouts::Both;
  return rows;
}

// Fast rows: "blocked" for matrix products, "onednn" for convolutions, "vector" for the rest.
const KernelTable& vector_cast_rows();
const KernelTable& linear_rows();
const KernelTable& dnnl_product_rows();
const KernelTable& vector_elementwise_rows();
const KernelTable& vector_norm_rows();
const KernelTable& vector_dropout_rows();
const KernelTable& vector_attention_rows();
const KernelTable& vector_attention_grad_rows();
const KernelTable& vector_rotary_rows();
const KernelTable& vector_recurrent_rows();
const KernelTable& vector_reduce_rows();
const KernelTable& vector_reduce_axes_rows();
const KernelTable& vector_loss_rows();
const KernelTable& conv_rows();
const KernelTable& kronecker_rows();
const KernelTable& vector_batch_norm_rows();
const KernelTable& vector_pool_rows();
const KernelTable& vector_interaction_rows();

// Plain loops: the oracle of the rows above, and the only rows of operators that move data.
const KernelTable& reference_elementwise_rows();
const KernelTable& reference_shape_rows();
const KernelTable& reference_axis_rows();
const KernelTable& reference_gather_rows();
const KernelTable& reference_linear_rows();
const KernelTable& reference_norm_rows();
const KernelTable& reference_reduce_rows();
const KernelTable& reference_attention_rows();
const KernelTable& reference_rotary_rows();
const KernelTable& reference_recurrent_rows();
const KernelTable& reference_loss_rows();
const KernelTable& reference_conv_rows();
const KernelTable& reference_pool_rows();
const KernelTable& reference_resample_rows();
const KernelTable& reference_batch_norm_rows();
const KernelTable& reference_interaction_rows();

}  // namespace hetu::cpu
