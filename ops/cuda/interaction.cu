// Dot products of all pairs of a sample's feature vectors. One thread computes one pair, or one
// element of the gradient.
#include <launch.h>

#include "ops/cuda/rows.h"

namespace hetu::cuda {
namespace {

/// The shape of x [samples, features, width]. Pair (i, j), j < i, has the index i (i - 1) / 2 + j.
struct Features {
  std::int64_t samples, features, width;
  explicit Features(const TensorType& x)
      : samples(x.shape[0]), features(x.shape[1]), width(x.shape[2]) {}
  HETU_HD std::int64_t pairs() const { return features * (features - 1) / 2; }
  HETU_HD std::int64_t of_sample() const { return features * width; }
};

struct InteractionOf {
  const float* x;
  float* y;
  Features f;
  HETU_HD void operator()(std::int64_t n) const {
    std::int64_t i = 1, j = n % f.pairs();
    for (; j >= i; ++i) j -= i;
    const float* row = x + n / f.pairs() * f.of_sample();
    const float *a = row + i * f.width, *b = row + j * f.width;
    double sum = 0;
    for (std::int64_t k = 0; k < f.width; ++k) sum += double(a[k]) * double(b[k]);
    y[n] = static_cast<float>(sum);
  }
};

struct InteractionGradOf {
  const float *x, *dy;
  float* dx;
  Features f;
  HETU_HD void operator()(std::int64_t n) const {
    const std::int64_t sample = n / f.of_sample(), i = n / f.width % f.features, k = n % f.width;
    const float *row = x + sample * f.of_sample(), *slopes = dy + sample * f.pairs();
    double sum = 0;
    for (std::int64_t j = 0; j < f.features; ++j) {
      const std::int64_t high = i > j ? i : j, low = i > j ? j : i;
      if (i != j) sum += double(slopes[high * (high - 1) / 2 + low]) * double(row[j * f.width + k]);
    }
    dx[n] = static_cast<float>(sum);
  }
};

struct Interaction {
  Features f;
  explicit Interaction(const KernelDesc& d) : f(d.inputs[0]) {}
  void operator()(const KernelCall& c) const {
    for_each(f.samples * f.pairs(), InteractionOf{c.in<float>(0), c.out<float>(0), f});
  }
};

struct InteractionGrad {
  Features f;
  explicit InteractionGrad(const KernelDesc& d) : f(d.inputs[0]) {}
  void operator()(const KernelCall& c) const {
    for_each(f.samples * f.of_sample(),
             InteractionGradOf{c.in<float>(0), c.in<float>(1), c.out<float>(0), f});
  }
};

}  // namespace

const KernelTable& interaction_rows() {
  static const KernelTable kRows = {
      row("dot_interaction", floats<Interaction>),
      row("dot_interaction_grad", floats<InteractionGrad>),
  };
  return kRows;
}

}  // namespace hetu::cuda
