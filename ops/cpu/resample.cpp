// Means of windows, and interpolation, for plain images. Threads take different planes.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/cpu/image_shapes.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

/// Calls body(plane) for every channel of every image.
template <class Body>
void for_planes(const Images& images, std::int64_t elements, const Body& body) {
  const std::int64_t planes = images.n * images.channels;
#pragma omp parallel for schedule(static) if (elements > kParallelElements)
  for (std::int64_t plane = 0; plane < planes; ++plane) body(plane);
}

struct MeanWindows {
  Images x, y;
  Windows w;
  bool count_padding;
  MeanWindows(const KernelDesc& d, const TensorType& whole, const TensorType& means)
      : x(images_of(whole)),
        y(images_of(means)),
        w(pool_windows(*d.attrs)),
        count_padding(d.attrs->integer("count_padding") != 0) {}

  /// Calls body(element of y, rows, columns, divisor) for each window of a plane, clipped to the
  /// image.
  template <class Body>
  void each(const Body& body) const {
    for (std::int64_t i = 0; i < y.height; ++i)
      for (std::int64_t j = 0; j < y.width; ++j) {
        const std::int64_t top = i * w.stride - w.padding, left = j * w.stride - w.padding;
        const Span rows = inside(top, w.height, x.height), columns = inside(left, w.width, x.width);
        const std::int64_t seen = (rows.end - rows.begin) * (columns.end - columns.begin);
        body(i * y.width + j, Span{top + rows.begin, top + rows.end},
             Span{left + columns.begin, left + columns.end},
             double(count_padding ? w.height * w.width : seen));
      }
  }
};

template <class T>
struct AvgPool2d : MeanWindows {
  explicit AvgPool2d(const KernelDesc& d) : MeanWindows(d, d.inputs[0], d.outputs[0]) {}
  void operator()(const KernelCall& c) const {
    for_planes(x, x.elements(), [&](std::int64_t plane) {
      const T* from = c.in<T>(0) + plane * x.plane();
      T* to = c.out<T>(0) + plane * y.plane();
      each([&](std::int64_t at, Span rows, Span columns, double count) {
        double sum = 0;
        for (std::int64_t p = rows.begin; p < rows.end; ++p)
          for (std::int64_t q = columns.begin; q < columns.end; ++q)
            sum += double(from[p * x.width + q]);
        to[at] = static_cast<T>(sum / count);
      });
    });
  }
};

template <class T>
struct AvgPool2dGrad : MeanWindows {
  explicit AvgPool2dGrad(const KernelDesc& d) : MeanWindows(d, d.outputs[0], d.inputs[0]) {}
  void operator()(const KernelCall& c) const {
    for_planes(x, x.elements(), [&](std::int64_t plane) {
      const T* dy = c.in<T>(0) + plane * y.plane();
      T* dx = c.out<T>(0) + plane * x.plane();
      std::fill_n(dx, x.plane(), T(0));
      each([&](std::int64_t at, Span rows, Span columns, double count) {
        const T share = static_cast<T>(double(dy[at]) / count);
        for (std::int64_t p = rows.begin; p < rows.end; ++p)
          for (std::int64_t q = columns.begin; q < columns.end; ++q) dx[p * x.width + q] += share;
      });
    });
  }
};

/// A row or column of y is (1 - share) of `first` plus `share` of `second`.
struct Tap {
  std::int64_t first, second;
  double share;
};

std::vector<Tap> taps(std::int64_t from, std::int64_t to, const Attrs& attrs) {
  const bool align = attrs.integer("align_corners") != 0;
  std::vector<Tap> all;
  for (std::int64_t i = 0; i < to; ++i) {
    if (attrs.integer("linear") == 0) {
      all.push_back({i * from / to, i * from / to, 0.0});
      continue;
    }
    const double ratio = double(from) / double(to);
    double place = std::max(0.0, (double(i) + 0.5) * ratio - 0.5);
    if (align) place = to > 1 ? double(i) * double(from - 1) / double(to - 1) : 0.0;
    const auto first = std::min(static_cast<std::int64_t>(place), from - 1);
    const std::int64_t second = std::min(first + 1, from - 1);
    all.push_back({first, second, second > first ? place - double(first) : 0.0});
  }
  return all;
}

struct Grid {
  Images x, y;
  std::vector<Tap> rows, columns;
  Grid(const KernelDesc& d, const TensorType& small, const TensorType& made)
      : x(images_of(small)),
        y(images_of(made)),
        rows(taps(x.height, y.height, *d.attrs)),
        columns(taps(x.width, y.width, *d.attrs)) {}

  /// Calls body(element of y, element of x, its share) for all elements of a plane. Shares of 0 are
  /// omitted.
  template <class Body>
  void each(const Body& body) const {
    for (std::int64_t i = 0; i < y.height; ++i)
      for (std::int64_t j = 0; j < y.width; ++j) {
        const Tap &row = rows[static_cast<std::size_t>(i)],
                  &column = columns[static_cast<std::size_t>(j)];
        const std::int64_t at = i * y.width + j;
        const auto both = [&](std::int64_t r, double share) {
          body(at, r * x.width + column.first, share * (1 - column.share));
          if (column.share > 0) body(at, r * x.width + column.second, share * column.share);
        };
        both(row.first, 1 - row.share);
        if (row.share > 0) both(row.second, row.share);
      }
  }
};

template <class T>
struct Resize2d : Grid {
  explicit Resize2d(const KernelDesc& d) : Grid(d, d.inputs[0], d.outputs[0]) {}
  void operator()(const KernelCall& c) const {
    for_planes(y, y.elements(), [&](std::int64_t plane) {
      const T* from = c.in<T>(0) + plane * x.plane();
      T* to = c.out<T>(0) + plane * y.plane();
      std::fill_n(to, y.plane(), T(0));
      each([&](std::int64_t at, std::int64_t of, double share) {
        to[at] += static_cast<T>(share * double(from[of]));
      });
    });
  }
};

template <class T>
struct Resize2dGrad : Grid {
  explicit Resize2dGrad(const KernelDesc& d) : Grid(d, d.outputs[0], d.inputs[0]) {}
  void operator()(const KernelCall& c) const {
    for_planes(x, y.elements(), [&](std::int64_t plane) {
      const T* dy = c.in<T>(0) + plane * y.plane();
      T* dx = c.out<T>(0) + plane * x.plane();
      std::fill_n(dx, x.plane(), T(0));
      each([&](std::int64_t at, std::int64_t of, double share) {
        dx[of] += static_cast<T>(share * double(dy[at]));
      });
    });
  }
};

}  // namespace

const KernelTable& reference_resample_rows() {
  static const KernelTable kRows = {
      {"avg_pool2d", "reference", nullptr, reference<AvgPool2d>},
      {"avg_pool2d_grad", "reference", nullptr, reference<AvgPool2dGrad>},
      {"resize2d", "reference", nullptr, reference<Resize2d>},
      {"resize2d_grad", "reference", nullptr, reference<Resize2dGrad>},
  };
  return kRows;
}

}  // namespace hetu::cpu
