// Operators that consist of one matrix product, and linear layers with a following activation.
#include <launch.h>

#include <algorithm>

#include "ops/cuda/column_sums.h"
#include "ops/cuda/numbers.h"
#include "ops/cuda/packs.h"
#include "ops/cuda/padded_product.h"
#include "ops/cuda/rows.h"
#include "ops/cuda/short_math.h"

namespace hetu::cuda {
namespace {

using cpu::ProductShape;
using cpu::Rows;
using cpu::rows_of;

/// The indices of A, B and the bias among a node's inputs.
struct Places {
  std::size_t a, b, bias;
};

struct ConvertOf {
  Reader x;
  Writer y;
  HETU_HD void operator()(std::int64_t i) const { y.set(i, x[i]); }
};

/// A product of a node's inputs. Two-byte floats are multiplied without conversion. A float32 bias
/// is rounded first, because the library requires that. Sums are stored in float32 if the output is
/// float32.
struct NodeProduct {
  ProductShape shape;
  Places at;
  DType dtype, result, bias;

  NodeProduct(const KernelDesc& d, const ProductShape& of_node, Places places)
      : shape(of_node),
        at(places),
        dtype(d.inputs[at.a].dtype),
        result(d.outputs.back().dtype),
        bias(shape.bias ? d.inputs[at.bias].dtype : dtype) {}

