// Products, sums and embedding tables, as plain loops that add in float64 in ascending order.
#include <algorithm>

#include "ops/cpu/check_indices.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"
#include "ops/scalar_fns.h"

namespace hetu::cpu {
namespace {

/// C[i, j] = sum over l of A[i, l] B[l, j], with any strides. The sum starts with the bias, if
/// there is one.
template <class T>
struct Product {
  std::int64_t m, n, k;
  std::int64_t a_row, a_column, b_row, b_column;

  void operator()(const T* a, const T* b, const T* bias, T* c) const {
#pragma omp parallel for if (m * n * k > kParallelElements)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = bias != nullptr ? double(bias[j]) : 0.0;
        for (std::int64_t l = 0; l < k; ++l)
          sum += double(a[i * a_row + l * a_column]) * double(b[l * b_row + j * b_column]);
        c[i * n + j] = static_cast<T>(sum);
      }
  }
};

template <class T>
struct Linear {  // y = x w^T + b
  Product<T> product;
  bool bias;
  explicit Linear(const KernelDesc& d) : bias(d.inputs.size() > 2) {
    const Rows x = rows_of(d.inputs[0]), w = rows_of(d.inputs[1]);
    product = {x.rows, w.rows, x.columns, x.columns, 1, 1, x.columns};
  }
  void operator()(const KernelCall& c) const {
    product(c.in<T>(0), c.in<T>(1), bias ? c.in<T>(2) : nullptr, c.out<T>(0));
  }
};

/// The last output is the output of linear. The first is the activation of it, and may be the same
/// tensor.
template <class F, class T>
struct LinearThen {
  Linear<T> linear;
  int made;
  std::int64_t n;
  explicit LinearThen(const KernelDesc& d)
      : linear(d), made(static_cast<int>(d.outputs.size()) - 1), n(count_of(d.outputs[0])) {}
  void operator()(const KernelCall& c) const {
    linear({c.inputs, c.outputs + made, c.scratch, c.run});
    for (std::int64_t i = 0; i < n; ++i) c.out<T>(0)[i] = F()(c.out<T>(made)[i]);
  }
};
template <class F>
struct Then {
  template <class T>
  using One = LinearThen<F, T>;
};

template <class T>
struct LinearInputGrad {  // dx = dy w
  Product<T> product;
  explicit LinearInputGrad(const KernelDesc& d) {
    const Rows dy = rows_of(d.inputs[0]), w = rows_of(d.inputs[1]);
    product = {dy.rows, w.columns, dy.columns, dy.columns, 1, w.columns, 1};
  }
  void operator()(const KernelCall& c) const {
    product(c.in<T>(0), c.in<T>(1), nullptr, c.out<T>(0));
  }
};

template <class T>
struct LinearInputGradAdd {  // dx = dy w + g
  LinearInputGrad<T> product;
  std::int64_t n;
  explicit LinearInputGradAdd(const KernelDesc& d) : product(d), n(count_of(d.outputs[0])) {}
  void operator()(const KernelCall& c) const {
    product(c);
    for (std::int64_t i = 0; i < n; ++i) c.out<T>(0)[i] += c.in<T>(2)[i];
  }
};

template <class T>
struct LinearWeightGrad {  // dw = dy^T x
  Product<T> product;
  explicit LinearWeightGrad(const KernelDesc& d) {
    const Rows x = rows_of(d.inputs[0]), dy = rows_of(d.inputs[1]);
    product = {dy.columns, x.columns, x.rows, 1, dy.columns, x.columns, 1};
  }
  void operator()(const KernelCall& c) const {
    product(c.in<T>(1), c.in<T>(0), nullptr, c.out<T>(0));
  }
};

template <class T>
struct KroneckerFactor {
  Product<T> product;
  explicit KroneckerFactor(const KernelDesc& d) {
    const Rows x = rows_of(d.inputs[0]);
    product = {x.columns, x.columns, x.rows, 1, x.columns, x.columns, 1};
  }
  void operator()(const KernelCall& c) const {
    product(c.in<T>(0), c.in<T>(0), nullptr, c.out<T>(0));
  }
};

template <class T>
struct Matmul {
  Product<T> product;
  std::int64_t batch;
  explicit Matmul(const KernelDesc& d) {
    const bool ta = d.attrs->integer("transpose_a") != 0, tb = d.attrs->integer("transpose_b") != 0;
    const Shape &a = d.inputs[0].shape, &y = d.outputs[0].shape;
    const std::int64_t m = y[y.size() - 2], n = y.back(), k = ta ? a[a.size() - 2] : a.back();
    product = {m, n, k, ta ? 1 : k, ta ? m : 1, tb ? 1 : n, tb ? k : 1};
    batch = 1;
    for (std::size_t i = 0; i + 2 < y.size(); ++i) batch *= y[i];
  }
  void operator()(const KernelCall& c) const {
    const std::int64_t m = product.m, n = product.n, k = product.k;
    for (std::int64_t i = 0; i < batch; ++i)
      product(c.in<T>(0) + i * m * k, c.in<T>(1) + i * k * n, nullptr, c.out<T>(0) + i * m * n);
  }
};

template <class T>
struct Sum {
  std::int64_t n;
  explicit Sum(const KernelDesc& d) : n(count_of(d.inputs[0])) {}
  void operator()(const KernelCall& c) const {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += double(c.in<T>(0)[i]);
    c.out<T>(0)[0] = static_cast<T>(sum);
  }
};

template <class T>
struct SumRows {
  Rows x;
  explicit SumRows(const KernelDesc& d) : x(rows_of(d.inputs[0])) {}
  explicit SumRows(const Rows& of) : x(of) {}
  void operator()(const KernelCall& c) const {
    for (std::int64_t j = 0; j < x.columns; ++j) {
      double sum = 0;
      for (std::int64_t i = 0; i < x.rows; ++i) sum += double(c.in<T>(0)[i * x.columns + j]);
      c.out<T>(0)[j] = static_cast<T>(sum);
    }
  }
};

template <class T>
struct LinearWeightBiasGrad {
  LinearWeightGrad<T> weight;
  SumRows<T> bias;
  explicit LinearWeightBiasGrad(const KernelDesc& d) : weight(d), bias(rows_of(d.inputs[1])) {}
  void operator()(const KernelCall& c) const {
    weight(c);
    bias({c.inputs + 1, c.outputs + 1, c.scratch, c.run});
  }
};

template <class T>
struct SumLast {
  Rows x;
  explicit SumLast(const KernelDesc& d) : x(rows_of(d.inputs[0])) {}
  void operator()(const KernelCall& c) const {
    for (std::int64_t i = 0; i < x.rows; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < x.columns; ++j) sum += double(c.in<T>(0)[i * x.columns + j]);
      c.out<T>(0)[i] = static_cast<T>(sum);
    }
  }
};

