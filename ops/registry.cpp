// The kernel tables of this build, in the order in which rows are tried.
#include "ops/registry.h"

#include "base/error.h"
#include "base/processor.h"
#include "ops/cpu/dnnl_product.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"

namespace hetu {
namespace {

constexpr std::string_view kWidened = "widened";

// Returns the first fast row that accepts the node when it is widened to float32. Returns null if
// only the reference does, or if the node has no 16-bit floats.
const KernelRow* row_if_wide(const KernelDesc& d) {
  if (!is_narrow(cpu::computing_type(d))) return nullptr;
  const KernelDesc wide = cpu::widened(d);
  const std::vector<const KernelRow*> rows = cpu_kernels(d.op);
  for (std::size_t i = 0; i + 1 < rows.size(); ++i)
    if (rows[i]->implementation != kWidened && rows[i]->takes(wide)) return rows[i];
  return nullptr;
}

// Returns the "widened" rows: one for each operator that accepts 16-bit floats.
const cpu::KernelTable& widened_rows() {
  const auto make = [] {
    cpu::KernelTable rows;
    for (const OpDef& def : op_set().all()) {
      if (def.narrow.rule == NarrowArgs::Rule::None) continue;
      rows.push_back(
          {def.name.c_str(), kWidened.data(),
           [](const KernelDesc& d) { return row_if_wide(d) != nullptr; },
           [](const KernelDesc& d) { return cpu::widened_kernel(d, row_if_wide(d)->prepare); },
           ImageLayouts::Both});
    }
    return rows;
  };
  static const cpu::KernelTable kRows = make();
  return kRows;
}

const KernelRow* widened_row(std::string_view op) {
  for (const KernelRow& row : widened_rows())
    if (op == row.op) return &row;
  return nullptr;
}

}  // namespace

std::vector<const KernelRow*> cpu_kernels(std::string_view op) {
  using namespace cpu;
  static const std::vector<const KernelTable*> kTables = {&vector_cast_rows(),
                                                          &dnnl_product_rows(),
                                                          &linear_rows(),
                                                          &vector_elementwise_rows(),
                                                          &vector_norm_rows(),
                                                          &vector_dropout_rows(),
                                                          &vector_attention_rows(),
                                                          &vector_attention_grad_rows(),
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
  // A reference that is the operator's only row does its own widening.
  if (const KernelRow* widened = widened_row(op); widened != nullptr && rows.size() > 1)
    rows.insert(rows.end() - 1, widened);
  if (rows.empty()) fail(Code::Unsupported, "operator '{}' has no kernel for the CPU", op);
  return rows;
}

std::string lacks_for_bfloat16() { return cpu::lacks_for_bfloat16(); }

PreparedKernel prepare_cpu(const KernelDesc& desc, KernelChoice choice) {
  require_processor();
  const std::vector<const KernelRow*> rows = cpu_kernels(desc.op);
  if (choice == KernelChoice::Reference && rows.back()->takes(desc))
    return rows.back()->prepare(desc);
  for (const KernelRow* row : rows)
    if (row->takes(desc)) return row->prepare(desc);
  fail(Code::Unsupported, "{} '{}': none of its {} CPU kernels takes these inputs{}", desc.op,
       desc.name, rows.size(), desc.images == Layout::Plain ? "" : ", channels-last");
}

}  // namespace hetu
