// Sums over rows, and embedding tables. The order of every sum is independent of the number of
// threads. Threads take different columns, table rows or fixed blocks, and never divide a sum.
#include <omp.h>

#include <algorithm>
#include <cstring>

#include "ops/cpu/check_indices.h"
#include "ops/cpu/column_sums.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

template <class T>
struct SumRows {
  Rows x;
  explicit SumRows(const KernelDesc& d) : x(rows_of(d.inputs[0])) {}
  void operator()(const KernelCall& c) const { sum_rows(x, c.in<T>(0), c.out<float>(0)); }
};

template <class T>
struct LayerNormGammaGrad {
  Rows x;
  explicit LayerNormGammaGrad(const KernelDesc& d) : x(rows_of(d.inputs[0])) {}
  void operator()(const KernelCall& c) const {
    const T *in = c.in<T>(0), *dy = c.in<T>(3);
    const float *mean = c.in<float>(1), *rstd = c.in<float>(2);
    const std::int64_t columns = x.columns;
    sum_columns(x, c.out<float>(0),
                [=](std::int64_t i, std::int64_t begin, std::int64_t width, float* part) {
                  const T *row = in + i * columns + begin, *g = dy + i * columns + begin;
                  const float m = mean[i], r = rstd[i];
#pragma omp simd
                  for (std::int64_t j = 0; j < width; ++j)
                    part[j] += float(g[j]) * ((float(row[j]) - m) * r);
                });
  }
};

/// Blocks of 4096 elements are added in float64 by any thread, then the blocks' sums in order.
struct Sum {
  static constexpr std::int64_t kBlock = 4096;
  std::int64_t n;
  explicit Sum(std::int64_t elements) : n(elements) {}
  std::int64_t blocks() const { return (n + kBlock - 1) / kBlock; }

  void operator()(const KernelCall& c) const {
    const float* x = c.in<float>(0);
    auto* sums = static_cast<double*>(c.scratch);
#pragma omp parallel for schedule(static) if (n > kParallelElements)
    for (std::int64_t b = 0; b < blocks(); ++b) {
      const std::int64_t end = std::min(n, (b + 1) * kBlock);
      double sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t i = b * kBlock; i < end; ++i) sum += double(x[i]);
      sums[b] = sum;
    }
    double total = 0;
    for (std::int64_t b = 0; b < blocks(); ++b) total += sums[b];
    c.out<float>(0)[0] = static_cast<float>(total);
  }
};

PreparedKernel sum(const KernelDesc& d) {
  const Sum body(count_of(d.inputs[0]));
  return {body, body.blocks() * std::int64_t(sizeof(double)), "vector"};
}

struct Embedding {
  std::string name;
  Rows table;
  std::int64_t ids;
  explicit Embedding(const KernelDesc& d)
      : name(d.name), table(rows_of(d.inputs[0])), ids(count_of(d.inputs[1])) {}
  void operator()(const KernelCall& c) const {
    const auto* id = c.in<std::int32_t>(1);
    check_indices(name, id, ids, table.rows, 0);
    const float* w = c.in<float>(0);
    float* y = c.out<float>(0);
    const std::int64_t n = table.columns;
#pragma omp parallel for schedule(static) if (ids * n > kParallelElements)
    for (std::int64_t i = 0; i < ids; ++i) std::memcpy(y + i * n, w + id[i] * n, n * sizeof(float));
  }
};

/// Each thread owns a range of table rows. It clears them, and adds the dy that belong to them in
/// order. Every thread reads all ids, which are few compared with the table.
struct EmbeddingGrad {
  std::string name;
  Rows table;
  std::int64_t ids;
  explicit EmbeddingGrad(const KernelDesc& d)
      : name(d.name), table(rows_of(d.outputs[0])), ids(count_of(d.inputs[0])) {}
  void operator()(const KernelCall& c) const {
    const auto* id = c.in<std::int32_t>(0);
    check_indices(name, id, ids, table.rows, 0);
    const float* dy = c.in<float>(1);
    float* dw = c.out<float>(0);
#pragma omp parallel if (table.elements() + ids * table.columns > kParallelElements)
    {
      const std::int64_t team = omp_get_num_threads(), me = omp_get_thread_num();
      const std::int64_t begin = table.rows * me / team, end = table.rows * (me + 1) / team;
      add_range(id, dy, dw, begin, end);
    }
  }
  void add_range(const std::int32_t* id, const float* dy, float* dw, std::int64_t begin,
                 std::int64_t end) const {
    const std::int64_t n = table.columns;
    std::memset(dw + begin * n, 0, (end - begin) * n * sizeof(float));
    for (std::int64_t i = 0; i < ids; ++i) {
      if (id[i] < begin || id[i] >= end) continue;
      const float* from = dy + i * n;
      float* to = dw + id[i] * n;
#pragma omp simd
      for (std::int64_t j = 0; j < n; ++j) to[j] += from[j];
    }
  }
};

}  // namespace

const KernelTable& vector_reduce_rows() {
  static const KernelTable kRows = {
      {"sum", "vector", is_float32, sum},
      {"sum_rows", "vector", is_float32_or_bfloat16, vector_either<SumRows>},
      {"layer_norm_gamma_grad", "vector", is_float32_or_bfloat16,
       vector_either<LayerNormGammaGrad>},
      {"embedding", "vector", is_float32, vector_kernel<Embedding>},
      {"embedding_grad", "vector", is_float32, vector_kernel<EmbeddingGrad>},
  };
  return kRows;
}

}  // namespace hetu::cpu
