// Convolutions as plain loops that add in float64 in ascending order.
#include <algorithm>
#include <vector>

#include "ops/cpu/image_shapes.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

// Index letters: n image, o output channel, c input channel, i and j row and column of y, p and q
// row and column of the window. The sums of a strip of a row are kept next to each other. Each sum
// adds its own terms in the order of (c or o, p, q), and the strip can be vectorized.
constexpr std::int64_t kStrip = 64;

/// Returns the columns j in [begin, end) of y for which column j * stride - padding + q is inside
/// x. q is a tap's offset in the window.
inline Span columns_within(const ConvShape& s, std::int64_t q) {
  const std::int64_t first = s.w.padding - q, last = s.x.width - 1 + s.w.padding - q;
  if (last < 0) return {0, 0};
  return {first <= 0 ? 0 : (first + s.w.stride - 1) / s.w.stride,
          std::min(s.y.width, last / s.w.stride + 1)};
}

template <class T>
struct Conv2d {
  ConvShape s;
  bool biased;
  explicit Conv2d(const KernelDesc& d) : s(conv_shape(d)), biased(d.inputs.size() > 2) {}
  void operator()(const KernelCall& call) const {
    const T *x = call.in<T>(0), *w = call.in<T>(1);
    T* y = call.out<T>(0);
    const std::int64_t taps = s.group_inputs() * s.w.height * s.w.width;
#pragma omp parallel for collapse(2) if (s.y.elements() * taps > kParallelElements)
    for (std::int64_t n = 0; n < s.y.n; ++n)
      for (std::int64_t o = 0; o < s.y.channels; ++o)
        for (std::int64_t i = 0; i < s.y.height; ++i)
          for (std::int64_t begin = 0; begin < s.y.width; begin += kStrip) {
            const Span strip = {begin, std::min(s.y.width, begin + kStrip)};
            const std::int64_t first = o / s.group_outputs() * s.group_inputs();
            T* to = y + ((n * s.y.channels + o) * s.y.height + i) * s.y.width;
            row(x + (n * s.x.channels + first) * s.x.plane(), w + o * taps, i, strip, to);
            for (std::int64_t j = strip.begin; biased && j < strip.end; ++j)
              to[j] += call.in<T>(2)[o];
          }
  }

 private:
  void row(const T* x, const T* w, std::int64_t i, Span strip, T* y) const {
    double sums[kStrip] = {};
    const std::int64_t top = i * s.w.stride - s.w.padding;
    for (std::int64_t c = 0; c < s.group_inputs(); ++c)
      for (std::int64_t p = 0; p < s.w.height; ++p) {
        const std::int64_t a = top + p * s.w.dilation;
        if (a < 0 || a >= s.x.height) continue;
        for (std::int64_t q = 0; q < s.w.width; ++q) {
          const std::int64_t place = q * s.w.dilation;
          const T* from = x + c * s.x.plane() + a * s.x.width - s.w.padding + place;
          const double tap = double(w[(c * s.w.height + p) * s.w.width + q]);
          const Span within = columns_within(s, place);
          const std::int64_t end = std::min(strip.end, within.end);
          for (std::int64_t j = std::max(strip.begin, within.begin); j < end; ++j)
            sums[j - strip.begin] += double(from[j * s.w.stride]) * tap;
        }
      }
    for (std::int64_t j = strip.begin; j < strip.end; ++j)
      y[j] = static_cast<T>(sums[j - strip.begin]);
  }
};

template <class T>
struct Conv2dInputGrad {
  ConvShape s;
  bool biased;  // true only for conv_transpose2d
  explicit Conv2dInputGrad(const KernelDesc& d) : s(conv_shape(d)), biased(d.inputs.size() > 2) {}
  void operator()(const KernelCall& call) const {
    const T *dy = call.in<T>(0), *w = call.in<T>(1);
    T* dx = call.out<T>(0);
    const std::int64_t taps = s.group_outputs() * s.w.height * s.w.width;
#pragma omp parallel for collapse(2) if (s.x.elements() * taps > kParallelElements)
    for (std::int64_t n = 0; n < s.x.n; ++n)
      for (std::int64_t c = 0; c < s.x.channels; ++c) {
        std::vector<double> sums(static_cast<std::size_t>(s.x.width));
        for (std::int64_t a = 0; a < s.x.height; ++a) {
          row(dy + n * s.y.channels * s.y.plane(), w, c, a, sums);
          T* to = dx + ((n * s.x.channels + c) * s.x.height + a) * s.x.width;
          std::copy(sums.begin(), sums.end(), to);
          for (std::int64_t b = 0; biased && b < s.x.width; ++b) to[b] += call.in<T>(2)[c];
        }
      }
  }

 private:
  // Returns the output row that window row `p` connects with input row `a`, or -1 if there is none.
  std::int64_t output_row(std::int64_t a, std::int64_t p) const {
    const std::int64_t from = a + s.w.padding - p * s.w.dilation, i = from / s.w.stride;
    return from >= 0 && from % s.w.stride == 0 && i < s.y.height ? i : -1;
  }

