// Elementwise operators: one body per combination of operand shapes, over ops/scalar_fns.h.
#include <launch.h>

#include <cstdint>

#include "ops/cpu/attr_fns.h"
#include "ops/cuda/numbers.h"
#include "ops/cuda/packs.h"
#include "ops/cuda/short_math.h"

namespace hetu::cuda {
namespace {

using cpu::count_of;

template <class F>
struct UnaryOf {
  Reader x;
  Writer y;
  F f;
  HETU_HD void operator()(std::int64_t i) const { y.set(i, f(x[i])); }
};

template <class F>
struct Unary {
  std::int64_t n;
  Numbers numbers;
  F f;
  explicit Unary(const KernelDesc& d) : n(count_of(d.outputs[0])), numbers(d), f(made(d)) {}
  static F made(const KernelDesc& d) {
    if constexpr (std::is_constructible_v<F, const Attrs&>)
      return F(*d.attrs);
    else
      return F();
  }
  void operator()(const KernelCall& c) const {
    if (numbers.alike() && swept_in_packs<1>(numbers.dtype(), c.inputs, c.outputs[0], n, f)) return;
    for_each(n, UnaryOf<F>{numbers.in(c, 0), numbers.out(c, 0), f});
  }
};
template <class F>
PreparedKernel one(const KernelDesc& d) {
  return kernel<Unary<F>>(d);
}

template <class T, class F, class To>
struct BinaryOf {
  const T *a, *b;
  To* y;
  Walk<2> walk;
  HETU_HD void operator()(std::int64_t i) const {
    std::int64_t at[2];
    walk.places(i, at);
    y[i] = static_cast<To>(F()(a[at[0]], b[at[1]]));
  }
};

template <class T, class F, class To>
struct Binary {
  Walk<2> walk;
  explicit Binary(const KernelDesc& d) : walk(d) {}
  void operator()(const KernelCall& c) const {
    for_each(walk.elements, BinaryOf<T, F, To>{c.in<T>(0), c.in<T>(1), c.out<To>(0), walk});
  }
};

template <class F>
struct TwoNumbersOf {
  Reader a, b;
  Writer y;
  Walk<2> walk;
  HETU_HD void operator()(std::int64_t i) const {
    std::int64_t at[2];
    walk.places(i, at);
    y.set(i, F()(a[at[0]], b[at[1]]));
  }
};

template <class F>
struct TwoNumbers {
  Walk<2> walk;
  Numbers numbers;
  bool alike;  // same dtypes and shapes
  explicit TwoNumbers(const KernelDesc& d)
      : walk(d),
        numbers(d),
        alike(numbers.alike() && d.inputs[0].shape == d.outputs[0].shape &&
              d.inputs[1].shape == d.outputs[0].shape) {}
  void operator()(const KernelCall& c) const {
    if (alike && swept_in_packs<2>(numbers.dtype(), c.inputs, c.outputs[0], walk.elements, F()))
      return;
    for_each(walk.elements,
             TwoNumbersOf<F>{numbers.in(c, 0), numbers.in(c, 1), numbers.out(c, 0), walk});
  }
};
template <class F>
PreparedKernel two(const KernelDesc& d) {
  return kernel<TwoNumbers<F>>(d);
}

PreparedKernel gelu(const KernelDesc& d) {
  return is_short(d) ? one<fn::Gelu<ShortMath>>(d) : one<fn::Gelu<>>(d);
}
PreparedKernel gelu_grad(const KernelDesc& d) {
  return is_short(d) ? two<fn::GeluGrad<ShortMath>>(d) : two<fn::GeluGrad<>>(d);
}

/// Prepares arithmetic on floats, or on int32 as type T: see ops/cpu/reference_elementwise.cpp.
template <class F, class T>
PreparedKernel arithmetic(const KernelDesc& d) {
  return d.inputs[0].dtype == DType::Int32 ? kernel<Binary<T, F, T>>(d) : two<F>(d);
}

template <class F>
PreparedKernel compare(const KernelDesc& d) {
  switch (d.inputs[0].dtype) {
    case DType::BFloat16:
    case DType::Float16:
      return cuda::widened_kernel(d, compare<F>);
    case DType::Float32:
      return kernel<Binary<float, F, bool>>(d);
    case DType::Int32:
      return kernel<Binary<std::int32_t, F, bool>>(d);
    case DType::Bool:
      return kernel<Binary<std::uint8_t, F, bool>>(d);
    default:
      fail(Code::Unsupported,
           "{} '{}': no CUDA kernel for {}; supported types: float32, bfloat16, float16, int32 and "
           "bool",
           d.op, d.name, dtype_name(d.inputs[0].dtype));
  }
}

struct NotOf {
  const std::uint8_t* x;
  bool* y;
  HETU_HD void operator()(std::int64_t i) const { y[i] = x[i] == 0; }
};

PreparedKernel logical_not(const KernelDesc& d) {
  return {[n = count_of(d.outputs[0])](const KernelCall& c) {
            for_each(n, NotOf{c.in<std::uint8_t>(0), c.out<bool>(0)});
          },
          0, kImplementation};
}

struct WhereOf {
  const std::uint8_t* which;
  const float *a, *b;
  float* y;
  Walk<3> walk;
  HETU_HD void operator()(std::int64_t i) const {
    std::int64_t at[3];
    walk.places(i, at);
    y[i] = which[at[0]] != 0 ? a[at[1]] : b[at[2]];
  }
};

struct Where {
  Walk<3> walk;
  explicit Where(const KernelDesc& d) : walk(d) {}
  void operator()(const KernelCall& c) const {
    for_each(walk.elements,
             WhereOf{c.in<std::uint8_t>(0), c.in<float>(1), c.in<float>(2), c.out<float>(0), walk});
  }
};

struct BroadcastOf {
  const float* x;
  float* y;
  Walk<1> walk;
  HETU_HD void operator()(std::int64_t i) const {
    std::int64_t at;
    walk.places(i, &at);
    y[i] = x[at];
  }
};

struct BroadcastTo {
  Walk<1> walk;
  explicit BroadcastTo(const KernelDesc& d) : walk(d) {}
  void operator()(const KernelCall& c) const {
    for_each(walk.elements, BroadcastOf{c.in<float>(0), c.out<float>(0), walk});
  }
};

struct DivScalarOf {
  const float *x, *by;
  float* y;
  HETU_HD void operator()(std::int64_t i) const { y[i] = x[i] / *by; }
};

struct DivScalar {
  std::int64_t n;
  explicit DivScalar(const KernelDesc& d) : n(count_of(d.outputs[0])) {}
  void operator()(const KernelCall& c) const {
    for_each(n, DivScalarOf{c.in<float>(0), c.in<float>(1), c.out<float>(0)});
  }
};

struct FillOf {
  float value;
  float* y;
  HETU_HD void operator()(std::int64_t i) const { y[i] = value; }
};

struct Fill {
  std::int64_t n;
  float value;
  bool of_loss;
  explicit Fill(const KernelDesc& d)
      : n(count_of(d.outputs[0])),
        value(static_cast<float>(d.attrs->real("value"))),
        of_loss(d.attrs->integer("of_loss") != 0) {}
  void operator()(const KernelCall& c) const {
    for_each(n, FillOf{of_loss ? value * c.run.loss_scale : value, c.out<float>(0)});
  }
};

struct ExpandOf {
  const float* x;
  float* y;
  HETU_HD void operator()(std::int64_t i) const { y[i] = *x; }
};

struct Expand {
  std::int64_t n;
  explicit Expand(const KernelDesc& d) : n(count_of(d.outputs[0])) {}
  void operator()(const KernelCall& c) const {
    for_each(n, ExpandOf{c.in<float>(0), c.out<float>(0)});
  }
};

}  // namespace

const KernelTable& elementwise_rows() {
  const auto any_layout = [](KernelTable rows) {
    for (KernelRow& one : rows) one.layouts = ImageLayouts::Both;
    return rows;
  };
  static const KernelTable kRows = any_layout({
      row("add", arithmetic<fn::Add, std::uint32_t>),
      row("sub", arithmetic<fn::Sub, std::uint32_t>),
      row("mul", arithmetic<fn::Mul, std::uint32_t>),
      row("maximum", arithmetic<fn::Maximum, std::int32_t>),
      row("minimum", arithmetic<fn::Minimum, std::int32_t>),
      row("relu", one<fn::Relu>),
      row("relu_grad", two<fn::ReluGrad>),
      row("gelu", gelu),
      row("gelu_grad", gelu_grad),
      row("tanh", one<fn::Tanh<>>),
      row("tanh_grad", two<fn::TanhGrad>),
      row("scale", one<cpu::Scale<float>>),
      row("div_scalar", floats<DivScalar>),
      row("fill", floats<Fill>),
      row("expand", floats<Expand>),
      row("div", two<fn::Div>),
      row("pow", two<fn::Pow>),
      row("less", compare<fn::Less>),
      row("less_equal", compare<fn::LessEqual>),
      row("greater", compare<fn::Swapped<fn::Less>>),
      row("greater_equal", compare<fn::Swapped<fn::LessEqual>>),
      row("equal", compare<fn::Equal>),
      row("not_equal", compare<fn::NotEqual>),
      row("logical_and", compare<fn::And>),
      row("logical_or", compare<fn::Or>),
      row("logical_not", logical_not),
      row("where", floats<Where>),
      row("broadcast_to", floats<BroadcastTo>),
      row("exp", one<fn::Exp<>>),
      row("log", one<fn::Log<>>),
      row("sqrt", one<fn::Sqrt>),
      row("rsqrt", one<fn::Rsqrt>),
      row("abs", one<fn::Abs>),
      row("sign", one<fn::Sign>),
      row("sin", one<fn::Sin>),
      row("cos", one<fn::Cos>),
      row("power", one<cpu::Power<float>>),
      row("clip", one<cpu::Clip<float>>),
      row("leaky_relu", one<cpu::LeakyRelu<float>>),
      row("sigmoid", one<fn::Sigmoid<>>),
      row("silu", one<fn::Silu<>>),
      row("silu_grad", two<fn::SiluGrad<>>),
      row("gelu_tanh", one<fn::GeluTanh<>>),
      row("gelu_tanh_grad", two<fn::GeluTanhGrad<>>),
      row("softplus", one<fn::Softplus<>>),
  });
  return kRows;
}

}  // namespace hetu::cuda
