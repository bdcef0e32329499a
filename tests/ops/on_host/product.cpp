// Matrix products of ops/cuda on the host. The column-major product that cuBLASLt would run is
// computed by loops over the same layout.
#include "ops/cuda/product.h"

#include "base/error.h"
#include "ops/scalar_fns.h"
#include "tests/ops/floats.h"
#include "tests/ops/on_host/product_bias_grad.h"

namespace hetu::cuda {

struct Product::Plan {
  cpu::ProductShape shape;
  DType dtype, result;
  Then then;
  Leads leads;

  void run(const void* a, const void* b, const void* bias, const void* sum, void* c,
           void* before) const;
};

Product::Product(const cpu::ProductShape& shape, DType dtype, DType result, Then then, Leads leads)
    : plan_(std::make_shared<Plan>(Plan{shape, dtype, result, then, leads})) {
  HETU_ASSERT(result == dtype || (result == DType::Float32 && !shape.bias));
  check_then(shape, result, then);
}

namespace {

double at(const void* data, DType dtype, std::int64_t i) { return test::float_at(data, dtype, i); }

void set(void* data, DType dtype, std::int64_t i, double value) {
  test::set_float(data, dtype, i, static_cast<float>(value));
}

std::int64_t place(const ColumnMajor& m, std::int64_t batch, std::int64_t row, std::int64_t column,
                   bool transposed) {
  if (transposed) std::swap(row, column);
  return batch * m.stride + column * m.leading + row;
}

}  // namespace

bool Product::there() const {
  const cpu::ProductShape& s = plan_->shape;
  return plan_->then != Then::BiasGrad || (s.m * s.n * s.k > 0 && host_sums_bias_grads);
}

void Product::operator()(const void* a, const void* b, const void* bias, void* c,
                         void* before) const {
  plan_->run(a, b, bias, c, c, before);
}

void Product::plus(const void* a, const void* b, const void* sum, void* c) const {
  HETU_ASSERT(plan_->shape.adds && !plan_->shape.bias);
  plan_->run(a, b, nullptr, sum, c, nullptr);
}

// As in the library, the sums overwrite the previous contents.
void Product::with_bias_grad(const void* a, const void* b, void* c, float* sums) const {
  HETU_ASSERT(plan_->then == Then::BiasGrad && there());
  plan_->run(a, b, nullptr, c, c, nullptr);
  const ProductLayout l(plan_->shape, plan_->leads);
  for (std::int64_t j = 0; j < l.result.columns; ++j) {
    double sum = 0;
    for (std::int64_t t = 0; t < plan_->shape.k; ++t)
      sum += at(a, plan_->dtype, place(l.second, 0, t, j, l.transpose_second));
    sums[j] = static_cast<float>(sum);
  }
}

void Product::Plan::run(const void* a, const void* b, const void* bias, const void* sum, void* c,
                        void* before) const {
  const cpu::ProductShape& s = shape;
  const ProductLayout l(s, leads);
  for (const void* operand : {a, b, sum, static_cast<const void*>(c)})
    HETU_ASSERT(reinterpret_cast<std::uintptr_t>(operand) % kProductAlignment == 0);
  const std::int64_t terms = l.transpose_first ? l.first.rows : l.first.columns;
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t j = 0; j < l.result.columns; ++j)
      for (std::int64_t i = 0; i < l.result.rows; ++i) {
        const std::int64_t to = place(l.result, n, i, j, false);
        double x = s.bias ? at(bias, dtype, i) : s.adds ? at(sum, result, to) : 0.0;
        for (std::int64_t t = 0; t < terms; ++t)
          x += at(b, dtype, place(l.first, n, i, t, l.transpose_first)) *
               at(a, dtype, place(l.second, n, t, j, l.transpose_second));
        if (then == Then::Relu) x = fn::Relu()(x);
        if (then == Then::GeluTanh) {
          set(before, result, to, x);
          x = fn::GeluTanh<>()(x);
        }
        set(c, result, to, x);
      }
}

}  // namespace hetu::cuda
