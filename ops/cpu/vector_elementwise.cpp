// Loops over ops/scalar_fns.h in vector registers, several threads for large tensors.
#include <algorithm>

#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"
#include "ops/cpu/vector_math.h"
#include "ops/scalar_fns.h"

namespace hetu::cpu {
namespace {

// Threads take whole chunks, so where a vector loop begins and ends does not depend on their
// number.
constexpr std::int64_t kChunk = 4096;

template <class Body>
void for_chunks(std::int64_t n, const Body& body) {
  const std::int64_t chunks = (n + kChunk - 1) / kChunk;
#pragma omp parallel for schedule(static) if (n > kParallelElements)
  for (std::int64_t i = 0; i < chunks; ++i) body(i * kChunk, std::min(n, (i + 1) * kChunk));
}

template <class F>
struct Unary {
  std::int64_t n;
  explicit Unary(const KernelDesc& d) : n(count_of(d.outputs[0])) {}
  void operator()(const KernelCall& c) const {
    const float* x = c.in<float>(0);
    float* y = c.out<float>(0);
    for_chunks(n, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) y[i] = F()(x[i]);
    });
  }
};

template <class F>
struct Binary {
  std::int64_t n;
  explicit Binary(const KernelDesc& d) : n(count_of(d.outputs[0])) {}
  void operator()(const KernelCall& c) const {
    const float *a = c.in<float>(0), *b = c.in<float>(1);
    float* y = c.out<float>(0);
    for_chunks(n, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) y[i] = F()(a[i], b[i]);
    });
  }
};

struct Scale {
  std::int64_t n;
  float factor;
  explicit Scale(const KernelDesc& d)
      : n(count_of(d.outputs[0])), factor(static_cast<float>(d.attrs->real("factor"))) {}
  void operator()(const KernelCall& c) const {
    const float* x = c.in<float>(0);
    float *y = c.out<float>(0), f = factor;
    for_chunks(n, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) y[i] = x[i] * f;
    });
  }
};

}  // namespace

const KernelTable& vector_elementwise_rows() {
  static const KernelTable kRows = any_layout({
      {"add", "vector", is_float32, vector_kernel<Binary<fn::Add>>},
      {"sub", "vector", is_float32, vector_kernel<Binary<fn::Sub>>},
      {"mul", "vector", is_float32, vector_kernel<Binary<fn::Mul>>},
      {"relu", "vector", is_float32, vector_kernel<Unary<fn::Relu>>},
      {"relu_grad", "vector", is_float32, vector_kernel<Binary<fn::ReluGrad>>},
      {"gelu", "vector", is_float32, vector_kernel<Unary<fn::Gelu<VectorMath>>>},
      {"gelu_grad", "vector", is_float32, vector_kernel<Binary<fn::GeluGrad<VectorMath>>>},
      {"tanh", "vector", is_float32, vector_kernel<Unary<fn::Tanh<VectorMath>>>},
      {"tanh_grad", "vector", is_float32, vector_kernel<Binary<fn::TanhGrad>>},
      {"scale", "vector", is_float32, vector_kernel<Scale>},
  });
  return kRows;
}

}  // namespace hetu::cpu
