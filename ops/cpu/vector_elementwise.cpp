// Vectorized loops over ops/scalar_fns.h, on several threads for large tensors. T is float or
// BFloat16, the type in memory. The functions compute in float32.
#include "ops/cpu/attr_fns.h"
#include "ops/cpu/broadcast_walk.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/set_rounded.h"
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

template <class F, class T = float>
struct Unary {
  std::int64_t n;
  explicit Unary(const KernelDesc& d) : n(count_of(d.outputs[0])) {}
  void operator()(const KernelCall& c) const {
    const T* x = c.in<T>(0);
    T* y = c.out<T>(0);
    for_chunks(n, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) set_rounded(y[i], F()(float(x[i])));
    });
  }
};

/// Broadcast operands: within a row, both advance, or one stays at the same element.
template <class F, class T = float>
struct Binary {
  BroadcastWalk<2> walk;
  explicit Binary(const KernelDesc& d) : walk(d) {}
  void operator()(const KernelCall& c) const {
    const T *first = c.in<T>(0), *second = c.in<T>(1);
    T* out = c.out<T>(0);
    for_row_chunks(walk.rows(), walk.row_size(),
                   [=, this](std::int64_t row, std::int64_t begin, std::int64_t end) {
                     const auto [at_a, at_b] = walk.begin(row);
                     run(first + at_a, second + at_b, out + row * walk.row_size(), begin, end);
                   });
  }
  void run(const T* a, const T* b, T* y, std::int64_t begin, std::int64_t end) const {
    if (walk.step(0) == walk.step(1)) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) set_rounded(y[i], F()(float(a[i]), float(b[i])));
    } else if (walk.step(0) == 0) {
      const float one = *a;
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) set_rounded(y[i], F()(one, float(b[i])));
    } else {
      const float one = *b;
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) set_rounded(y[i], F()(float(a[i]), one));
    }
  }
};

/// A function with constants from the node's attributes.
template <template <class> class F, class T = float>
struct UnaryWith {
  std::int64_t n;
  F<float> f;
  explicit UnaryWith(const KernelDesc& d) : n(count_of(d.outputs[0])), f(*d.attrs) {}
  void operator()(const KernelCall& c) const {
    const T* x = c.in<T>(0);
    T* y = c.out<T>(0);
    for_chunks(n, [x, y, f = f](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) set_rounded(y[i], f(float(x[i])));
    });
  }
};

/// condition ? a : b, where each may stay at the same element within a row.
template <class T>
struct Where {
  BroadcastWalk<3> walk;
  explicit Where(const KernelDesc& d) : walk(d) {}
  void operator()(const KernelCall& call) const {
    const auto* condition = call.in<std::uint8_t>(0);
    const T *first = call.in<T>(1), *second = call.in<T>(2);
    T* out = call.out<T>(0);
    const std::int64_t step_c = walk.step(0), step_a = walk.step(1), step_b = walk.step(2);
    for_row_chunks(walk.rows(), walk.row_size(),
                   [=, this](std::int64_t row, std::int64_t begin, std::int64_t end) {
                     const auto [at_c, at_a, at_b] = walk.begin(row);
                     const std::uint8_t* c = condition + at_c;
                     const T *a = first + at_a, *b = second + at_b;
                     T* y = out + row * walk.row_size();
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

/// Bodies that depend on T only, for rows that accept both types.
template <class F>
struct Of {
  template <class T>
  using One = Unary<F, T>;
  template <class T>
  using Two = Binary<F, T>;
};
template <template <class> class F>
struct With {
  template <class T>
  using One = UnaryWith<F, T>;
};

/// Prepares a row whose loop can't be vectorized but is divided among threads.
template <class Body>
PreparedKernel threads_kernel(const KernelDesc& d) {
  return {Body(d), 0, "threads"};
}

/// The conditions of operators that also accept int32.
bool takes_float32(const KernelDesc& d) { return d.inputs[0].dtype == DType::Float32; }
bool takes_floats(const KernelDesc& d) { return takes_float32(d) || is_bfloat16(d); }

}  // namespace

const KernelTable& vector_elementwise_rows() {
  constexpr auto kEither = is_float32_or_bfloat16;
  static const KernelTable kRows = any_layout({
      {"add", "vector", takes_floats, vector_either<Of<fn::Add>::Two>},
      {"sub", "vector", takes_floats, vector_either<Of<fn::Sub>::Two>},
      {"mul", "vector", takes_floats, vector_either<Of<fn::Mul>::Two>},
      {"relu", "vector", kEither, vector_either<Of<fn::Relu>::One>},
      {"relu_grad", "vector", kEither, vector_either<Of<fn::ReluGrad>::Two>},
      {"gelu", "vector", kEither, vector_either<Of<fn::Gelu<VectorMath>>::One>},
      {"gelu_grad", "vector", kEither, vector_either<Of<fn::GeluGrad<VectorMath>>::Two>},
      {"tanh", "vector", kEither, vector_either<Of<fn::Tanh<VectorMath>>::One>},
      {"tanh_grad", "vector", kEither, vector_either<Of<fn::TanhGrad>::Two>},
      {"scale", "vector", kEither, vector_either<With<Scale>::One>},
      {"div", "vector", kEither, vector_either<Of<fn::Div>::Two>},
      {"maximum", "vector", takes_floats, vector_either<Of<fn::Maximum>::Two>},
      {"minimum", "vector", takes_floats, vector_either<Of<fn::Minimum>::Two>},
      {"exp", "vector", is_float32, vector_kernel<Unary<fn::Exp<VectorMath>>>},
      {"log", "vector", is_float32, vector_kernel<Unary<fn::Log<VectorMath>>>},
      {"sqrt", "vector", is_float32, vector_kernel<Unary<fn::Sqrt>>},
      {"rsqrt", "vector", is_float32, vector_kernel<Unary<fn::Rsqrt>>},
      {"abs", "vector", kEither, vector_either<Of<fn::Abs>::One>},
      {"sign", "vector", kEither, vector_either<Of<fn::Sign>::One>},
      {"clip", "vector", kEither, vector_either<With<Clip>::One>},
      {"sigmoid", "vector", kEither, vector_either<Of<fn::Sigmoid<VectorMath>>::One>},
      {"silu", "vector", kEither, vector_either<Of<fn::Silu<VectorMath>>::One>},
      {"silu_grad", "vector", kEither, vector_either<Of<fn::SiluGrad<VectorMath>>::Two>},
      {"gelu_tanh", "vector", kEither, vector_either<Of<fn::GeluTanh<VectorMath>>::One>},
      {"gelu_tanh_grad", "vector", kEither, vector_either<Of<fn::GeluTanhGrad<VectorMath>>::Two>},
      {"softplus", "vector", kEither, vector_either<Of<fn::Softplus<VectorMath>>::One>},
      {"leaky_relu", "vector", kEither, vector_either<With<LeakyRelu>::One>},
      // sin, cos and pow have no vector form; threads share the work.
      {"sin", "threads", is_float32, threads_kernel<Unary<fn::Sin>>},
      {"cos", "threads", is_float32, threads_kernel<Unary<fn::Cos>>},
      {"power", "vector", is_float32, vector_kernel<UnaryWith<Power>>},
      {"pow", "threads", is_float32, threads_kernel<Binary<fn::Pow>>},
      {"where", "vector", kEither, vector_either<Where>},
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
