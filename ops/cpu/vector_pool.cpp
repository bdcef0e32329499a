// Pooling of channels-last images, and changes from and to this layout. Vectors run along the
// channels.
#include <algorithm>
#include <cmath>

#include "ops/cpu/check_indices.h"
#include "ops/cpu/image_shapes.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/set_rounded.h"
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
    const T* in = call.in<T>(0);
    T* out = call.out<T>(0);
    auto* index = call.out<std::int32_t>(1);
#pragma omp parallel for schedule(static) if (y.elements() > kParallelElements)
    for (std::int64_t row = 0; row < y.n * y.height; ++row)
      for (std::int64_t j = 0; j < y.width; ++j) {
        const std::int64_t at = (row * y.width + j) * y.channels;
        window(in + row / y.height * x.plane() * x.channels, row % y.height, j, out + at,
               index + at);
      }
  }

 private:
  void window(const T* in, std::int64_t i, std::int64_t j, T* y_C, std::int32_t* index_C) const {
    const std::int64_t top = i * w.stride - w.padding, left = j * w.stride - w.padding;
    const Span rows = inside(top, w.height, x.height), columns = inside(left, w.width, x.width);
    bool first = true;
    for (std::int64_t p = rows.begin; p < rows.end; ++p)
      for (std::int64_t q = columns.begin; q < columns.end; ++q, first = false) {
        const auto at = static_cast<std::int32_t>((top + p) * x.width + left + q);
        const T* x_C = in + at * x.channels;
        if (first) {
          std::copy_n(x_C, x.channels, y_C);
          std::fill_n(index_C, x.channels, at);
          continue;
        }
#pragma omp simd
        for (std::int64_t c = 0; c < x.channels; ++c) {
          // Not "smaller or equal", because a NaN beats every number, and the last NaN wins.
          const float v = float(x_C[c]), best = float(y_C[c]);
          const bool more = !(v <= best) && !(best != best && v == v);
          set_rounded(y_C[c], more ? v : best);
          index_C[c] = more ? at : index_C[c];
        }
      }
  }
};

struct MaxPool2dGrad {
  std::string name;
  Images x, y;
  explicit MaxPool2dGrad(const KernelDesc& d)
      : name(d.name), x(images_of(d.outputs[0])), y(images_of(d.inputs[0])) {}
  void operator()(const KernelCall& call) const {
    const float* dy = call.in<float>(0);
    const auto* index = call.in<std::int32_t>(1);
    check_indices(name, index, y.elements(), x.plane(), 0);
    const std::int64_t channels = x.channels;
#pragma omp parallel for schedule(static) if (y.elements() > kParallelElements)
    for (std::int64_t n = 0; n < x.n; ++n) {
      float* dx = call.out<float>(0) + n * x.plane() * channels;
      std::fill_n(dx, x.plane() * channels, 0.0f);
      for (std::int64_t i = n * y.plane(); i < (n + 1) * y.plane(); ++i)
        for (std::int64_t c = 0; c < channels; ++c)
          dx[index[i * channels + c] * channels + c] += dy[i * channels + c];
    }
  }
};

template <class T>
struct GlobalAvgPool {
  Images x;
  explicit GlobalAvgPool(const KernelDesc& d) : x(images_of(d.inputs[0])) {}
  void operator()(const KernelCall& call) const {
    const T* in = call.in<T>(0);
    float* out = call.out<float>(0);
    const std::int64_t channels = x.channels;
#pragma omp parallel for schedule(static) if (x.elements() > kParallelElements)
    for (std::int64_t n = 0; n < x.n; ++n) {
      float* mean = out + n * channels;
      std::fill_n(mean, channels, 0.0f);
      for (std::int64_t p = n * x.plane(); p < (n + 1) * x.plane(); ++p)
#pragma omp simd
        for (std::int64_t c = 0; c < channels; ++c) mean[c] += float(in[p * channels + c]);
      const auto count = float(x.plane());
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c) mean[c] /= count;
    }
  }
};

template <class T>
struct GlobalAvgPoolGrad {
  Images x;
  explicit GlobalAvgPoolGrad(const KernelDesc& d) : x(images_of(d.outputs[0])) {}
  void operator()(const KernelCall& call) const {
    const T* dy = call.in<T>(0);
    T* dx = call.out<T>(0);
    const std::int64_t channels = x.channels;
    const auto count = float(x.plane());
#pragma omp parallel for schedule(static) if (x.elements() > kParallelElements)
    for (std::int64_t p = 0; p < x.per_channel(); ++p)
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c)
        set_rounded(dx[p * channels + c], float(dy[p / x.plane() * channels + c]) / count);
  }
};

/// Transposes each image's matrix [rows, columns], in tiles that stay in cache.
template <class T>
struct Reorder {
  std::int64_t n, rows, columns;
  explicit Reorder(const KernelDesc& d) {
    const Images x = images_of(d.inputs[0]);
    const bool last = d.op == "channels_last";
    n = x.n;
    rows = last ? x.channels : x.plane();
    columns = last ? x.plane() : x.channels;
  }
  void operator()(const KernelCall& call) const {
    constexpr std::int64_t kTile = 32;
    const std::int64_t tiles = (columns + kTile - 1) / kTile;
#pragma omp parallel for schedule(static) if (n * rows * columns > kParallelElements)
    for (std::int64_t t = 0; t < n * tiles; ++t) {
      const std::int64_t image = t / tiles * rows * columns, begin = t % tiles * kTile;
      const std::int64_t end = std::min(columns, begin + kTile);
      const T* from = call.in<T>(0) + image;
      T* to = call.out<T>(0) + image;
      for (std::int64_t r = 0; r < rows; r += kTile)
        for (std::int64_t c = begin; c < end; ++c)
          for (std::int64_t i = r; i < std::min(rows, r + kTile); ++i)
            to[c * rows + i] = from[i * columns + c];
    }
  }
};

}  // namespace

const KernelTable& vector_pool_rows() {
  constexpr auto kLast = ImageLayouts::ChannelsLast;
  static const KernelTable kRows = {
      {"max_pool2d", "vector", is_float32_or_bfloat16, vector_either<MaxPool2d>, kLast},
      {"max_pool2d_grad", "vector", is_float32, vector_kernel<MaxPool2dGrad>, kLast},
      {"global_avg_pool", "vector", is_float32_or_bfloat16, vector_either<GlobalAvgPool>, kLast},
      {"global_avg_pool_grad", "vector", is_float32_or_bfloat16, vector_either<GlobalAvgPoolGrad>,
       kLast},
      {"channels_last", "reference", nullptr, reference<Reorder>},
      {"plain", "reference", nullptr, reference<Reorder>},
  };
  return kRows;
}

}  // namespace hetu::cpu
