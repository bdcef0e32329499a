// The tables of this build, in the order in which rows are tried.
#include "ops/registry.h"

#include "graph/base/error.h"
#include "ops/cpu/tables.h"

namespace hetu {

std::vector<const KernelRow*> cpu_kernels(std::string_view op) {
  using namespace cpu;
  static const std::vector<const KernelTable*> kTables = {&linear_rows(),
                                                          &vector_elementwise_rows(),
                                                          &vector_norm_rows(),
                                                          &vector_dropout_rows(),
                                                          &vector_attention_rows(),
                                                          &vector_rotary_rows(),
                                                          &vector_recurrent_rows(),
                                                          &vector_reduce_rows(),
                                                          &vector_reduce_axes_rows(),
                                                          &vector_loss_rows(),
                                                          &conv_rows(),
                                                          &kronecker_rows(),
                                                          &vector_batch_norm_rows(),
                                                          &vector_pool_rows(),
                                                          &vector_interaction_rows(),
                                                          &reference_elementwise_rows(),
                                                          &reference_shape_rows(),
                                                          &reference_axis_rows(),
                                                          &reference_gather_rows(),
                                                          &reference_linear_rows(),
                                                          &reference_norm_rows(),
                                                          &reference_reduce_rows(),
                                                          &reference_attention_rows(),
                                                          &reference_rotary_rows(),
                                                          &reference_recurrent_rows(),
                                                          &reference_loss_rows(),
                                                          &reference_conv_rows(),
                                                          &reference_pool_rows(),
                                                          &reference_resample_rows(),
                                                          &reference_batch_norm_rows(),
                                                          &reference_interaction_rows()};
  std::vector<const KernelRow*> rows;
  for (const KernelTable* table : kTables)
    for (const KernelRow& row : *table)
      if (op == row.op) rows.push_back(&row);
  if (rows.empty()) fail(Code::Unsupported, "operator '{}' has no kernel for the CPU", op);
  return rows;
}

PreparedKernel prepare_cpu(const KernelDesc& desc, KernelChoice choice) {
  const std::vector<const KernelRow*> rows = cpu_kernels(desc.op);
  if (choice == KernelChoice::Reference && rows.back()->takes(desc))
    return rows.back()->prepare(desc);
  for (const KernelRow* row : rows)
    if (row->takes(desc)) return row->prepare(desc);
  fail(Code::Unsupported, "{} '{}': none of its {} CPU kernels takes these inputs{}", desc.op,
       desc.name, rows.size(), desc.images == Layout::Plain ? "" : ", channels-last");
}

}  // namespace hetu
