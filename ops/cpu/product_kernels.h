// The matrix products of linear operators, for every implementation of products.
#pragma once
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/product_shape.h"

namespace hetu::cpu {

/// A product, and the indices of the inputs that are its operands. bias < 0 means no bias.
struct ProductOperands {
  ProductShape shape;
  int a = 0, b = 1, bias = -1;
};

/// Returns the product of linear: y = x w^T + b.
inline ProductOperands linear_operands(const KernelDesc& d) {
  const Rows x = rows_of(d.inputs[0]), w = rows_of(d.inputs[1]);
  const bool bias = d.inputs.size() > 2;
  return {{1, x.rows, w.rows, x.columns, false, true, bias}, 0, 1, bias ? 2 : -1};
}

/// Returns the product of linear_input_grad: dx = dy w.
inline ProductOperands linear_input_grad_operands(const KernelDesc& d) {
  const Rows dy = rows_of(d.inputs[0]), w = rows_of(d.inputs[1]);
  return {{1, dy.rows, w.columns, dy.columns, false, false, false}};
}

/// Returns the product of linear_weight_grad: dw = dy^T x. The operand A is input 1.
inline ProductOperands linear_weight_grad_operands(const KernelDesc& d) {
  const Rows x = rows_of(d.inputs[0]), dy = rows_of(d.inputs[1]);
  return {{1, dy.columns, x.columns, x.rows, true, false, false}, 1, 0};
}

/// Returns the product of matmul. Leading dimensions become the batch.
inline ProductOperands matmul_operands(const KernelDesc& d) {
  const bool ta = d.attrs->integer("transpose_a") != 0, tb = d.attrs->integer("transpose_b") != 0;
  const Shape &a = d.inputs[0].shape, &y = d.outputs[0].shape;
  ProductShape s{1, y[y.size() - 2], y.back(), ta ? a[a.size() - 2] : a.back(), ta, tb, false};
  for (std::size_t i = 0; i + 2 < y.size(); ++i) s.batch *= y[i];
  return {s};
}

}  // namespace hetu::cpu