template <class T>
struct Embedding {
  std::string name;
  Rows table;
  std::int64_t ids;
  explicit Embedding(const KernelDesc& d)
      : name(d.name), table(rows_of(d.inputs[0])), ids(count_of(d.inputs[1])) {}
  void operator()(const KernelCall& c) const {
    const auto* id = c.in<std::int32_t>(1);
    check_indices(name, id, ids, table.rows, 0);
    for (std::int64_t i = 0; i < ids; ++i)
      std::copy_n(c.in<T>(0) + id[i] * table.columns, table.columns,
                  c.out<T>(0) + i * table.columns);
  }
};

template <class T>
struct EmbeddingGrad {
  std::string name;
  Rows table;
  std::int64_t ids;
  explicit EmbeddingGrad(const KernelDesc& d)
      : name(d.name), table(rows_of(d.outputs[0])), ids(count_of(d.inputs[0])) {}
  void operator()(const KernelCall& c) const {
    const auto* id = c.in<std::int32_t>(0);
    const T* dy = c.in<T>(1);
    T* dw = c.out<T>(0);
    check_indices(name, id, ids, table.rows, 0);
    std::fill_n(dw, table.elements(), T(0));
    for (std::int64_t i = 0; i < ids; ++i)
      for (std::int64_t j = 0; j < table.columns; ++j)
        dw[id[i] * table.columns + j] += dy[i * table.columns + j];
  }
};

}  // namespace

const KernelTable& reference_linear_rows() {
  static const KernelTable kRows = {
      {"linear", "reference", nullptr, reference<Linear>},
      {"linear_relu", "reference", nullptr, reference<Then<fn::Relu>::One>},
      {"linear_gelu", "reference", nullptr, reference<Then<fn::Gelu<>>::One>},
      {"linear_gelu_tanh", "reference", nullptr, reference<Then<fn::GeluTanh<>>::One>},
      {"linear_input_grad", "reference", nullptr, reference<LinearInputGrad>},
      {"linear_input_grad_add", "reference", nullptr, reference<LinearInputGradAdd>},
      {"linear_weight_grad", "reference", nullptr, reference<LinearWeightGrad>},
      {"linear_weight_bias_grad", "reference", nullptr, reference<LinearWeightBiasGrad>},
      {"kronecker_factor", "reference", nullptr, reference<KroneckerFactor>},
      {"matmul", "reference", nullptr, reference<Matmul>},
      {"sum", "reference", nullptr, reference<Sum>},
      {"sum_last", "reference", nullptr, reference<SumLast>},
      {"sum_rows", "reference", nullptr, reference<SumRows>},
      {"embedding", "reference", nullptr, reference<Embedding>},
      {"embedding_grad", "reference", nullptr, reference<EmbeddingGrad>},
  };
  return kRows;
}

}  // namespace hetu::cpu
