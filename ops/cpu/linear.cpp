// linear, its gradients and matmul as blocked products.
#include "ops/cpu/activate.h"
#include "ops/cpu/product.h"
#include "ops/cpu/product_kernels.h"
#include "ops/cpu/tables.h"
#include "ops/cpu/vector_math.h"

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

// The last output is what linear makes; the first is made of it, and may be the same.
template <class F>
PreparedKernel linear_then(const KernelDesc& d) {
  const ProductOperands o = linear_operands(d);
  const Product product(o.shape);
  const int made = static_cast<int>(d.outputs.size()) - 1;
  return {[product, a = o.a, b = o.b, bias = o.bias, made](const KernelCall& c) {
            product.run(c.in<float>(a), c.in<float>(b), bias < 0 ? nullptr : c.in<float>(bias),
                        c.out<float>(made), c.scratch, {activate<F, float>, c.out<float>(0)});
          },
          product.scratch_bytes(), "blocked"};
}

PreparedKernel linear_input_grad(const KernelDesc& d) {
  return multiply(linear_input_grad_operands(d));
}

PreparedKernel linear_weight_grad(const KernelDesc& d) {
  ProductOperands o = linear_weight_grad_operands(d);
  PreparedKernel kernel = multiply(o);
  o.shape.adds = true;
  kernel.add = multiply(o).run;
  return kernel;
}

PreparedKernel matmul(const KernelDesc& d) { return multiply(matmul_operands(d)); }

}  // namespace

const KernelTable& linear_rows() {
  static const KernelTable kRows = {
      {"linear", "blocked", fits, linear},
      {"linear_relu", "blocked", fits, linear_then<fn::Relu>},
      {"linear_gelu", "blocked", fits, linear_then<fn::Gelu<VectorMath>>},
      {"linear_gelu_tanh", "blocked", fits, linear_then<fn::GeluTanh<VectorMath>>},
      {"linear_input_grad", "blocked", fits, linear_input_grad},
      {"linear_weight_grad", "blocked", fits, linear_weight_grad},
      {"matmul", "blocked", fits, matmul},
  };
  return kRows;
}

}  // namespace hetu::cpu
