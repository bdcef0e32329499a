// Selection of rows by index, and its gradients. Rows with the same index are added in ascending
// order, as on the CPU. So no bit depends on which thread runs first.
#include <launch.h>

#include "ops/cpu/axis_shape.h"
#include "ops/cuda/chains.h"
#include "ops/cuda/indices.h"
#include "ops/cuda/rows.h"

namespace hetu::cuda {
namespace {

using cpu::count_of;
using cpu::Rows;
using cpu::rows_of;

/// A body that copies row ids[r] of `whole` rows to row r of `picked` rows, for each outer part. A
/// bad index gives zeros.
struct PickOf {
  const float* x;
  const std::int32_t* ids;
  float* y;
  std::int64_t picked, whole, inner;
  Indices indices;
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t r = i / inner;
    const bool good = indices.good(r, ids[r]);
    y[i] = good ? x[(r / picked * whole + ids[r]) * inner + i % inner] : 0.0F;
  }
};

/// Chains of rows with a valid index.
struct GoodRows {
  Indices indices;
  HETU_HD bool begins(std::int64_t r, std::int32_t id) const { return indices.good(r, id); }
  HETU_HD bool counts(std::int64_t) const { return true; }
};

struct ChainSumOf {
  const std::int32_t *ids, *first, *next;
  const float* dy;
  float* dx;
  std::int64_t picked, whole, inner;
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t r = i / inner, j = i % inner;
    if (first[r] == 0) return;
    dx[(r / picked * whole + ids[r]) * inner + j] = chain_sum(next, r, dy, inner, j);
  }
};

/// A selection of rows. Each of `outer` parts has `whole` rows of `inner` elements, of which ids
/// select `picked` rows.
struct Picked {
  std::int64_t outer, whole, inner, picked = 0;
  IndexRule rule;
  Picked(const KernelDesc& d, const cpu::Axis& a, const TensorType& ids)
      : outer(a.outer), whole(a.size), inner(a.inner), rule(d.name, a.size) {
    if (outer > 0) picked = count_of(ids) / outer;
  }
  std::int64_t rows() const { return outer * picked; }
  std::int64_t sum_scratch() const { return 2 * rows() * std::int64_t{sizeof(std::int32_t)}; }

  void pick(const float* x, const std::int32_t* ids, float* y) const {
    for_each(rows() * inner, PickOf{x, ids, y, picked, whole, inner, rule.now()});
  }
  void sum(const std::int32_t* ids, const float* dy, float* dx, void* scratch) const {
    auto* first = static_cast<std::int32_t*>(scratch);
    auto* next = first + rows();
    clear(dx, outer * whole * inner * std::int64_t{sizeof(float)});
    for_each(rows(), ChainOf<GoodRows>{ids, first, next, rows(), picked, {rule.now()}});
    for_each(rows() * inner, ChainSumOf{ids, first, next, dy, dx, picked, whole, inner});
  }
};

cpu::Axis as_table(const TensorType& type) {
  const Rows t = rows_of(type);
  return {1, t.rows, t.columns};
}

cpu::Axis axis_of_node(const KernelDesc& d, const TensorType& type) {
  return cpu::axis_of(type.shape, d.attrs->integer("axis"));
}

struct Embedding : Picked {
  explicit Embedding(const KernelDesc& d) : Picked(d, as_table(d.inputs[0]), d.inputs[1]) {}
  void operator()(const KernelCall& c) const {
    pick(c.in<float>(0), c.in<std::int32_t>(1), c.out<float>(0));
  }
};

struct EmbeddingGrad : Picked {
  explicit EmbeddingGrad(const KernelDesc& d) : Picked(d, as_table(d.outputs[0]), d.inputs[0]) {}
  std::int64_t scratch_bytes() const { return sum_scratch(); }
  void operator()(const KernelCall& c) const {
    sum(c.in<std::int32_t>(0), c.in<float>(1), c.out<float>(0), c.scratch);
  }
};

struct Gather : Picked {
  explicit Gather(const KernelDesc& d) : Picked(d, axis_of_node(d, d.inputs[0]), d.inputs[1]) {}
  void operator()(const KernelCall& c) const {
    pick(c.in<float>(0), c.in<std::int32_t>(1), c.out<float>(0));
  }
};

/// Prepares a gather. The float32 kernel also moves int32, which has the same size.
PreparedKernel gather(const KernelDesc& d) {
  const DType dtype = d.inputs[0].dtype;
  if (dtype == DType::Int32) return kernel<Gather>(d);
  if (is_floating(dtype)) return floats<Gather>(d);
  fail(Code::Unsupported,
       "gather '{}': no CUDA kernel for {}; supported types: float32, bfloat16 and int32", d.name,
       dtype_name(dtype));
}

struct ScatterAdd : Picked {
  explicit ScatterAdd(const KernelDesc& d)
      : Picked(d, axis_of_node(d, d.outputs[0]), d.inputs[0]) {}
  std::int64_t scratch_bytes() const { return sum_scratch(); }
  void operator()(const KernelCall& c) const {
    sum(c.in<std::int32_t>(0), c.in<float>(1), c.out<float>(0), c.scratch);
  }
};

}  // namespace

const KernelTable& embedding_rows() {
  static const KernelTable kRows = {
      row("embedding", floats<Embedding>),
      row("embedding_grad", floats<EmbeddingGrad>),
      row("gather", gather),
      row("scatter_add", floats<ScatterAdd>),
  };
  return kRows;
}

}  // namespace hetu::cuda
