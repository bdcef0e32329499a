// Max pooling of images in either layout, and its gradient. A thread computes one element of the
// result, or eight channels of a pixel (in the gradient of strided windows, of 2 x 2 pixels). Both
// kernels gather, so every sum has a single order.
#include <launch.h>

#include "ops/cuda/images.h"
#include "ops/cuda/indices.h"
#include "ops/cuda/packs.h"

namespace hetu::cuda {
namespace {

template <class T, int V>
struct MaxPoolOf {
  const T* x;
  T* y;
  std::int32_t* index;
  SlidingWindows w;
  HETU_HD void operator()(std::int64_t i) const {
    const ImagePosition at = w.y.place(i * V);
    const std::int64_t row = quotient(at.pixel, w.y.width);
    const Cut rows = w.rows(row), columns = w.columns(at.pixel - row * w.y.width);
    float most[V] = {};
    Raw<std::int32_t, V> best = {};
    for (std::int64_t p = rows.begin; p < rows.end; ++p)
      for (std::int64_t q = columns.begin; q < columns.end; ++q) {
        const std::int64_t pixel = p * w.x.width + q;
        const bool first = p == rows.begin && q == columns.begin;
        Raw<T, V> raw;
        load_raw(x + w.x.at(at.image, at.channel, pixel), raw);
        float value[V];
        widen(raw, value);
        for (int v = 0; v < V; ++v) {
          // A NaN exceeds everything, and the last NaN is kept, as in PyTorch.
          if (!first && !(value[v] > most[v]) && value[v] == value[v]) continue;
          most[v] = value[v];
          best.of[v] = static_cast<std::int32_t>(pixel);
        }
      }
    Raw<T, V> made;
    narrow(most, made);
    store_raw(y + i * V, made);
    store_raw(index + i * V, best);
  }
};

/// The gradient of max pooling. A thread computes kSide x kSide pixels, so that windows that cover
/// several of them are read once. Indices that point outside their window are left to StraysOf;
/// then *strays becomes 1.
template <class T, int V, int kSide>
struct MaxPoolGradOf {
  const T* dy;
  const std::int32_t* index;
  T* dx;
  SlidingWindows w;
  Indices indices;
  std::uint64_t* strays;
  SmallDivisor by_width;  ///< for packs; must be exact if kSide > 1

  HETU_HD std::int64_t down() const { return (w.x.height + kSide - 1) / kSide; }
  HETU_HD std::int64_t across() const { return (w.x.width + kSide - 1) / kSide; }
  std::int64_t bodies() const { return w.x.n * down() * across() * w.x.channels / V; }

  /// Returns true if `place` lies in a window with these rows and columns. The division by
  /// SmallDivisor may give one row too many, and so a negative column. For kSide == 1 this is
  /// corrected. For larger squares the division is exact for all valid indices, and an invalid
  /// index is outside in any case.
  HETU_HD bool inside(std::int32_t place, Cut rows, Cut columns) const {
    const auto width = static_cast<std::int32_t>(w.x.width);
    std::int32_t row = V == kPack ? by_width.of(place) : place / width;
    auto column = static_cast<std::int32_t>(static_cast<std::uint32_t>(place) -
                                            static_cast<std::uint32_t>(row) *
                                                static_cast<std::uint32_t>(width));
    if (V == kPack && kSide == 1 && column < 0) {
      --row;
      column += width;
    }
    const auto from = [](std::int32_t at, Cut cut) {  // distance from the beginning, modulo 2^32
      return static_cast<std::uint32_t>(at) - static_cast<std::uint32_t>(cut.begin);
    };
    return (from(row, rows) < static_cast<std::uint32_t>(rows.end - rows.begin)) &
           (from(column, columns) < static_cast<std::uint32_t>(columns.end - columns.begin));
  }
  /// Checks the indices of a window, `places`, the first of which is element `at`. The thread that
  /// has the window's first pixel calls it.
  HETU_HD void check(std::int64_t at, const Raw<std::int32_t, V>& places, Cut rows,
                     Cut columns) const {
    bool all = true;
    for (int v = 0; v < V; ++v) all &= inside(places.of[v], rows, columns);  // no branch
    if (all) return;
    for (int v = 0; v < V; ++v)
      if (!inside(places.of[v], rows, columns) && indices.good(at + v, places.of[v]))
        set_bits(strays, 1);
  }
  HETU_HD void operator()(std::int64_t i) const {
    PlacedImages squares = w.x;  // squares of kSide x kSide pixels; channels-last if kSide > 1
    squares.height = down();
    squares.width = across();
    const ImagePosition at = squares.place(i * V);
    const std::int64_t square_row = quotient(at.pixel, squares.width);
    const std::int64_t row = square_row * kSide,
                       column = (at.pixel - square_row * squares.width) * kSide;
    const std::int64_t last_row = last(row, w.x.height), last_column = last(column, w.x.width);
    const Cut down = {w.covering(row, w.y.height).begin, w.covering(last_row, w.y.height).end};
    const Cut across = {w.covering(column, w.y.width).begin,
                        w.covering(last_column, w.y.width).end};
    const auto first = static_cast<std::int32_t>(row * w.x.width + column);
    const auto below = static_cast<std::int32_t>(w.x.width);
    float sums[kSide][kSide][V] = {};
    for (std::int64_t p = down.begin; p < down.end; ++p)
      for (std::int64_t q = across.begin; q < across.end; ++q) {
        const std::int64_t from = w.y.at(at.image, at.channel, p * w.y.width + q);
        Raw<std::int32_t, V> places;
        Raw<T, V> raw;
        load_raw(index + from, places);
        load_raw(dy + from, raw);
        float given[V];
        widen(raw, given);
        for (int r = 0; r < kSide; ++r)
          for (int c = 0; c < kSide; ++c)
            for (int v = 0; v < V; ++v)
              if (places.of[v] == first + r * below + c) sums[r][c][v] += given[v];
        const Cut rows = w.rows(p), columns = w.columns(q);
        if (rows.begin >= row && rows.begin <= last_row && columns.begin >= column &&
            columns.begin <= last_column)
          check(from, places, rows, columns);
      }
    for (int r = 0; r < kSide && row + r <= last_row; ++r)
      for (int c = 0; c < kSide && column + c <= last_column; ++c) {
        Raw<T, V> made;
        narrow(sums[r][c], made);
        store_raw(dx + w.x.at(at.image, at.channel, first + r * below + c), made);
      }
  }

