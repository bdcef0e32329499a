// Gather and scatter along an axis. gather copies bytes, so one kernel serves every dtype.
// scatter_add has one kernel too: rows with the same index are added in order, on one thread.
#include <algorithm>
#include <cstring>

#include "ops/cpu/axis_shape.h"
#include "ops/cpu/check_indices.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

/// `outer` groups of `whole` rows with `inner` elements, from which ids select `picked` rows each.
struct PickedRows {
  std::string name;
  std::int64_t outer, whole, inner, picked = 0;
  PickedRows(const KernelDesc& d, const TensorType& rows, const TensorType& ids) : name(d.name) {
    const Axis a = axis_of(rows.shape, d.attrs->integer("axis"));
    outer = a.outer;
    whole = a.size;
    inner = a.inner;
    if (outer > 0) picked = count_of(ids) / outer;
  }
  void check(const std::int32_t* ids) const { check_indices(name, ids, outer * picked, whole, 0); }
};

PreparedKernel gather(const KernelDesc& d) {
  const PickedRows p(d, d.inputs[0], d.inputs[1]);
  const std::int64_t bytes = p.inner * dtype_bytes(d.inputs[0].dtype);
  return {[p, bytes](const KernelCall& c) {
            const auto* ids = c.in<std::int32_t>(1);
            p.check(ids);
            const std::int64_t rows = bytes > 0 ? p.outer * p.picked : 0;
#pragma omp parallel for if (rows * bytes > kParallelElements * 4)
            for (std::int64_t r = 0; r < rows; ++r)
              std::memcpy(c.out<char>(0) + r * bytes,
                          c.in<char>(0) + (r / p.picked * p.whole + ids[r]) * bytes, bytes);
          },
          0, "reference"};
}

template <class T>
struct ScatterAdd : PickedRows {
  explicit ScatterAdd(const KernelDesc& d) : PickedRows(d, d.outputs[0], d.inputs[0]) {}
  void operator()(const KernelCall& c) const {
    const auto* ids = c.in<std::int32_t>(0);
    check(ids);
    std::fill_n(c.out<T>(0), outer * whole * inner, T(0));
#pragma omp parallel for if (outer * picked * inner > kParallelElements)
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t r = o * picked; r < (o + 1) * picked; ++r) {
        const T* from = c.in<T>(1) + r * inner;
        T* to = c.out<T>(0) + (o * whole + ids[r]) * inner;
        for (std::int64_t j = 0; j < inner; ++j) to[j] += from[j];
      }
  }
};

}  // namespace

const KernelTable& reference_gather_rows() {
  static const KernelTable kRows = {
      {"gather", "reference", nullptr, gather},
      {"scatter_add", "reference", nullptr, reference<ScatterAdd>},
  };
  return kRows;
}

}  // namespace hetu::cpu
