// Dot products of all pairs of a sample's feature vectors. Each thread computes whole samples, so a
// sample's result depends on nothing else.
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

struct Features {
  std::int64_t samples, features, width;
  explicit Features(const TensorType& x)
      : samples(x.shape[0]), features(x.shape[1]), width(x.shape[2]) {}
  std::int64_t pairs() const { return features * (features - 1) / 2; }
  std::int64_t of_sample() const { return features * width; }
};

template <class T>
double plain_dot(const T* a, const T* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t k = 0; k < n; ++k) sum += double(a[k]) * double(b[k]);
  return sum;
}

template <class T>
struct Interaction {
  Features x;
  explicit Interaction(const KernelDesc& d) : x(d.inputs[0]) {}
  void operator()(const KernelCall& c) const {
    T* y = c.out<T>(0);
    for (std::int64_t s = 0; s < x.samples; ++s) {
      const T* row = c.in<T>(0) + s * x.of_sample();
      for (std::int64_t i = 1; i < x.features; ++i)
        for (std::int64_t j = 0; j < i; ++j)
          *y++ = static_cast<T>(plain_dot(row + i * x.width, row + j * x.width, x.width));
    }
  }
};

template <class T>
struct InteractionGrad {
  Features x;
  explicit InteractionGrad(const KernelDesc& d) : x(d.inputs[0]) {}
  void operator()(const KernelCall& c) const {
    for (std::int64_t s = 0; s < x.samples; ++s) {
      const T* row = c.in<T>(0) + s * x.of_sample();
      const T* dy = c.in<T>(1) + s * x.pairs();
      T* dx = c.out<T>(0) + s * x.of_sample();
      for (std::int64_t i = 0; i < x.features; ++i)
        for (std::int64_t k = 0; k < x.width; ++k) {
          double sum = 0;
          for (std::int64_t j = 0; j < x.features; ++j) {
            const std::int64_t high = i > j ? i : j, low = i > j ? j : i;
            if (i != j)
              sum += double(dy[high * (high - 1) / 2 + low]) * double(row[j * x.width + k]);
          }
          dx[i * x.width + k] = static_cast<T>(sum);
        }
    }
  }
};

struct VectorInteraction {
  Features x;
  explicit VectorInteraction(const KernelDesc& d) : x(d.inputs[0]) {}
  void operator()(const KernelCall& c) const {
    const float* in = c.in<float>(0);
    float* out = c.out<float>(0);
    const Features f = x;
#pragma omp parallel for schedule(static) if (f.samples * f.of_sample() > kParallelElements)
    for (std::int64_t s = 0; s < f.samples; ++s) {
      const float* row = in + s * f.of_sample();
      float* y = out + s * f.pairs();
      for (std::int64_t i = 1; i < f.features; ++i)
        for (std::int64_t j = 0; j < i; ++j) {
          const float *a = row + i * f.width, *b = row + j * f.width;
          float sum = 0;
#pragma omp simd reduction(+ : sum)
          for (std::int64_t k = 0; k < f.width; ++k) sum += a[k] * b[k];
          *y++ = sum;
        }
    }
  }
};

struct VectorInteractionGrad {
  Features x;
  explicit VectorInteractionGrad(const KernelDesc& d) : x(d.inputs[0]) {}
  void operator()(const KernelCall& c) const {
    const float *in = c.in<float>(0), *dys = c.in<float>(1);
    float* out = c.out<float>(0);
    const Features f = x;
#pragma omp parallel for schedule(static) if (f.samples * f.of_sample() > kParallelElements)
    for (std::int64_t s = 0; s < f.samples; ++s)
      of_sample(f, in + s * f.of_sample(), dys + s * f.pairs(), out + s * f.of_sample());
  }
  static void of_sample(const Features& f, const float* row, const float* dy, float* dx) {
    for (std::int64_t i = 0; i < f.features; ++i) {
      float* to = dx + i * f.width;
      for (std::int64_t k = 0; k < f.width; ++k) to[k] = 0;
      for (std::int64_t j = 0; j < f.features; ++j) {
        if (i == j) continue;
        const float by = i > j ? dy[i * (i - 1) / 2 + j] : dy[j * (j - 1) / 2 + i];
        const float* from = row + j * f.width;
#pragma omp simd
        for (std::int64_t k = 0; k < f.width; ++k) to[k] += by * from[k];
      }
    }
  }
};

}  // namespace

const KernelTable& vector_interaction_rows() {
  static const KernelTable kRows = {
      {"dot_interaction", "vector", is_float32, vector_kernel<VectorInteraction>},
      {"dot_interaction_grad", "vector", is_float32, vector_kernel<VectorInteractionGrad>},
  };
  return kRows;
}

const KernelTable& reference_interaction_rows() {
  static const KernelTable kRows = {
      {"dot_interaction", "reference", nullptr, reference<Interaction>},
      {"dot_interaction_grad", "reference", nullptr, reference<InteractionGrad>},
  };
  return kRows;
}

}  // namespace hetu::cpu
