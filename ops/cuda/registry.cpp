// The tables of the CUDA back end, and what is missing from them.
#include "ops/cuda/registry.h"

#include <iterator>

#include "graph/base/error.h"
#include "ops/cuda/tables.h"

namespace hetu {
namespace {

struct Gap {
  const char* why;
  std::vector<std::string_view> ops;
};

// Operators without a row, by what they wait for. The test of this table fails on a name that is no
// operator, that has a row, or that is missing.
const std::vector<Gap>& gaps() {
  static const std::vector<Gap> kGaps = {
      {"what the fusing passes make is to come, and the plan for a card goes without",
       {"fused_attention", "fused_attention_grad", "linear_relu", "linear_gelu", "linear_gelu_tanh",
        "dropout_add_layer_norm", "dropout_add_layer_norm_grad", "batch_norm_add_relu_grad"}},
  };
  return kGaps;
}

}  // namespace

std::vector<const KernelRow*> cuda_kernels(std::string_view op) {
  using namespace cuda;
  static const std::vector<const KernelTable*> kTables = {
      &elementwise_rows(), &shape_rows(),     &linear_rows(),    &norm_rows(),       &reduce_rows(),
      &embedding_rows(),   &attention_rows(), &loss_rows(),      &order_rows(),      &conv_rows(),
      &batch_norm_rows(),  &pool_rows(),      &recurrent_rows(), &interaction_rows()};
  std::vector<const KernelRow*> rows;
  for (const KernelTable* table : kTables)
    for (const KernelRow& row : *table)
      if (op == row.op) rows.push_back(&row);
  return rows;
}

std::string cuda_gap(std::string_view op) {
  for (const Gap& gap : gaps())
    for (const std::string_view name : gap.ops)
      if (name == op) return gap.why;
  return {};
}

PreparedKernel prepare_cuda(const KernelDesc& desc, KernelChoice) {
  const std::vector<const KernelRow*> rows = cuda_kernels(desc.op);
  if (rows.empty())
    fail(Code::Unsupported, "--device cuda: {} '{}' has no CUDA kernel ({}); use --device cpu",
         desc.op, desc.name, cuda_gap(desc.op));
  for (const KernelRow* row : rows)
    if (row->takes(desc)) return row->prepare(desc);
  fail(Code::Unsupported,
       "--device cuda: {} '{}': none of its {} CUDA kernels takes these inputs{}", desc.op,
       desc.name, rows.size(), desc.images == Layout::Plain ? "" : ", channels-last");
}

}  // namespace hetu
