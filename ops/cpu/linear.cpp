// linear, its gradients and matmul as blocked products.
#include "ops/cpu/activate.h"
#include "ops/cpu/column_sums.h"
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

// From this number of rows on, packing B costs less than 2 % of the product.
constexpr std::int64_t kManyRows = 512;

const float* bias_of(const ProductOperands& o, const KernelCall& c) {
  return o.bias < 0 ? nullptr : c.in<float>(o.bias);
}

PreparedKernel multiply(const ProductOperands& o) {
  const Product product(o.shape);
  return {[product, o](const KernelCall& c) {
            product.run(c.in<float>(o.a), c.in<float>(o.b), bias_of(o, c), c.out<float>(0),
                        c.scratch);
          },
          product.scratch_bytes(), "blocked"};
}

// Adds the form with a packed B. `run` computes the product from it.
template <class Run>
PreparedKernel with_packed(PreparedKernel kernel, const ProductOperands& o, const Run& run) {
  const Product product(o.shape);
  if (o.shape.m >= kManyRows || product.packed_b_bytes() == 0) return kernel;
  const auto pack = [product](const KernelCall& c) {
    product.pack_b(c.in<float>(0), c.out<float>(0));
  };
  kernel.packed = {o.b, product.packed_b_bytes(), pack, run};
  return kernel;
}

PreparedKernel multiply_packed(const ProductOperands& o) {
  const Product product(o.shape);
  return with_packed(multiply(o), o, [product, o](const KernelCall& c) {
    product.run_packed(c.in<float>(o.a), c.in<float>(o.b), bias_of(o, c), c.out<float>(0),
                       c.scratch);
  });
}

PreparedKernel linear(const KernelDesc& d) { return multiply_packed(linear_operands(d)); }

// The last output is the output of linear. The first is the activation of it, and may be the same
// tensor.
template <class F>
PreparedKernel linear_then(const KernelDesc& d) {
  const ProductOperands o = linear_operands(d);
  const Product product(o.shape);
  const int made = static_cast<int>(d.outputs.size()) - 1;
  const auto run = [product, o, made](const KernelCall& c) {
    product.run(c.in<float>(o.a), c.in<float>(o.b), bias_of(o, c), c.out<float>(made), c.scratch,
                {activate<F, float>, c.out<float>(0)});
  };
  const auto run_packed = [product, o, made](const KernelCall& c) {
    product.run_packed(c.in<float>(o.a), c.in<float>(o.b), bias_of(o, c), c.out<float>(made),
                       c.scratch, {activate<F, float>, c.out<float>(0)});
  };
  return with_packed({run, product.scratch_bytes(), "blocked"}, o, run_packed);
}

PreparedKernel linear_input_grad(const KernelDesc& d) {
  return multiply_packed(linear_input_grad_operands(d));
}

PreparedKernel linear_input_grad_add(const KernelDesc& d) {
  const ProductOperands o = linear_input_grad_operands(d);
  const Product product(o.shape);
  const auto sum = [](const KernelCall& c) {
    return Epilogue<float>{add_other<float>, c.out<float>(0), c.in<float>(2)};
  };
  const auto run = [product, o, sum](const KernelCall& c) {
    product.run(c.in<float>(o.a), c.in<float>(o.b), nullptr, c.out<float>(0), c.scratch, sum(c));
  };
  const auto run_packed = [product, o, sum](const KernelCall& c) {
    product.run_packed(c.in<float>(o.a), c.in<float>(o.b), nullptr, c.out<float>(0), c.scratch,
                       sum(c));
  };
  return with_packed({run, product.scratch_bytes(), "blocked"}, o, run_packed);
}

PreparedKernel linear_weight_grad(const KernelDesc& d) {
  ProductOperands o = linear_weight_grad_operands(d);
  PreparedKernel kernel = multiply(o);
  o.shape.adds = true;
  kernel.add = multiply(o).run;
  return kernel;
}

PreparedKernel linear_weight_bias_grad(const KernelDesc& d) {
  return with_bias_grad<float>(d, linear_weight_grad(d));
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
      {"linear_input_grad_add", "blocked", fits, linear_input_grad_add},
      {"linear_weight_grad", "blocked", fits, linear_weight_grad},
      {"linear_weight_bias_grad", "blocked", fits, linear_weight_bias_grad},
      {"matmul", "blocked", fits, matmul},
  };
  return kRows;
}

}  // namespace hetu::cpu
