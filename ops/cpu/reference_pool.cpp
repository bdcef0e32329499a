// Pooling as plain loops.
#include <algorithm>
#include <cmath>

#include "ops/cpu/check_indices.h"
#include "ops/cpu/image_shapes.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

template <class T>
struct MaxPool2d {
  Images x, y;
  Windows w;
  explicit MaxPool2d(const KernelDesc& d)
      : x(images_of(d.inputs[0])), y(images_of(d.outputs[0])), w(pool_windows(*d.attrs)) {}
  void operator()(const KernelCall& call) const {
    const std::int64_t planes = y.n * y.channels;
#pragma omp parallel for if (y.elements() > kParallelElements)
    for (std::int64_t plane = 0; plane < planes; ++plane)
      for (std::int64_t i = 0; i < y.height; ++i)
        for (std::int64_t j = 0; j < y.width; ++j) {
          const T* from = call.in<T>(0) + plane * x.plane();
          const std::int64_t best = window(from, i, j), at = (plane * y.height + i) * y.width + j;
          call.out<T>(0)[at] = from[best];
          call.out<std::int32_t>(1)[at] = static_cast<std::int32_t>(best);
        }
  }

 private:
  std::int64_t window(const T* from, std::int64_t i, std::int64_t j) const {
    const std::int64_t top = i * w.stride - w.padding, left = j * w.stride - w.padding;
    const Span rows = inside(top, w.height, x.height), columns = inside(left, w.width, x.width);
    std::int64_t best = (top + rows.begin) * x.width + left + columns.begin;
    for (std::int64_t p = rows.begin; p < rows.end; ++p)
      for (std::int64_t q = columns.begin; q < columns.end; ++q) {
        const std::int64_t at = (top + p) * x.width + left + q;
        // A NaN beats every number, and the last NaN wins, as in PyTorch.
        if (from[at] > from[best] || std::isnan(from[at])) best = at;
      }
    return best;
  }
};

template <class T>
struct MaxPool2dGrad {
  std::string name;
  Images x, y;
  explicit MaxPool2dGrad(const KernelDesc& d)
      : name(d.name), x(images_of(d.outputs[0])), y(images_of(d.inputs[0])) {}
  void operator()(const KernelCall& call) const {
    const auto* index = call.in<std::int32_t>(1);
    check_indices(name, index, y.elements(), x.plane(), 0);
    const std::int64_t planes = y.n * y.channels;
#pragma omp parallel for if (y.elements() > kParallelElements)
    for (std::int64_t plane = 0; plane < planes; ++plane) {
      T* dx = call.out<T>(0) + plane * x.plane();
      std::fill_n(dx, x.plane(), T(0));
      for (std::int64_t i = plane * y.plane(); i < (plane + 1) * y.plane(); ++i)
        dx[index[i]] += call.in<T>(0)[i];
    }
  }
};

template <class T>
struct GlobalAvgPool {
  Images x;
  explicit GlobalAvgPool(const KernelDesc& d) : x(images_of(d.inputs[0])) {}
  void operator()(const KernelCall& call) const {
    for (std::int64_t plane = 0; plane < x.n * x.channels; ++plane) {
      double sum = 0;
      for (std::int64_t i = 0; i < x.plane(); ++i)
        sum += double(call.in<T>(0)[plane * x.plane() + i]);
      call.out<T>(0)[plane] = static_cast<T>(sum / double(x.plane()));
    }
  }
};

template <class T>
struct GlobalAvgPoolGrad {
  Images x;
  explicit GlobalAvgPoolGrad(const KernelDesc& d) : x(images_of(d.outputs[0])) {}
  void operator()(const KernelCall& call) const {
    for (std::int64_t plane = 0; plane < x.n * x.channels; ++plane)
      std::fill_n(call.out<T>(0) + plane * x.plane(), x.plane(),
                  call.in<T>(0)[plane] / static_cast<T>(x.plane()));
  }
};

}  // namespace

const KernelTable& reference_pool_rows() {
  static const KernelTable kRows = {
      {"max_pool2d", "reference", nullptr, reference<MaxPool2d>},
      {"max_pool2d_grad", "reference", nullptr, reference<MaxPool2dGrad>},
      {"global_avg_pool", "reference", nullptr, reference<GlobalAvgPool>},
      {"global_avg_pool_grad", "reference", nullptr, reference<GlobalAvgPoolGrad>},
  };
  return kRows;
}

}  // namespace hetu::cpu
