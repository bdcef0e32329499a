// Batch normalization as plain loops with float64 sums, the operators fused with it, and the
// counter of batches.
#include <cmath>

#include "ops/cpu/image_shapes.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"
#include "ops/scalar_fns.h"

namespace hetu::cpu {
namespace {

/// Calls body(index) for every element of channel c, image by image.
template <class Body>
void each_of_channel(const Images& x, std::int64_t c, const Body& body) {
  for (std::int64_t n = 0; n < x.n; ++n) {
    const std::int64_t first = (n * x.channels + c) * x.plane();
    for (std::int64_t i = first; i < first + x.plane(); ++i) body(i);
  }
}

template <class T>
struct BatchNorm {
  std::string name;
  Images x;
  double momentum, epsilon;
  bool relu, skip;
  explicit BatchNorm(const KernelDesc& d)
      : name(d.name),
        x(images_of(d.inputs[0])),
        momentum(d.attrs->real("momentum")),
        epsilon(d.attrs->real("epsilon")),
        relu(d.op != "batch_norm"),
        skip(d.inputs.size() > 5) {}
  void operator()(const KernelCall& call) const {
    if (call.run.training) check_batch(name, x.per_channel());
#pragma omp parallel for if (x.elements() > kParallelElements)
    for (std::int64_t c = 0; c < x.channels; ++c) channel(call, c);
  }

 private:
  void channel(const KernelCall& call, std::int64_t c) const {
    const T* in = call.in<T>(0);
    T* y = call.out<T>(0);
    double mean = call.in<T>(3)[c], variance = call.in<T>(4)[c];
    double next_mean = mean, next_variance = variance;
    if (call.run.training) {
      const auto count = double(x.per_channel());
      double sum = 0, squares = 0;
      each_of_channel(x, c, [&](std::int64_t i) { sum += double(in[i]); });
      mean = sum / count;
      each_of_channel(x, c, [&](std::int64_t i) { squares += (in[i] - mean) * (in[i] - mean); });
      variance = squares / count;
      next_mean += momentum * (mean - next_mean);
      next_variance += momentum * (squares / (count - 1) - next_variance);
    }
    const double scale = double(call.in<T>(1)[c]) / std::sqrt(variance + epsilon);
    const double beta = call.in<T>(2)[c];
    each_of_channel(x, c, [&](std::int64_t i) {
      T sum = static_cast<T>((in[i] - mean) * scale + beta);
      if (skip) sum += call.in<T>(5)[i];
      y[i] = relu ? fn::Relu()(sum) : sum;
    });
    call.out<T>(1)[c] = static_cast<T>(mean);
    call.out<T>(2)[c] = static_cast<T>(variance);
    call.out<T>(3)[c] = static_cast<T>(next_mean);
    call.out<T>(4)[c] = static_cast<T>(next_variance);
  }
};

template <class T>
struct BatchNormGrad {
  Images x;
  double epsilon;
  bool relu, skip;
  explicit BatchNormGrad(const KernelDesc& d)
      : x(images_of(d.inputs[0])),
        epsilon(d.attrs->real("epsilon")),
        relu(d.op == "batch_norm_relu_grad"),
        skip(d.op == "batch_norm_add_relu_grad") {}
  void operator()(const KernelCall& call) const {
#pragma omp parallel for if (x.elements() > kParallelElements)
    for (std::int64_t c = 0; c < x.channels; ++c) channel(call, c);
  }

 private:
  void channel(const KernelCall& call, std::int64_t c) const {
    const T *in = call.in<T>(0), *dy = call.in<T>(relu || skip ? 5 : 4);
    T* dx = call.out<T>(0);
    const double mean = call.in<T>(2)[c];
    const double rstd = 1 / std::sqrt(double(call.in<T>(3)[c]) + epsilon);
    const double scale = double(call.in<T>(1)[c]) * rstd;
    const double beta = relu ? double(call.in<T>(4)[c]) : 0;
    const T* more = skip ? call.in<T>(6) : nullptr;
    const auto slope = [&](std::int64_t i) {
      const bool on = skip ? call.in<T>(4)[i] > T(0)
                           : !relu || static_cast<T>((in[i] - mean) * scale + beta) > T(0);
      return on ? double(skip ? dy[i] + more[i] : dy[i]) : 0.0;
    };
    double sum = 0, dot = 0;
    each_of_channel(x, c, [&](std::int64_t i) {
      sum += slope(i);
      dot += slope(i) * (in[i] - mean) * rstd;
    });
    const double per = 1 / double(x.per_channel());
    each_of_channel(x, c, [&](std::int64_t i) {
      dx[i] = static_cast<T>(scale * (slope(i) - per * (sum + (in[i] - mean) * rstd * dot)));
    });
    if (skip)
      each_of_channel(x, c, [&](std::int64_t i) { call.out<T>(3)[i] = static_cast<T>(slope(i)); });
    call.out<T>(1)[c] = static_cast<T>(dot);
    call.out<T>(2)[c] = static_cast<T>(sum);
  }
};

template <class T>
struct CountUp {
  explicit CountUp(const KernelDesc&) {}
  void operator()(const KernelCall& call) const { call.out<T>(0)[0] = call.in<T>(0)[0] + T(1); }
};

}  // namespace

const KernelTable& reference_batch_norm_rows() {
  static const KernelTable kRows = {
      {"batch_norm", "reference", nullptr, reference<BatchNorm>},
      {"batch_norm_relu", "reference", nullptr, reference<BatchNorm>},
      {"batch_norm_add_relu", "reference", nullptr, reference<BatchNorm>},
      {"batch_norm_grad", "reference", nullptr, reference<BatchNormGrad>},
      {"batch_norm_relu_grad", "reference", nullptr, reference<BatchNormGrad>},
      {"batch_norm_add_relu_grad", "reference", nullptr, reference<BatchNormGrad>},
      {"count_up", "reference", nullptr, reference<CountUp>},
  };
  return kRows;
}

}  // namespace hetu::cpu
