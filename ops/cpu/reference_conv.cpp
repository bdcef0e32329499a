// Convolutions as plain loops that add in float64 in ascending order.
#include <algorithm>
#include <vector>

#include "ops/cpu/image_shapes.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

// Legend: n image, o and c output and input channel, i and j row and column of y, p and q of the
// window. A row's sums are kept side by side, so that each adds its own terms in the order of
// (c or o, p, q) and many go in one vector.
constexpr std::int64_t kStrip = 64;

/// Columns j in [begin, end) of y for which column j * stride - padding + q lies in x.
inline Span columns_within(const ConvShape& s, std::int64_t q) {
  const std::int64_t first = s.w.padding - q, last = s.x.width - 1 + s.w.padding - q;
  if (last < 0) return {0, 0};
  return {first <= 0 ? 0 : (first + s.w.stride - 1) / s.w.stride,
          std::min(s.y.width, last / s.w.stride + 1)};
}

template <class T>
struct Conv2d {
  ConvShape s;
  explicit Conv2d(const KernelDesc& d) : s(conv_shape(d)) {}
  void operator()(const KernelCall& call) const {
    const T *x = call.in<T>(0), *w = call.in<T>(1);
    T* y = call.out<T>(0);
    const std::int64_t taps = s.x.channels * s.w.height * s.w.width;
#pragma omp parallel for collapse(2) if (s.y.elements() * taps > kParallelElements)
    for (std::int64_t n = 0; n < s.y.n; ++n)
      for (std::int64_t o = 0; o < s.y.channels; ++o)
        for (std::int64_t i = 0; i < s.y.height; ++i)
          for (std::int64_t begin = 0; begin < s.y.width; begin += kStrip) {
            const Span strip = {begin, std::min(s.y.width, begin + kStrip)};
            row(x + n * s.x.channels * s.x.plane(), w + o * taps, i, strip,
                y + ((n * s.y.channels + o) * s.y.height + i) * s.y.width);
          }
  }

 private:
  void row(const T* x, const T* w, std::int64_t i, Span strip, T* y) const {
    double sums[kStrip] = {};
    const std::int64_t top = i * s.w.stride - s.w.padding;
    const Span rows = inside(top, s.w.height, s.x.height);
    for (std::int64_t c = 0; c < s.x.channels; ++c)
      for (std::int64_t p = rows.begin; p < rows.end; ++p)
        for (std::int64_t q = 0; q < s.w.width; ++q) {
          const T* from = x + c * s.x.plane() + (top + p) * s.x.width - s.w.padding + q;
          const double tap = double(w[(c * s.w.height + p) * s.w.width + q]);
          const Span within = columns_within(s, q);
          const std::int64_t end = std::min(strip.end, within.end);
          for (std::int64_t j = std::max(strip.begin, within.begin); j < end; ++j)
            sums[j - strip.begin] += double(from[j * s.w.stride]) * tap;
        }
    for (std::int64_t j = strip.begin; j < strip.end; ++j)
      y[j] = static_cast<T>(sums[j - strip.begin]);
  }
};

template <class T>
struct Conv2dInputGrad {
  ConvShape s;
  explicit Conv2dInputGrad(const KernelDesc& d) : s(conv_shape(d)) {}
  void operator()(const KernelCall& call) const {
    const T *dy = call.in<T>(0), *w = call.in<T>(1);
    T* dx = call.out<T>(0);
    const std::int64_t taps = s.y.channels * s.w.height * s.w.width;
#pragma omp parallel for collapse(2) if (s.x.elements() * taps > kParallelElements)
    for (std::int64_t n = 0; n < s.x.n; ++n)
      for (std::int64_t c = 0; c < s.x.channels; ++c) {
        std::vector<double> sums(static_cast<std::size_t>(s.x.width));
        for (std::int64_t a = 0; a < s.x.height; ++a) {
          row(dy + n * s.y.channels * s.y.plane(), w, c, a, sums);
          T* to = dx + ((n * s.x.channels + c) * s.x.height + a) * s.x.width;
          std::copy(sums.begin(), sums.end(), to);
        }
      }
  }

 private:
  // The output row that tap row `p` of the window connects with input row `a`; -1 if none.
  std::int64_t output_row(std::int64_t a, std::int64_t p) const {
    const std::int64_t from = a + s.w.padding - p, i = from / s.w.stride;
    return from >= 0 && from % s.w.stride == 0 && i < s.y.height ? i : -1;
  }

  void row(const T* dy, const T* w, std::int64_t c, std::int64_t a,
           std::vector<double>& sums) const {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::int64_t o = 0; o < s.y.channels; ++o)
      for (std::int64_t p = 0; p < s.w.height; ++p) {
        const std::int64_t i = output_row(a, p);
        for (std::int64_t q = 0; i >= 0 && q < s.w.width; ++q) {
          const double tap = double(w[((o * s.x.channels + c) * s.w.height + p) * s.w.width + q]);
          const T* from = dy + (o * s.y.height + i) * s.y.width;
          double* to = sums.data() - s.w.padding + q;
          const Span within = columns_within(s, q);
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
#pragma omp parallel for collapse(2) if (s.y.elements() * s.x.channels > kParallelElements)
    for (std::int64_t o = 0; o < s.y.channels; ++o)
      for (std::int64_t c = 0; c < s.x.channels; ++c)
        for (std::int64_t p = 0; p < s.w.height; ++p)
          for (std::int64_t q = 0; q < s.w.width; ++q)
            dw[((o * s.x.channels + c) * s.w.height + p) * s.w.width + q] =
                static_cast<T>(tap(x, dy, o, c, p, q));
  }

 private:
  double tap(const T* x, const T* dy, std::int64_t o, std::int64_t c, std::int64_t p,
             std::int64_t q) const {
    double sum = 0;
    for (std::int64_t n = 0; n < s.x.n; ++n)
      for (std::int64_t i = 0; i < s.y.height; ++i) {
        const std::int64_t a = i * s.w.stride - s.w.padding + p;
        if (a < 0 || a >= s.x.height) continue;
        const T* row = x + ((n * s.x.channels + c) * s.x.height + a) * s.x.width;
        const T* slope = dy + ((n * s.y.channels + o) * s.y.height + i) * s.y.width;
        for (std::int64_t j = 0; j < s.y.width; ++j) {
          const std::int64_t b = j * s.w.stride - s.w.padding + q;
          if (b >= 0 && b < s.x.width) sum += double(row[b]) * double(slope[j]);
        }
      }
    return sum;
  }
};

}  // namespace

const KernelTable& reference_conv_rows() {
  static const KernelTable kRows = {
      {"conv2d", "reference", nullptr, reference<Conv2d>},
      {"conv2d_input_grad", "reference", nullptr, reference<Conv2dInputGrad>},
      {"conv2d_weight_grad", "reference", nullptr, reference<Conv2dWeightGrad>},
  };
  return kRows;
}

}  // namespace hetu::cpu
