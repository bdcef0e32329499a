// linear, its gradients and matmul as blocked products.
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/product.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

bool fits(const KernelDesc& d) {
  if (!is_float32(d)) return false;
  for (const TensorType& t : d.inputs)
    if (count_of(t) == 0) return false;
  return true;
}

/// `a`, `b` and `bias` say which inputs the operands are; bias < 0 for none.
PreparedKernel multiply(const ProductShape& shape, int a, int b, int bias) {
  const Product product(shape);
  return {[=](const KernelCall& c) {
            product.run(c.in<float>(a), c.in<float>(b), bias < 0 ? nullptr : c.in<float>(bias),
                        c.out<float>(0), c.scratch);
          },
          product.scratch_bytes(), "blocked"};
}

PreparedKernel linear(const KernelDesc& d) {
  const Rows x = rows_of(d.inputs[0]), w = rows_of(d.inputs[1]);
  const bool bias = d.inputs.size() > 2;
  return multiply({1, x.rows, w.rows, x.columns, false, true, bias}, 0, 1, bias ? 2 : -1);
}

PreparedKernel linear_input_grad(const KernelDesc& d) {
  const Rows dy = rows_of(d.inputs[0]), w = rows_of(d.inputs[1]);
  return multiply({1, dy.rows, w.columns, dy.columns, false, false, false}, 0, 1, -1);
}

PreparedKernel linear_weight_grad(const KernelDesc& d) {
  const Rows x = rows_of(d.inputs[0]), dy = rows_of(d.inputs[1]);
  return multiply({1, dy.columns, x.columns, x.rows, true, false, false}, 1, 0, -1);
}

PreparedKernel matmul(const KernelDesc& d) {
  const bool ta = d.attrs->integer("transpose_a") != 0, tb = d.attrs->integer("transpose_b") != 0;
  const Shape &a = d.inputs[0].shape, &y = d.outputs[0].shape;
  ProductShape s{1, y[y.size() - 2], y.back(), ta ? a[a.size() - 2] : a.back(), ta, tb, false};
  for (std::size_t i = 0; i + 2 < y.size(); ++i) s.batch *= y[i];
  return multiply(s, 0, 1, -1);
}

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
