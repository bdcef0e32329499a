// Plain loops over ops/scalar_fns.h, and the elementwise operators with an attribute or a scalar.
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
  std::int64_t n;
  explicit Binary(const KernelDesc& d) : n(count_of(d.outputs[0])) {}
  void operator()(const KernelCall& c) const {
    const T *a = c.in<T>(0), *b = c.in<T>(1);
    T* y = c.out<T>(0);
    for (std::int64_t i = 0; i < n; ++i) y[i] = F()(a[i], b[i]);
  }
};

template <class F>
struct Of {
  template <class T>
  using One = Unary<T, F>;
  template <class T>
  using Two = Binary<T, F>;
};

template <class T>
struct Scale {
  std::int64_t n;
  T factor;
  explicit Scale(const KernelDesc& d)
      : n(count_of(d.outputs[0])), factor(static_cast<T>(d.attrs->real("factor"))) {}
  void operator()(const KernelCall& c) const {
    for (std::int64_t i = 0; i < n; ++i) c.out<T>(0)[i] = c.in<T>(0)[i] * factor;
  }
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
  explicit Fill(const KernelDesc& d)
      : n(count_of(d.outputs[0])), value(static_cast<T>(d.attrs->real("value"))) {}
  void operator()(const KernelCall& c) const {
    for (std::int64_t i = 0; i < n; ++i) c.out<T>(0)[i] = value;
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

}  // namespace

const KernelTable& reference_elementwise_rows() {
  static const KernelTable kRows = any_layout({
      {"add", "reference", nullptr, reference<Of<fn::Add>::Two>},
      {"sub", "reference", nullptr, reference<Of<fn::Sub>::Two>},
      {"mul", "reference", nullptr, reference<Of<fn::Mul>::Two>},
      {"relu", "reference", nullptr, reference<Of<fn::Relu>::One>},
      {"relu_grad", "reference", nullptr, reference<Of<fn::ReluGrad>::Two>},
      {"gelu", "reference", nullptr, reference<Of<fn::Gelu<>>::One>},
      {"gelu_grad", "reference", nullptr, reference<Of<fn::GeluGrad<>>::Two>},
      {"tanh", "reference", nullptr, reference<Of<fn::Tanh<>>::One>},
      {"tanh_grad", "reference", nullptr, reference<Of<fn::TanhGrad>::Two>},
      {"scale", "reference", nullptr, reference<Scale>},
      {"div_scalar", "reference", nullptr, reference<DivScalar>},
      {"fill", "reference", nullptr, reference<Fill>},
      {"expand", "reference", nullptr, reference<Expand>},
  });
  return kRows;
}

}  // namespace hetu::cpu
