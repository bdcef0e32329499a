// Convolutions as plain loops that add in float64 in ascending order.
#include "ops/cpu/image_shapes.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

// Legend: n image, o and c output and input channel, i and j row and column of y, p and q of the
// window.
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
          for (std::int64_t j = 0; j < s.y.width; ++j)
            y[((n * s.y.channels + o) * s.y.height + i) * s.y.width + j] =
                static_cast<T>(window(x + n * s.x.channels * s.x.plane(), w + o * taps, i, j));
  }

 private:
  double window(const T* x, const T* w, std::int64_t i, std::int64_t j) const {
    const std::int64_t top = i * s.w.stride - s.w.padding, left = j * s.w.stride - s.w.padding;
    const Span rows = inside(top, s.w.height, s.x.height);
    const Span columns = inside(left, s.w.width, s.x.width);
    double sum = 0;
    for (std::int64_t c = 0; c < s.x.channels; ++c)
      for (std::int64_t p = rows.begin; p < rows.end; ++p) {
        const T* from = x + c * s.x.plane() + (top + p) * s.x.width + left;
        const T* taps = w + (c * s.w.height + p) * s.w.width;
        for (std::int64_t q = columns.begin; q < columns.end; ++q)
          sum += double(from[q]) * double(taps[q]);
      }
    return sum;
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
      for (std::int64_t c = 0; c < s.x.channels; ++c)
        for (std::int64_t a = 0; a < s.x.height; ++a)
          for (std::int64_t b = 0; b < s.x.width; ++b)
            dx[((n * s.x.channels + c) * s.x.height + a) * s.x.width + b] =
                static_cast<T>(element(dy + n * s.y.channels * s.y.plane(), w, c, a, b));
  }

 private:
  // The output row (or column) that tap `p` of the window connects with input row `a`; -1 if none.
  std::int64_t output_at(std::int64_t a, std::int64_t p, std::int64_t size) const {
    const std::int64_t from = a + s.w.padding - p;
    return from >= 0 && from % s.w.stride == 0 && from / s.w.stride < size ? from / s.w.stride : -1;
  }

  double element(const T* dy, const T* w, std::int64_t c, std::int64_t a, std::int64_t b) const {
    double sum = 0;
    for (std::int64_t o = 0; o < s.y.channels; ++o)
      for (std::int64_t p = 0; p < s.w.height; ++p) {
        const std::int64_t i = output_at(a, p, s.y.height);
        for (std::int64_t q = 0; i >= 0 && q < s.w.width; ++q) {
          const std::int64_t j = output_at(b, q, s.y.width);
          if (j < 0) continue;
          const std::int64_t tap = ((o * s.x.channels + c) * s.w.height + p) * s.w.width + q;
          sum += double(dy[(o * s.y.height + i) * s.y.width + j]) * double(w[tap]);
        }
      }
    return sum;
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
