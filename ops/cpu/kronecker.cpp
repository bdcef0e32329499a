#include "ops/cpu/kronecker.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/cpu/product.h"

namespace hetu::cpu {
namespace {

constexpr double kLeastDamping = 1e-7;

// Rows of a square matrix, one after the other.
class Square {
 public:
  explicit Square(std::int64_t side)
      : side_(side), values_(static_cast<std::size_t>(side * side)) {}
  double* row(std::int64_t i) { return values_.data() + i * side_; }
  const double* row(std::int64_t i) const { return values_.data() + i * side_; }
  std::int64_t side() const { return side_; }

 private:
  std::int64_t side_;
  std::vector<double> values_;
};

double trace(const float* x, std::int64_t side) {
  double sum = 0;
  for (std::int64_t i = 0; i < side; ++i) sum += static_cast<double>(x[i * side + i]);
  return sum;
}

double dot(const double* a, const double* b, std::int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// The lower triangle of M becomes L with M = L L^T. A row of L needs those above it, an element of
// it those to its left: columns of a block of rows are shared out among threads, and no sum's order
// depends on how.
void factorise(Square& m) {
  constexpr std::int64_t kBlock = 64;
  const std::int64_t n = m.side();
  for (std::int64_t first = 0; first < n; first += kBlock) {
    const std::int64_t end = std::min(n, first + kBlock);
    for (std::int64_t i = first; i < end; ++i) {
      for (std::int64_t j = first; j < i; ++j)
        m.row(i)[j] = (m.row(i)[j] - dot(m.row(i), m.row(j), j)) / m.row(j)[j];
      m.row(i)[i] = std::sqrt(m.row(i)[i] - dot(m.row(i), m.row(i), i));
    }
#pragma omp parallel for schedule(static) if (parallel : n - end > kBlock)
    for (std::int64_t i = end; i < n; ++i)
      for (std::int64_t j = first; j < end; ++j)
        m.row(i)[j] = (m.row(i)[j] - dot(m.row(i), m.row(j), j)) / m.row(j)[j];
  }
}

// The transpose of L^-1: row j of `out` is column j of the inverse, from its diagonal on.
void invert_triangle(const Square& l, Square& out) {
  const std::int64_t n = l.side();
#pragma omp parallel for schedule(dynamic, 8) if (parallel : n > 64)
  for (std::int64_t j = 0; j < n; ++j) {
    double* x = out.row(j);
    std::fill_n(x, j, 0.0);
    x[j] = 1 / l.row(j)[j];
    for (std::int64_t i = j + 1; i < n; ++i) x[i] = -dot(l.row(i) + j, x + j, i - j) / l.row(i)[i];
  }
}

// to = (scale * factor + damping * I)^-1, of the lower triangle of the factor.
void damped_inverse(const float* factor, std::int64_t n, double scale, double damping, float* to) {
  Square m(n), inverse(n);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j <= i; ++j)
      m.row(i)[j] = scale * static_cast<double>(factor[i * n + j]);
    m.row(i)[i] += damping;
  }
  factorise(m);
  invert_triangle(m, inverse);
#pragma omp parallel for schedule(dynamic, 8) if (parallel : n > 64)
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j <= i; ++j)
      m.row(i)[j] = dot(inverse.row(i) + i, inverse.row(j) + i, n - i);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      to[i * n + j] = static_cast<float>(i >= j ? m.row(i)[j] : m.row(j)[i]);
}

void multiply(const ProductShape& shape, const float* a, const float* b, float* to) {
  const Product product(shape);
  std::vector<float> room(static_cast<std::size_t>(product.scratch_bytes()) / sizeof(float) + 32);
  auto* scratch = reinterpret_cast<char*>(room.data());
  scratch += (64 - reinterpret_cast<std::uintptr_t>(scratch) % 64) % 64;
  product.run(a, b, nullptr, to, scratch);
}

}  // namespace

void invert_factors(const KroneckerCall& c) {
  const double of_inputs = c.input_scale * trace(c.input_sum, c.inputs) / double(c.inputs);
  const double of_gradients =
      c.gradient_scale * trace(c.gradient_sum, c.outputs) / double(c.outputs);
  // A layer that nothing has come through, or that nothing has changed, keeps its gradient.
  const bool is_empty = !(of_inputs > 0) || !(of_gradients > 0);
  const double pi = is_empty ? 1 : std::sqrt(of_inputs / of_gradients);
  const double root = std::sqrt(c.damping);
  if (c.input_inverse != nullptr)
    damped_inverse(c.input_sum, c.inputs, c.input_scale, std::max(pi * root, kLeastDamping),
                   c.input_inverse);
  if (c.gradient_inverse != nullptr)
    damped_inverse(c.gradient_sum, c.outputs, c.gradient_scale, std::max(root / pi, kLeastDamping),
                   c.gradient_inverse);
}

void precondition(float* gradient, std::int64_t rows, std::int64_t columns,
                  const float* gradient_inverse, const float* input_inverse) {
  std::vector<float> half(static_cast<std::size_t>(rows * columns));
  multiply({1, rows, columns, rows, false, false, false}, gradient_inverse, gradient, half.data());
  if (input_inverse == nullptr)
    std::copy(half.begin(), half.end(), gradient);
  else
    multiply({1, rows, columns, columns, false, false, false}, half.data(), input_inverse,
             gradient);
}

}  // namespace hetu::cpu
