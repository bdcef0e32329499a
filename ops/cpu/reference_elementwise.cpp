// Plain loops over ops/scalar_fns.h, and the elementwise operators with an attribute or a scalar.
#include "ops/cpu/attr_fns.h"
#include "ops/cpu/broadcast_walk.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"
#include "ops/scalar_fns.h"

namespace hetu::cpu {
namespace {

template <class T, class F>
struct Unary {
  std::int64_t n;
  explicit Unary(const KernelDesc& d) : n(count_of(d.outputs[0])) {}
  void operator()(const KernelCall& c) const {
    const T* x = c.in<T>(0);
    T* y = c.out<T>(0);
    for (std::int64_t i = 0; i < n; ++i) y[i] = F()(x[i]);
  }
};

template <class T, class F>
struct Binary {
  BroadcastWalk<2> walk;
  explicit Binary(const KernelDesc& d) : walk(d) {}
  void operator()(const KernelCall& c) const { over(c.in<T>(0), c.in<T>(1), c.out<T>(0)); }
  template <class To>
  void over(const T* a, const T* b, To* y) const {
    for (std::int64_t r = 0; r < walk.rows(); ++r) {
      const auto [at_a, at_b] = walk.begin(r);
      for (std::int64_t i = 0; i < walk.row_size(); ++i)
        *y++ = F()(a[at_a + i * walk.step(0)], b[at_b + i * walk.step(1)]);
    }
  }
};

template <class F>
struct Of {
  template <class T>
  using One = Unary<T, F>;
  template <class T>
  using Two = Binary<T, F>;
};

template <class T, template <class> class F>
struct UnaryWith {
  std::int64_t n;
  F<T> f;
  explicit UnaryWith(const KernelDesc& d) : n(count_of(d.outputs[0])), f(*d.attrs) {}
  void operator()(const KernelCall& c) const {
    for (std::int64_t i = 0; i < n; ++i) c.out<T>(0)[i] = f(c.in<T>(0)[i]);
  }
};

template <template <class> class F>
struct With {
  template <class T>
  using One = UnaryWith<T, F>;
};

template <class T>
struct DivScalar {
  std::int64_t n;
  explicit DivScalar(const KernelDesc& d) : n(count_of(d.outputs[0])) {}
  void operator()(const KernelCall& c) const {
    const T s = c.in<T>(1)[0];
    for (std::int64_t i = 0; i < n; ++i) c.out<T>(0)[i] = c.in<T>(0)[i] / s;
  }
};

template <class T>
struct Fill {
  std::int64_t n;
  T value;
  bool of_loss;
  explicit Fill(const KernelDesc& d)
      : n(count_of(d.outputs[0])),
        value(static_cast<T>(d.attrs->real("value"))),
        of_loss(d.attrs->has("of_loss") && d.attrs->integer("of_loss") != 0) {}
  void operator()(const KernelCall& c) const {
    const T x = of_loss ? value * static_cast<T>(c.run.loss_scale) : value;
    std::fill_n(c.out<T>(0), n, x);
  }
};

template <class T>
struct Expand {
  std::int64_t n;
  explicit Expand(const KernelDesc& d) : n(count_of(d.outputs[0])) {}
  void operator()(const KernelCall& c) const {
    const T s = c.in<T>(0)[0];
    for (std::int64_t i = 0; i < n; ++i) c.out<T>(0)[i] = s;
  }
};

template <class T>
struct Where {
  BroadcastWalk<3> walk;
  explicit Where(const KernelDesc& d) : walk(d) {}
  void operator()(const KernelCall& c) const {
    T* y = c.out<T>(0);
    for (std::int64_t r = 0; r < walk.rows(); ++r) {
      const auto [at_c, at_a, at_b] = walk.begin(r);
      for (std::int64_t i = 0; i < walk.row_size(); ++i)
        *y++ = c.in<std::uint8_t>(0)[at_c + i * walk.step(0)] != 0
                   ? c.in<T>(1)[at_a + i * walk.step(1)]
                   : c.in<T>(2)[at_b + i * walk.step(2)];
    }
  }
};

template <class T, class F>
PreparedKernel compare_as(const KernelDesc& d) {
  return {[body = Binary<T, F>(d)](const KernelCall& c) {
            body.over(c.in<T>(0), c.in<T>(1), c.out<bool>(0));
          },
          0, "reference"};
}

/// Compares in the dtype of the operands, which may also be int32 or bool.
template <class F>
PreparedKernel compare(const KernelDesc& d) {
  switch (d.inputs[0].dtype) {
    case DType::BFloat16:
    case DType::Float16:
      return widened_kernel(d, compare<F>);
    case DType::Float32:
      return compare_as<float, F>(d);
    case DType::Float64:
      return compare_as<double, F>(d);
    case DType::Int32:
      return compare_as<std::int32_t, F>(d);
    case DType::Bool:
      return compare_as<std::uint8_t, F>(d);
    default:
      fail(Code::Unsupported,
           "{} '{}': no CPU kernel for {}; supported types: floating-point types, int32 and bool",
           d.op, d.name, dtype_name(d.inputs[0].dtype));
  }
}

/// Prepares a kernel for floats, or for int32 computed as T. With T = uint32, overflow wraps
/// around, and the bits are those of int32.
template <class F, class T>
PreparedKernel arithmetic(const KernelDesc& d) {
  if (d.inputs[0].dtype != DType::Int32) return reference<Of<F>::template Two>(d);
  return {[body = Binary<T, F>(d)](const KernelCall& c) { body(c); }, 0, "reference"};
}

PreparedKernel logical_not(const KernelDesc& d) {
  return {[n = count_of(d.outputs[0])](const KernelCall& c) {
            for (std::int64_t i = 0; i < n; ++i) c.out<bool>(0)[i] = c.in<std::uint8_t>(0)[i] == 0;
          },
          0, "reference"};
}

}  // namespace

const KernelTable& reference_elementwise_rows() {
  static const KernelTable kRows = any_layout({
      {"add", "reference", nullptr, arithmetic<fn::Add, std::uint32_t>},
      {"sub", "reference", nullptr, arithmetic<fn::Sub, std::uint32_t>},
      {"mul", "reference", nullptr, arithmetic<fn::Mul, std::uint32_t>},
      {"relu", "reference", nullptr, reference<Of<fn::Relu>::One>},
      {"relu_grad", "reference", nullptr, reference<Of<fn::ReluGrad>::Two>},
      {"gelu", "reference", nullptr, reference<Of<fn::Gelu<>>::One>},
      {"gelu_grad", "reference", nullptr, reference<Of<fn::GeluGrad<>>::Two>},
      {"tanh", "reference", nullptr, reference<Of<fn::Tanh<>>::One>},
      {"tanh_grad", "reference", nullptr, reference<Of<fn::TanhGrad>::Two>},
      {"scale", "reference", nullptr, reference<With<Scale>::One>},
      {"div_scalar", "reference", nullptr, reference<DivScalar>},
      {"fill", "reference", nullptr, reference<Fill>},
      {"expand", "reference", nullptr, reference<Expand>},
      {"div", "reference", nullptr, reference<Of<fn::Div>::Two>},
      {"pow", "reference", nullptr, reference<Of<fn::Pow>::Two>},
      {"maximum", "reference", nullptr, arithmetic<fn::Maximum, std::int32_t>},
      {"minimum", "reference", nullptr, arithmetic<fn::Minimum, std::int32_t>},
      {"less", "reference", nullptr, compare<fn::Less>},
      {"less_equal", "reference", nullptr, compare<fn::LessEqual>},
      {"greater", "reference", nullptr, compare<fn::Swapped<fn::Less>>},
      {"greater_equal", "reference", nullptr, compare<fn::Swapped<fn::LessEqual>>},
      {"equal", "reference", nullptr, compare<fn::Equal>},
      {"not_equal", "reference", nullptr, compare<fn::NotEqual>},
      {"logical_and", "reference", nullptr, compare<fn::And>},
      {"logical_or", "reference", nullptr, compare<fn::Or>},
      {"logical_not", "reference", nullptr, logical_not},
      {"where", "reference", nullptr, reference<Where>},
      {"exp", "reference", nullptr, reference<Of<fn::Exp<>>::One>},
      {"log", "reference", nullptr, reference<Of<fn::Log<>>::One>},
      {"sqrt", "reference", nullptr, reference<Of<fn::Sqrt>::One>},
      {"rsqrt", "reference", nullptr, reference<Of<fn::Rsqrt>::One>},
      {"abs", "reference", nullptr, reference<Of<fn::Abs>::One>},
      {"sign", "reference", nullptr, reference<Of<fn::Sign>::One>},
      {"sin", "reference", nullptr, reference<Of<fn::Sin>::One>},
      {"cos", "reference", nullptr, reference<Of<fn::Cos>::One>},
      {"power", "reference", nullptr, reference<With<Power>::One>},
      {"clip", "reference", nullptr, reference<With<Clip>::One>},
      {"sigmoid", "reference", nullptr, reference<Of<fn::Sigmoid<>>::One>},
      {"silu", "reference", nullptr, reference<Of<fn::Silu<>>::One>},
      {"silu_grad", "reference", nullptr, reference<Of<fn::SiluGrad<>>::Two>},
      {"gelu_tanh", "reference", nullptr, reference<Of<fn::GeluTanh<>>::One>},
      {"gelu_tanh_grad", "reference", nullptr, reference<Of<fn::GeluTanhGrad<>>::Two>},
      {"softplus", "reference", nullptr, reference<Of<fn::Softplus<>>::One>},
      {"leaky_relu", "reference", nullptr, reference<With<LeakyRelu>::One>},
  });
  return kRows;
}

}  // namespace hetu::cpu