  /// Returns true if the library supports the dtypes. Otherwise the node is computed in float32.
  bool fits(const KernelDesc& d) const {
    const bool same = d.inputs[at.b].dtype == dtype && d.outputs.front().dtype == result;
    if (!same || (!is_narrow(dtype) && dtype != DType::Float32)) return false;
    return shape.bias ? result == dtype && (bias == dtype || bias == DType::Float32)
                      : result == dtype || result == DType::Float32;
  }
  /// Returns the scratch bytes of a converted bias, in whole quads, so that what follows is
  /// aligned.
  std::int64_t scratch_bytes() const {
    constexpr std::int64_t kOfQuad = sizeof(Quad) / sizeof(float);
    return bias == dtype ? 0 : (shape.n + kOfQuad - 1) / kOfQuad * std::int64_t{sizeof(Quad)};
  }
  const void* bias_of(const KernelCall& c) const {
    if (!shape.bias) return nullptr;
    if (bias == dtype) return c.inputs[at.bias];
    for_each(shape.n, ConvertOf{{c.inputs[at.bias], bias}, {c.scratch, dtype}});
    return c.scratch;
  }
};

/// Prepares the node in float32. Throws Unsupported if a tensor is neither float32 nor of two-byte
/// floats.
PreparedKernel widened_or_refused(const KernelDesc& d, PreparedKernel (*again)(const KernelDesc&)) {
  for (const auto* types : {&d.inputs, &d.outputs})
    for (const TensorType& t : *types)
      if (!is_narrow(t.dtype) && t.dtype != DType::Float32)
        fail(Code::Unsupported,
             "{} '{}': no CUDA kernel for {}; supported types: float32, bfloat16 and float16", d.op,
             d.name, dtype_name(t.dtype));
  return cuda::widened_kernel(d, again);
}

PreparedKernel product(const KernelDesc& d, const ProductShape& shape, Places at,
                       PreparedKernel (*again)(const KernelDesc&)) {
  const NodeProduct node(d, shape, at);
  if (!node.fits(d)) return widened_or_refused(d, again);
  const auto run = [node](const PaddedProduct& product) {
    return [node, product](const KernelCall& c) {
      product(c.inputs[node.at.a], c.inputs[node.at.b], node.bias_of(c), c.outputs[0],
              static_cast<std::byte*>(c.scratch) + node.scratch_bytes());
    };
  };
  const PaddedProduct whole(shape, node.dtype, node.result);
  PreparedKernel made{run(whole), node.scratch_bytes() + whole.scratch_bytes(), kImplementation};
  if (shape.transpose_a && !shape.transpose_b && !shape.bias && node.result == DType::Float32) {
    ProductShape sum = shape;
    sum.adds = true;
    made.add = run(PaddedProduct(sum, node.dtype, node.result));
  }
  return made;
}

ProductShape linear_shape(const KernelDesc& d) {  // y = x w^T + b
  const Rows x = rows_of(d.inputs[0]), w = rows_of(d.inputs[1]);
  ProductShape p{1, x.rows, w.rows, x.columns, false, true};
  p.bias = d.inputs.size() > 2;
  return p;
}

PreparedKernel linear(const KernelDesc& d) {
  return product(d, linear_shape(d), {0, 1, 2}, linear);
}

template <class F>
struct ActivateOf {
  Reader x;
  Writer y;
  HETU_HD void operator()(std::int64_t i) const { y.set(i, F()(x[i])); }
};

/// Prepares a linear layer with an activation. The last output is the linear layer's result. The
/// first is the activation of it and may be the same tensor. The product itself applies `then`
/// where the library does that as exactly as `F`.
template <class F, Then then>
PreparedKernel linear_then(const KernelDesc& d) {
  const NodeProduct node(d, linear_shape(d), {0, 1, 2});
  if (!node.fits(d)) return widened_or_refused(d, linear_then<F, then>);
  const Product plain(node.shape, node.dtype, node.result);
  const bool one_call = then != Then::Nothing && node.shape.bias && node.result == node.dtype &&
                        (then == Then::Relu || is_narrow(node.dtype));
  const Product whole =
      one_call ? Product(node.shape, node.dtype, node.result, then) : Product(plain);
  const std::size_t made = d.outputs.size() - 1;
  return {[=](const KernelCall& c) {
            const void *a = c.inputs[0], *b = c.inputs[1], *bias = node.bias_of(c);
            void* const before = c.outputs[made];
            if (one_call && whole.there()) return whole(a, b, bias, c.outputs[0], before);
            plain(a, b, bias, before);
            const void* const x[] = {before};
            const std::int64_t n = node.shape.m * node.shape.n;
            if (swept_in_packs<1>(node.result, x, c.outputs[0], n, F())) return;
            for_each(n, ActivateOf<F>{{before, node.result}, {c.outputs[0], node.result}});
          },
          node.scratch_bytes(), kImplementation};
}

PreparedKernel linear_gelu(const KernelDesc& d) {
  const bool narrow = is_narrow(d.outputs.front().dtype) && is_narrow(d.outputs.back().dtype);
  return narrow ? linear_then<fn::Gelu<ShortMath>, Then::Nothing>(d)
                : linear_then<fn::Gelu<>, Then::Nothing>(d);
}

PreparedKernel linear_input_grad(const KernelDesc& d) {  // dx = dy w
  const Rows dy = rows_of(d.inputs[0]), w = rows_of(d.inputs[1]);
  return product(d, {1, dy.rows, w.columns, dy.columns}, {0, 1, 0}, linear_input_grad);
}

PreparedKernel linear_input_grad_add(const KernelDesc& d) {  // dx = dy w + g
  const Rows dy = rows_of(d.inputs[0]), w = rows_of(d.inputs[1]);
  ProductShape shape{1, dy.rows, w.columns, dy.columns};
  shape.adds = true;
  const NodeProduct node(d, shape, {0, 1, 0});
  if (!node.fits(d) || d.inputs[2].dtype != node.result)
    return widened_or_refused(d, linear_input_grad_add);
  return {[product = Product(shape, node.dtype, node.result)](const KernelCall& c) {
            product.plus(c.inputs[0], c.inputs[1], c.inputs[2], c.outputs[0]);
          },
          0, kImplementation};
}

ProductShape weight_grad_shape(const KernelDesc& d) {  // dw = dy^T x
  const Rows x = rows_of(d.inputs[0]), dy = rows_of(d.inputs[1]);
  return {1, dy.columns, x.columns, x.rows, true};
}

PreparedKernel linear_weight_grad(const KernelDesc& d) {
  return product(d, weight_grad_shape(d), {1, 0, 0}, linear_weight_grad);
}

/// Prepares the gradients of weights and bias. The product itself computes db where the library
/// supports that. Otherwise the kernel of sum_rows computes it afterwards.
PreparedKernel linear_weight_bias_grad(const KernelDesc& d) {
  const NodeProduct node(d, weight_grad_shape(d), {1, 0, 0});
  if (!node.fits(d) || node.result != DType::Float32)
    return widened_or_refused(d, linear_weight_bias_grad);
  const ColumnSums sums = {node.dtype, node.shape.k, node.shape.m};
  const auto run = [&](bool adds) {
    ProductShape shape = node.shape;
    shape.adds = adds;
    return [sums, plain = PaddedProduct(shape, node.dtype, node.result),
            whole = PaddedProduct(shape, node.dtype, node.result, Then::BiasGrad)](
               const KernelCall& c) {
      const void *x = c.inputs[0], *dy = c.inputs[1];
      if (whole.there())
        return whole.with_bias_grad(dy, x, c.outputs[0], c.out<float>(1), c.scratch);
      plain(dy, x, nullptr, c.outputs[0], c.scratch);
      sums(dy, c.scratch, c.out<float>(1));
    };
  };
  const PaddedProduct plain(node.shape, node.dtype, node.result);
  return {run(false), std::max(sums.scratch_bytes(), plain.scratch_bytes()), kImplementation,
          run(true)};
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
      row("linear_relu", linear_then<fn::Relu, Then::Relu>),
      row("linear_gelu", linear_gelu),
      row("linear_gelu_tanh", linear_then<fn::GeluTanh<>, Then::GeluTanh>),
      row("linear_input_grad", linear_input_grad),
      row("linear_input_grad_add", linear_input_grad_add),
      row("linear_weight_grad", linear_weight_grad),
      row("linear_weight_bias_grad", linear_weight_bias_grad),
      row("kronecker_factor", kronecker_factor),
      row("matmul", matmul),
  };
  return kRows;
}

}  // namespace hetu::cuda
