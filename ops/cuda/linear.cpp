// Operators that are one matrix product.
#include "ops/cuda/product.h"
#include "ops/cuda/rows.h"

namespace hetu::cuda {
namespace {

using cpu::ProductShape;
using cpu::Rows;
using cpu::rows_of;

/// Where A, B and the bias stand among a node's inputs.
struct Places {
  int a, b, bias;
};

/// In two bytes an element if all is; a node of both is widened.
PreparedKernel product(const KernelDesc& d, const ProductShape& shape, Places at,
                       PreparedKernel (*again)(const KernelDesc&)) {
  int narrow = 0, wide = 0;
  for (const auto* types : {&d.inputs, &d.outputs})
    for (const TensorType& t : *types) ++(is_narrow(t.dtype) ? narrow : wide);
  if (narrow > 0 && wide > 0) return cuda::widened_kernel(d, again);
  const DType dtype = d.outputs[0].dtype;
  if (!is_narrow(dtype) && dtype != DType::Float32)
    fail(Code::Unsupported,
         "{} '{}': no CUDA kernel for {}; float32, bfloat16 and float16 are there", d.op, d.name,
         dtype_name(dtype));
  return {[run = Product(shape, dtype), at, bias = shape.bias](const KernelCall& c) {
            run(c.inputs[at.a], c.inputs[at.b], bias ? c.inputs[at.bias] : nullptr, c.outputs[0]);
          },
          0, kImplementation};
}

PreparedKernel linear(const KernelDesc& d) {  // y = x w^T + b
  const Rows x = rows_of(d.inputs[0]), w = rows_of(d.inputs[1]);
  ProductShape p{1, x.rows, w.rows, x.columns, false, true};
  p.bias = d.inputs.size() > 2;
  return product(d, p, {0, 1, 2}, linear);
}

PreparedKernel linear_input_grad(const KernelDesc& d) {  // dx = dy w
  const Rows dy = rows_of(d.inputs[0]), w = rows_of(d.inputs[1]);
  return product(d, {1, dy.rows, w.columns, dy.columns}, {0, 1, 0}, linear_input_grad);
}

PreparedKernel linear_weight_grad(const KernelDesc& d) {  // dw = dy^T x
  const Rows x = rows_of(d.inputs[0]), dy = rows_of(d.inputs[1]);
  return product(d, {1, dy.columns, x.columns, x.rows, true}, {1, 0, 0}, linear_weight_grad);
}

PreparedKernel kronecker_factor(const KernelDesc& d) {  // x^T x
  const Rows x = rows_of(d.inputs[0]);
  return product(d, {1, x.columns, x.columns, x.rows, true}, {0, 0, 0}, kronecker_factor);
}

PreparedKernel matmul(const KernelDesc& d) {
  const bool ta = d.attrs->integer("transpose_a") != 0, tb = d.attrs->integer("transpose_b") != 0;
  const Shape &a = d.inputs[0].shape, &y = d.outputs[0].shape;
  ProductShape p{1, y[y.size() - 2], y.back(), ta ? a[a.size() - 2] : a.back(), ta, tb};
  for (std::size_t i = 0; i + 2 < y.size(); ++i) p.batch *= y[i];
  return product(d, p, {0, 1, 0}, matmul);
}

}  // namespace

const KernelTable& linear_rows() {
  static const KernelTable kRows = {
      row("linear", linear),
      row("linear_input_grad", linear_input_grad),
      row("linear_weight_grad", linear_weight_grad),
      row("kronecker_factor", kronecker_factor),
      row("matmul", matmul),
  };
  return kRows;
}

}  // namespace hetu::cuda
