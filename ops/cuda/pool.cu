// Mean pooling, global pooling and resizing. One thread computes an element of the result, for
// global pooling one block. All kernels gather, so every sum has a single order.
#include <launch.h>

#include <cmath>

#include "ops/cuda/images.h"

namespace hetu::cuda {
namespace {

struct PlaneMeanOf : RowWork {
  static constexpr int kRounds = 1;
  const float* x;
  float* y;
  PlacedImages from;
  HETU_HD double term(int, std::int64_t i, std::int64_t pixel, const double*) const {
    return x[from.at(i / from.channels, i % from.channels, pixel)];
  }
  HETU_HD void write(std::int64_t, std::int64_t, const double*) const {}
  HETU_HD void finish(std::int64_t i, const double* sum) const {
    y[i] = static_cast<float>(sum[0] / double(from.plane()));
  }
};

struct GlobalAvgPool {
  PlacedImages from;
  explicit GlobalAvgPool(const KernelDesc& d) : from(placed(d.inputs[0], d)) {}
  void operator()(const KernelCall& c) const {
    for_rows(from.n * from.channels, from.plane(),
             PlaneMeanOf{{}, c.in<float>(0), c.out<float>(0), from});
  }
};

struct PlaneShareOf {
  const float* dy;
  float* dx;
  PlacedImages to;
  HETU_HD void operator()(std::int64_t i) const {
    const ImagePosition at = to.place(i);
    dx[i] = dy[at.image * to.channels + at.channel] / static_cast<float>(to.plane());
  }
};

struct GlobalAvgPoolGrad {
  PlacedImages to;
  explicit GlobalAvgPoolGrad(const KernelDesc& d) : to(placed(d.outputs[0], d)) {}
  void operator()(const KernelCall& c) const {
    for_each(to.elements(), PlaneShareOf{c.in<float>(0), c.out<float>(0), to});
  }
};

/// Sliding windows whose means are computed.
struct MeanWindows : SlidingWindows {
  bool count_padding;
  MeanWindows(const KernelDesc& d, const TensorType& whole, const TensorType& means)
      : SlidingWindows(d, whole, means), count_padding(d.attrs->integer("count_padding") != 0) {}
  /// Returns the divisor for the sum of a window.
  HETU_HD double count(Cut r, Cut c) const {
    const std::int64_t seen = (r.end - r.begin) * (c.end - c.begin);
    return double(count_padding ? kernel * kernel : seen);
  }
};

struct AvgPoolOf {
  const float* x;
  float* y;
  MeanWindows w;
  HETU_HD void operator()(std::int64_t i) const {
    const ImagePosition at = w.y.place(i);
    const Cut rows = w.rows(at.pixel / w.y.width), columns = w.columns(at.pixel % w.y.width);
    double sum = 0;
    for (std::int64_t p = rows.begin; p < rows.end; ++p)
      for (std::int64_t q = columns.begin; q < columns.end; ++q)
        sum += x[w.x.at(at.image, at.channel, p * w.x.width + q)];
    y[i] = static_cast<float>(sum / w.count(rows, columns));
  }
};

struct AvgPoolGradOf {
  const float* dy;
  float* dx;
  MeanWindows w;
  HETU_HD void operator()(std::int64_t i) const {
    const ImagePosition at = w.x.place(i);
    const Cut down = w.covering(at.pixel / w.x.width, w.y.height);
    const Cut across = w.covering(at.pixel % w.x.width, w.y.width);
    double sum = 0;
    for (std::int64_t p = down.begin; p < down.end; ++p)
      for (std::int64_t q = across.begin; q < across.end; ++q)
        sum +=
            dy[w.y.at(at.image, at.channel, p * w.y.width + q)] / w.count(w.rows(p), w.columns(q));
    dx[i] = static_cast<float>(sum);
  }
};

struct AvgPool {
  MeanWindows w;
  explicit AvgPool(const KernelDesc& d) : w(d, d.inputs[0], d.outputs[0]) {}
  void operator()(const KernelCall& c) const {
    for_each(w.y.elements(), AvgPoolOf{c.in<float>(0), c.out<float>(0), w});
  }
};

struct AvgPoolGrad {
  MeanWindows w;
  explicit AvgPoolGrad(const KernelDesc& d) : w(d, d.outputs[0], d.inputs[0]) {}
  void operator()(const KernelCall& c) const {
    for_each(w.x.elements(), AvgPoolGradOf{c.in<float>(0), c.out<float>(0), w});
  }
};

/// The inputs of position i of an axis of y: (1 - share) of position `first` of x, and `share` of
/// the next.
struct Tap {
  std::int64_t first;
  double share;
  HETU_HD double of(std::int64_t place) const {
    return place == first ? 1 - share : place == first + 1 ? share : 0.0;
  }
};

struct ResizedAxis {
  std::int64_t from, to;
  bool linear, align;
  HETU_HD Tap tap(std::int64_t i) const {
    if (!linear) return {i * from / to, 0.0};
    double place = 0;
    if (!align)
      place = (double(i) + 0.5) * (double(from) / double(to)) - 0.5;
    else if (to > 1)
      place = double(i) * double(from - 1) / double(to - 1);
    if (place < 0) place = 0;
    std::int64_t first = static_cast<std::int64_t>(place);
    if (first > from - 1) first = from - 1;
    return {first, first + 1 < from ? place - double(first) : 0.0};
  }
  /// Returns a range that contains all positions of y that depend on position `at` of x. It may be
  /// larger than needed.
  HETU_HD Cut seeing(std::int64_t at) const {
    const double per =
        align && from > 1 ? double(to - 1) / double(from - 1) : double(to) / double(from);
    const auto begin = static_cast<std::int64_t>((double(at) - 1) * per) - 2;
    const auto end = static_cast<std::int64_t>((double(at) + 2) * per) + 3;
    // If x has a single position, all of y depends on it. With align_corners the range above
    // suffices at the ends.
    if (from == 1) return {0, to};
    return {begin < 0 ? 0 : begin, end < to ? end : to};
  }
};

struct Resizing {
  PlacedImages x, y;
  ResizedAxis rows, columns;
  Resizing(const KernelDesc& d, const TensorType& small, const TensorType& made)
      : x(placed(small, d)),
        y(placed(made, d)),
        rows(axis(d, x.height, y.height)),
        columns(axis(d, x.width, y.width)) {}
  static ResizedAxis axis(const KernelDesc& d, std::int64_t from, std::int64_t to) {
    return {from, to, d.attrs->integer("linear") != 0, d.attrs->integer("align_corners") != 0};
  }
};

struct ResizeOf {
  const float* x;
  float* y;
  Resizing r;
  HETU_HD void operator()(std::int64_t i) const {
    const ImagePosition at = r.y.place(i);
    const Tap row = r.rows.tap(at.pixel / r.y.width), column = r.columns.tap(at.pixel % r.y.width);
    double sum = 0;
    for (std::int64_t p = row.first; p <= row.first + (row.share > 0 ? 1 : 0); ++p)
      for (std::int64_t q = column.first; q <= column.first + (column.share > 0 ? 1 : 0); ++q)
        sum += row.of(p) * column.of(q) * x[r.x.at(at.image, at.channel, p * r.x.width + q)];
    y[i] = static_cast<float>(sum);
  }
};

struct ResizeGradOf {
  const float* dy;
  float* dx;
  Resizing r;
  HETU_HD void operator()(std::int64_t i) const {
    const ImagePosition at = r.x.place(i);
    const std::int64_t a = at.pixel / r.x.width, b = at.pixel % r.x.width;
    const Cut down = r.rows.seeing(a), across = r.columns.seeing(b);
    double sum = 0;
    for (std::int64_t p = down.begin; p < down.end; ++p) {
      const double of_row = r.rows.tap(p).of(a);
      for (std::int64_t q = across.begin; of_row > 0 && q < across.end; ++q)
        sum +=
            of_row * r.columns.tap(q).of(b) * dy[r.y.at(at.image, at.channel, p * r.y.width + q)];
    }
    dx[i] = static_cast<float>(sum);
  }
};

struct Resize {
  Resizing r;
  explicit Resize(const KernelDesc& d) : r(d, d.inputs[0], d.outputs[0]) {}
  void operator()(const KernelCall& c) const {
    for_each(r.y.elements(), ResizeOf{c.in<float>(0), c.out<float>(0), r});
  }
};

struct ResizeGrad {
  Resizing r;
  explicit ResizeGrad(const KernelDesc& d) : r(d, d.outputs[0], d.inputs[0]) {}
  void operator()(const KernelCall& c) const {
    for_each(r.x.elements(), ResizeGradOf{c.in<float>(0), c.out<float>(0), r});
  }
};

}  // namespace

const KernelTable& pool_rows() {
  static const KernelTable kRows = {
      image_row("global_avg_pool", floats<GlobalAvgPool>),
      image_row("global_avg_pool_grad", floats<GlobalAvgPoolGrad>),
      image_row("avg_pool2d", floats<AvgPool>),
      image_row("avg_pool2d_grad", floats<AvgPoolGrad>),
      image_row("resize2d", floats<Resize>),
      image_row("resize2d_grad", floats<ResizeGrad>),
  };
  return kRows;
}

}  // namespace hetu::cuda
