// linear, its gradients and matmul as blocked products.
#include "ops/cpu/product.h"
#include "ops/cpu/product_kernels.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

bool fits(const KernelDesc& d) {
  if (!is_float32(d)) return false;
  for (const TensorType& t : d.inputs)
    if (count_of(t) == 0) return false;
  return true;
}

PreparedKernel multiply(const ProductOperands& o) {
  const Product product(o.shape);
  return {[product, a = o.a, b = o.b, bias = o.bias](const KernelCall& c) {
            product.run(c.in<float>(a), c.in<float>(b), bias < 0 ? nullptr : c.in<float>(bias),
                        c.out<float>(0), c.scratch);
          },
          product.scratch_bytes(), "blocked"};
}

PreparedKernel linear(const KernelDesc& d) { return multiply(linear_operands(d)); }

PreparedKernel linear_input_grad(const KernelDesc& d) {
  return multiply(linear_input_grad_operands(d));
}

PreparedKernel linear_weight_grad(const KernelDesc& d) {
  return multiply(linear_weight_grad_operands(d));
}

PreparedKernel matmul(const KernelDesc& d) { return multiply(matmul_operands(d)); }

}  // namespace

const KernelTable& linear_rows() {
  static const KernelTable kRows = {
      {"linear", "blocked", fits, linear},
      {"linear_input_grad", "blocked", fits, linear_input_grad},
      {"linear_weight_grad", "blocked", fits, linear_weight_grad},
      {"matmul", "blocked", fits, matmul},
  };
  return kRows;
}

}  // namespace hetu::cpu
