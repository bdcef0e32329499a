// Loops over ops/scalar_fns.h in vector registers, several threads for large tensors.
#include "ops/cpu/attr_fns.h"
#include "ops/cpu/broadcast_walk.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"
#include "ops/cpu/vector_math.h"
#include "ops/scalar_fns.h"

namespace hetu::cpu {
namespace {

template <class Body>
void for_chunks(std::int64_t n, const Body& body) {
  for_row_chunks(1, n,
                 [&](std::int64_t, std::int64_t begin, std::int64_t end) { body(begin, end); });
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

/// Operands that broadcast: in a row both move, or one stands still.
template <class F>
struct Binary {
  BroadcastWalk<2> walk;
  explicit Binary(const KernelDesc& d) : walk(d) {}
  void operator()(const KernelCall& c) const {
    const float *first = c.in<float>(0), *second = c.in<float>(1);
    float* out = c.out<float>(0);
    for_row_chunks(walk.rows(), walk.row_size(),
                   [=, this](std::int64_t row, std::int64_t begin, std::int64_t end) {
                     const auto [at_a, at_b] = walk.begin(row);
                     run(first + at_a, second + at_b, out + row * walk.row_size(), begin, end);
                   });
  }
  void run(const float* a, const float* b, float* y, std::int64_t begin, std::int64_t end) const {
    if (walk.step(0) == walk.step(1)) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) y[i] = F()(a[i], b[i]);
    } else if (walk.step(0) == 0) {
      const float one = *a;
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) y[i] = F()(one, b[i]);
    } else {
      const float one = *b;
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) y[i] = F()(a[i], one);
    }
  }
};

/// A function with constants from the node's attributes.
template <template <class> class F>
struct UnaryWith {
  std::int64_t n;
  F<float> f;
  explicit UnaryWith(const KernelDesc& d) : n(count_of(d.outputs[0])), f(*d.attrs) {}
  void operator()(const KernelCall& c) const {
    const float* x = c.in<float>(0);
    float* y = c.out<float>(0);
    for_chunks(n, [x, y, f = f](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) y[i] = f(x[i]);
    });
  }
};

/// condition ? a : b, where any of them may stand still in a row.
struct Where {
  BroadcastWalk<3> walk;
  explicit Where(const KernelDesc& d) : walk(d) {}
  void operator()(const KernelCall& call) const {
    const auto* condition = call.in<std::uint8_t>(0);
    const float *first = call.in<float>(1), *second = call.in<float>(2);
    float* out = call.out<float>(0);
    const std::int64_t step_c = walk.step(0), step_a = walk.step(1), step_b = walk.step(2);
    for_row_chunks(walk.rows(), walk.row_size(),
                   [=, this](std::int64_t row, std::int64_t begin, std::int64_t end) {
                     const auto [at_c, at_a, at_b] = walk.begin(row);
                     const std::uint8_t* c = condition + at_c;
                     const float *a = first + at_a, *b = second + at_b;
                     float* y = out + row * walk.row_size();
#pragma omp simd
                     for (std::int64_t i = begin; i < end; ++i)
                       y[i] = c[i * step_c] != 0 ? a[i * step_a] : b[i * step_b];
                   });
  }
};

template <class F>
struct Comparison {
  BroadcastWalk<2> walk;
  explicit Comparison(const KernelDesc& d) : walk(d) {}
  void operator()(const KernelCall& c) const {
    const float *first = c.in<float>(0), *second = c.in<float>(1);
    auto* out = c.out<std::uint8_t>(0);
    const std::int64_t step_a = walk.step(0), step_b = walk.step(1);
    for_row_chunks(walk.rows(), walk.row_size(),
                   [=, this](std::int64_t row, std::int64_t begin, std::int64_t end) {
                     const auto [at_a, at_b] = walk.begin(row);
                     const float *a = first + at_a, *b = second + at_b;
                     std::uint8_t* y = out + row * walk.row_size();
#pragma omp simd
                     for (std::int64_t i = begin; i < end; ++i)
                       y[i] = F()(a[i * step_a], b[i * step_b]) ? 1 : 0;
                   });
  }
};

/// A row whose loop is no vector code; threads share it out.
template <class Body>
PreparedKernel threads_kernel(const KernelDesc& d) {
  return {Body(d), 0, "threads"};
}

