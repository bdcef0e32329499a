// The code that docs/add-an-operator.md shows, between markers that name its file. The code around
// it stands in for the contents of those files. add_operator_test.cpp runs it and compares the two
// texts.
#pragma once
#include <utility>
#include <vector>

#include "ops/cpu/kernel_shapes.h"
#include "ops/def/rules.h"
#include "ops/scalar_fns.h"

namespace hetu::example {

namespace fn {
// [ops/scalar_fns.h]
struct Square {
  template <class T>
  HETU_HD T operator()(T x) const {
    return x * x;
  }
};
// [end]
}  // namespace fn

namespace def {
using hetu::def::same_as_input;
using Values = std::vector<ValueId>;
// [ops/def/math.cpp]
OpDef square() {
  return {
      .name = "square",
      .doc = "x * x, elementwise.",
      .inputs = {"x"},
      .infer = same_as_input,
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        const ValueId slope = b.apply("scale", {g.inputs[0]}, {{"factor", 2.0}});
        return {b.apply("mul", {slope, g.dy[0]})};
      },
      .samples = {{.shapes = {{2, 3}}}, {.shapes = {{1}}}, {.shapes = {{0}}}},
  };
}
// [end]
}  // namespace def

namespace cpu {
using hetu::cpu::count_of;
using hetu::cpu::reference;

template <class T, class F>
struct Unary {
  std::int64_t n;
  explicit Unary(const KernelDesc& d) : n(count_of(d.outputs[0])) {}
  void operator()(const KernelCall& c) const {
    for (std::int64_t i = 0; i < n; ++i) c.out<T>(0)[i] = F()(c.in<T>(0)[i]);
  }
};

template <class F>
struct Of {
  template <class T>
  using One = Unary<T, F>;
};

inline std::vector<KernelRow> rows() {
  return {
      // clang-format off
// [ops/cpu/reference_elementwise.cpp]
      {"square", "reference", nullptr, reference<Of<fn::Square>::One>},
// [end]
      // clang-format on
  };
}

}  // namespace cpu
}  // namespace hetu::example