  void row(const T* dy, const T* w, std::int64_t c, std::int64_t a,
           std::vector<double>& sums) const {
    std::fill(sums.begin(), sums.end(), 0.0);
    const std::int64_t group = c / s.group_inputs(), within_group = c % s.group_inputs();
    for (std::int64_t o = group * s.group_outputs(); o < (group + 1) * s.group_outputs(); ++o)
      for (std::int64_t p = 0; p < s.w.height; ++p) {
        const T* taps = w + ((o * s.group_inputs() + within_group) * s.w.height + p) * s.w.width;
        const std::int64_t i = output_row(a, p);
        for (std::int64_t q = 0; i >= 0 && q < s.w.width; ++q) {
          const double tap = double(taps[q]);
          const T* from = dy + (o * s.y.height + i) * s.y.width;
          double* to = sums.data() - s.w.padding + q * s.w.dilation;
          const Span within = columns_within(s, q * s.w.dilation);
          for (std::int64_t j = within.begin; j < within.end; ++j)
            to[j * s.w.stride] += double(from[j]) * tap;
        }
      }
  }
};

template <class T>
struct Conv2dWeightGrad {
  ConvShape s;
  explicit Conv2dWeightGrad(const KernelDesc& d) : s(conv_shape(d)) {}
  void operator()(const KernelCall& call) const {
    const T *x = call.in<T>(0), *dy = call.in<T>(1);
    T* dw = call.out<T>(0);
    const std::int64_t inputs = s.group_inputs();
#pragma omp parallel for collapse(2) if (s.y.elements() * inputs > kParallelElements)
    for (std::int64_t o = 0; o < s.y.channels; ++o)
      for (std::int64_t c = 0; c < inputs; ++c)
        for (std::int64_t p = 0; p < s.w.height; ++p)
          for (std::int64_t q = 0; q < s.w.width; ++q)
            dw[((o * inputs + c) * s.w.height + p) * s.w.width + q] =
                static_cast<T>(tap(x + (o / s.group_outputs() * inputs + c) * s.x.plane(),
                                   dy + o * s.y.plane(), p * s.w.dilation, q * s.w.dilation));
  }

 private:
  // Computes the gradient of one tap, for one input and one output channel. p and q are the tap's
  // offsets in the window.
  double tap(const T* x, const T* dy, std::int64_t p, std::int64_t q) const {
    double sum = 0;
    for (std::int64_t n = 0; n < s.x.n; ++n)
      for (std::int64_t i = 0; i < s.y.height; ++i) {
        const std::int64_t a = i * s.w.stride - s.w.padding + p;
        if (a < 0 || a >= s.x.height) continue;
        const T* row = x + n * s.x.channels * s.x.plane() + a * s.x.width;
        const T* slope = dy + n * s.y.channels * s.y.plane() + i * s.y.width;
        for (std::int64_t j = 0; j < s.y.width; ++j) {
          const std::int64_t b = j * s.w.stride - s.w.padding + q;
          if (b >= 0 && b < s.x.width) sum += double(row[b]) * double(slope[j]);
        }
      }
    return sum;
  }
};

template <class T>
struct Conv2dFactor {
  WindowRows s;
  bool mean;
  explicit Conv2dFactor(const KernelDesc& d)
      : s(window_rows(d)), mean(d.attrs->integer("mean") != 0) {}
  void operator()(const KernelCall& call) const {
    const std::int64_t side = s.columns();
    const double scale = mean ? 1 / double(s.per_sample()) : 1;
    std::vector<double> rows(static_cast<std::size_t>(s.rows() * side));
    for (std::int64_t r = 0; r < s.rows(); ++r)
      for (std::int64_t a = 0; a < side; ++a)
        rows[r * side + a] = double(element(call.in<T>(0), r, a));
    for (std::int64_t a = 0; a < side; ++a)
      for (std::int64_t b = 0; b < side; ++b) {
        double sum = 0;
        for (std::int64_t r = 0; r < s.rows(); ++r) sum += rows[r * side + a] * rows[r * side + b];
        call.out<T>(0)[a * side + b] = static_cast<T>(scale * sum);
      }
  }

 private:
  T element(const T* x, std::int64_t row, std::int64_t column) const {
    const std::int64_t n = row / s.per_sample(), i = row / s.width % s.height, j = row % s.width;
    const std::int64_t taps = s.w.height * s.w.width;
    const std::int64_t p = column % taps / s.w.width, q = column % s.w.width;
    const std::int64_t down = i * s.w.stride - s.w.padding + p * s.w.dilation;
    const std::int64_t across = j * s.w.stride - s.w.padding + q * s.w.dilation;
    if (down < 0 || down >= s.x.height || across < 0 || across >= s.x.width) return 0;
    return x[((n * s.x.channels + column / taps) * s.x.height + down) * s.x.width + across];
  }
};

}  // namespace

const KernelTable& reference_conv_rows() {
  static const KernelTable kRows = {
      {"conv2d", "reference", nullptr, reference<Conv2d>},
      {"conv2d_input_grad", "reference", nullptr, reference<Conv2dInputGrad>},
      {"conv2d_weight_grad", "reference", nullptr, reference<Conv2dWeightGrad>},
      {"conv_transpose2d", "reference", nullptr, reference<Conv2dInputGrad>},
      {"conv2d_factor", "reference", nullptr, reference<Conv2dFactor>},
  };
  return kRows;
}

}  // namespace hetu::cpu
