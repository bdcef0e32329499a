// The kernel tables of the CUDA back end, in order of preference.
#include "ops/cuda/registry.h"

#include "base/error.h"
#include "ops/cuda/tables.h"

namespace hetu {

std::vector<const KernelRow*> cuda_kernels(std::string_view op) {
  using namespace cuda;
  static const std::vector<const KernelTable*> kTables = {&elementwise_rows(),
                                                          &shape_rows(),
                                                          &linear_rows(),
                                                          &norm_rows(),
                                                          &residual_rows(),
                                                          &reduce_rows(),
                                                          &embedding_rows(),
                                                          &flash_registers_rows(),
                                                          &flash_registers_grad_rows(),
                                                          &flash_attention_rows(),
                                                          &flash_attention_grad_rows(),
                                                          &attention_rows(),
                                                          &loss_rows(),
                                                          &order_rows(),
                                                          &few_channels_rows(),
                                                          &few_channels_grad_rows(),
                                                          &cudnn_rows(),
                                                          &conv_rows(),
                                                          &batch_norm_rows(),
                                                          &batch_norm_grad_rows(),
                                                          &max_pool_rows(),
                                                          &pool_rows(),
                                                          &recurrent_rows(),
                                                          &interaction_rows()};
  std::vector<const KernelRow*> rows;
  for (const KernelTable* table : kTables)
    for (const KernelRow& row : *table)
      if (op == row.op) rows.push_back(&row);
  return rows;
}

PreparedKernel prepare_cuda(const KernelDesc& desc, KernelChoice choice) {
  const std::vector<const KernelRow*> rows = cuda_kernels(desc.op);
  if (rows.empty())
    fail(Code::Unsupported, "--device cuda: {} '{}' has no CUDA kernel; use --device cpu", desc.op,
         desc.name);
  if (choice == KernelChoice::Reference && rows.back()->takes(desc))
    return rows.back()->prepare(desc);
  for (const KernelRow* row : rows)
    if (row->takes(desc)) return row->prepare(desc);
  fail(Code::Unsupported,
       "--device cuda: {} '{}': none of its {} CUDA kernels takes these inputs{}", desc.op,
       desc.name, rows.size(), desc.images == Layout::Plain ? "" : ", channels-last");
}

}  // namespace hetu