/// Of operators that take int32, too.
bool takes_float32(const KernelDesc& d) { return d.inputs[0].dtype == DType::Float32; }

}  // namespace

const KernelTable& vector_elementwise_rows() {
  static const KernelTable kRows = any_layout({
      {"add", "vector", takes_float32, vector_kernel<Binary<fn::Add>>},
      {"sub", "vector", takes_float32, vector_kernel<Binary<fn::Sub>>},
      {"mul", "vector", takes_float32, vector_kernel<Binary<fn::Mul>>},
      {"relu", "vector", is_float32, vector_kernel<Unary<fn::Relu>>},
      {"relu_grad", "vector", is_float32, vector_kernel<Binary<fn::ReluGrad>>},
      {"gelu", "vector", is_float32, vector_kernel<Unary<fn::Gelu<VectorMath>>>},
      {"gelu_grad", "vector", is_float32, vector_kernel<Binary<fn::GeluGrad<VectorMath>>>},
      {"tanh", "vector", is_float32, vector_kernel<Unary<fn::Tanh<VectorMath>>>},
      {"tanh_grad", "vector", is_float32, vector_kernel<Binary<fn::TanhGrad>>},
      {"scale", "vector", is_float32, vector_kernel<UnaryWith<Scale>>},
      {"div", "vector", is_float32, vector_kernel<Binary<fn::Div>>},
      {"maximum", "vector", takes_float32, vector_kernel<Binary<fn::Maximum>>},
      {"minimum", "vector", takes_float32, vector_kernel<Binary<fn::Minimum>>},
      {"exp", "vector", is_float32, vector_kernel<Unary<fn::Exp<VectorMath>>>},
      {"log", "vector", is_float32, vector_kernel<Unary<fn::Log<VectorMath>>>},
      {"sqrt", "vector", is_float32, vector_kernel<Unary<fn::Sqrt>>},
      {"rsqrt", "vector", is_float32, vector_kernel<Unary<fn::Rsqrt>>},
      {"abs", "vector", is_float32, vector_kernel<Unary<fn::Abs>>},
      {"sign", "vector", is_float32, vector_kernel<Unary<fn::Sign>>},
      {"clip", "vector", is_float32, vector_kernel<UnaryWith<Clip>>},
      {"sigmoid", "vector", is_float32, vector_kernel<Unary<fn::Sigmoid<VectorMath>>>},
      {"silu", "vector", is_float32, vector_kernel<Unary<fn::Silu<VectorMath>>>},
      {"silu_grad", "vector", is_float32, vector_kernel<Binary<fn::SiluGrad<VectorMath>>>},
      {"gelu_tanh", "vector", is_float32, vector_kernel<Unary<fn::GeluTanh<VectorMath>>>},
      {"gelu_tanh_grad", "vector", is_float32, vector_kernel<Binary<fn::GeluTanhGrad<VectorMath>>>},
      {"softplus", "vector", is_float32, vector_kernel<Unary<fn::Softplus<VectorMath>>>},
      {"leaky_relu", "vector", is_float32, vector_kernel<UnaryWith<LeakyRelu>>},
      // No vector forms; threads share the work.
      {"sin", "threads", is_float32, threads_kernel<Unary<fn::Sin>>},
      {"cos", "threads", is_float32, threads_kernel<Unary<fn::Cos>>},
      {"power", "vector", is_float32, vector_kernel<UnaryWith<Power>>},
      {"pow", "threads", is_float32, threads_kernel<Binary<fn::Pow>>},
      {"where", "vector", is_float32, vector_kernel<Where>},
      {"less", "vector", takes_float32, vector_kernel<Comparison<fn::Less>>},
      {"less_equal", "vector", takes_float32, vector_kernel<Comparison<fn::LessEqual>>},
      {"greater", "vector", takes_float32, vector_kernel<Comparison<fn::Swapped<fn::Less>>>},
      {"greater_equal", "vector", takes_float32,
       vector_kernel<Comparison<fn::Swapped<fn::LessEqual>>>},
      {"equal", "vector", takes_float32, vector_kernel<Comparison<fn::Equal>>},
      {"not_equal", "vector", takes_float32, vector_kernel<Comparison<fn::NotEqual>>},
  });
  return kRows;
}

}  // namespace hetu::cpu