 private:
  HETU_HD static std::int64_t last(std::int64_t begin, std::int64_t size) {
    return (begin + kSide < size ? begin + kSide : size) - 1;
  }
};

/// A body that recomputes a plane of dx if there are strays: searches all windows, in ascending
/// order.
template <class T>
struct StraysOf {
  const T* dy;
  const std::int32_t* index;
  T* dx;
  PlacedImages from, to;  // layouts of dy and dx
  const std::uint64_t* strays;
  HETU_HD void operator()(std::int64_t i) const {
    if (*strays == 0) return;
    const std::int64_t image = i / to.channels, channel = i % to.channels;
    for (std::int64_t pixel = 0; pixel < to.plane(); ++pixel) {
      float sum = 0;
      for (std::int64_t window = 0; window < from.plane(); ++window) {
        const std::int64_t at = from.at(image, channel, window);
        if (index[at] == pixel) sum += static_cast<float>(dy[at]);
      }
      dx[to.at(image, channel, pixel)] = static_cast<T>(sum);
    }
  }
};

/// Returns true if all tensors can be processed eight channels at a time.
bool in_packs(const PlacedImages& x, std::initializer_list<const void*> tensors) {
  return x.channel_step == 1 && x.channels % kPack == 0 && lie_in_packs(tensors);
}

template <class T>
struct MaxPool {
  SlidingWindows w;
  explicit MaxPool(const KernelDesc& d) : w(d, d.inputs[0], d.outputs[0]) {}
  void operator()(const KernelCall& c) const {
    const T* const x = c.in<T>(0);
    T* const y = c.out<T>(0);
    auto* const index = c.out<std::int32_t>(1);
    if (in_packs(w.x, {x, y, index}))
      for_each(w.y.elements() / kPack, MaxPoolOf<T, kPack>{x, y, index, w});
    else
      for_each(w.y.elements(), MaxPoolOf<T, 1>{x, y, index, w});
  }
};

template <class T>
struct MaxPoolGrad {
  SlidingWindows w;
  IndexRule rule;
  explicit MaxPoolGrad(const KernelDesc& d)
      : w(d, d.outputs[0], d.inputs[0]), rule(d.name, w.x.plane()) {}
  std::int64_t scratch_bytes() const { return sizeof(std::uint64_t); }
  void operator()(const KernelCall& c) const {
    const T* const dy = c.in<T>(0);
    const auto* const index = c.in<std::int32_t>(1);
    T* const dx = c.out<T>(0);
    auto* const strays = static_cast<std::uint64_t*>(c.scratch);
    clear(strays, scratch_bytes());
    const SmallDivisor by_width(static_cast<int>(w.x.width));
    const auto run = [&]<int V, int kSide>() {
      const MaxPoolGradOf<T, V, kSide> body{dy, index, dx, w, rule.now(), strays, by_width};
      for_each(body.bodies(), body);
    };
    if (!in_packs(w.x, {dy, index, dx}))
      run.template operator()<1, 1>();
    else if (w.stride > 1 && SmallDivisor::holds(w.x.plane(), w.x.width))
      run.template operator()<kPack, 2>();
    else
      run.template operator()<kPack, 1>();
    for_each(w.x.n * w.x.channels, StraysOf<T>{dy, index, dx, w.y, w.x, strays});
  }
};

/// Prepares a kernel that processes images in their own dtype, or in float32 for mixed dtypes.
template <template <class> class Body>
PreparedKernel as_they_lie(const KernelDesc& d) {
  if (d.inputs[0].dtype == d.outputs[0].dtype) {
    if (d.inputs[0].dtype == DType::BFloat16) return kernel<Body<BFloat16>>(d);
    if (d.inputs[0].dtype == DType::Float16) return kernel<Body<Float16>>(d);
  }
  return floats<Body<float>>(d);
}

}  // namespace

const KernelTable& max_pool_rows() {
  static const KernelTable kRows = {
      image_row("max_pool2d", as_they_lie<MaxPool>),
      image_row("max_pool2d_grad", as_they_lie<MaxPoolGrad>),
  };
  return kRows;
}

}  // namespace hetu::cuda
