// Tests Kronecker factors: damped inverses against a Gauss-Jordan reference, for any size, damping
// and number of threads, and gradients multiplied by the inverses.
#include "ops/cpu/kronecker.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "ops/tensor_kernels.h"
#include "tests/ops/factors.h"

namespace hetu {
namespace {

using Matrix = std::vector<double>;  // [n, n]

Matrix inverse_of(Matrix m, std::int64_t n) {
  Matrix out(static_cast<std::size_t>(n * n), 0);
  for (std::int64_t i = 0; i < n; ++i) out[i * n + i] = 1;
  for (std::int64_t i = 0; i < n; ++i) {
    const double pivot = m[i * n + i];
    for (std::int64_t j = 0; j < n; ++j) m[i * n + j] /= pivot, out[i * n + j] /= pivot;
    for (std::int64_t k = 0; k < n; ++k) {
      const double factor = k == i ? 0 : m[k * n + i];
      for (std::int64_t j = 0; j < n; ++j) {
        m[k * n + j] -= factor * m[i * n + j];
        out[k * n + j] -= factor * out[i * n + j];
      }
    }
  }
  return out;
}

// Aligned scratch of exactly the size that a layer requests, followed by guard bytes.
class Scratch {
 public:
  Scratch(std::int64_t inputs, std::int64_t outputs)
      : bytes_(cpu_tensor_kernels().factor_scratch(inputs, outputs)), room_(bytes_ + 128, kKept) {}
  ~Scratch() {
    for (const char* at = data() + bytes_; at != room_.data() + room_.size(); ++at)
      EXPECT_EQ(*at, kKept) << "written " << at - data() << " bytes behind its begin, of "
                            << bytes_;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  char* data() {
    return room_.data() + (64 - reinterpret_cast<std::uintptr_t>(room_.data()) % 64) % 64;
  }

 private:
  static constexpr char kKept = 0x5a;
  std::int64_t bytes_;
  std::vector<char> room_;
};

struct Inverses {
  std::vector<float> input, gradient;
};

Inverses invert(const std::vector<float>& a, std::int64_t n, const std::vector<float>& b,
                std::int64_t m, double damping) {
  Inverses out{std::vector<float>(a.size()), std::vector<float>(b.size())};
  KroneckerCall call = test::factors_call(a, n, b, m, damping);
  call.input_inverse = out.input.data();
  call.gradient_inverse = out.gradient.data();
  Scratch scratch(n, m);
  call.scratch = scratch.data();
  cpu_tensor_kernels().invert_factors(call);
  return out;
}

double trace_of(const std::vector<float>& x, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i * n + i];
  return sum;
}

TEST(Kronecker, InversesAreThoseOfGaussAndJordan) {
  for (const std::int64_t n : {1, 2, 5, 64, 65, 131, 200}) {
    for (const double damping : {1e-4, 1.0}) {
      const std::int64_t m = n / 2 + 3;
      const std::vector<float> a = test::sum_of_rows(n, n / 2 + 1, 1),
                               b = test::sum_of_rows(m, 2 * m, 2);
      const Inverses found = invert(a, n, b, m, damping);
      const double pi =
          std::sqrt((0.25 * trace_of(a, n) / double(n)) / (4 * trace_of(b, m) / double(m)));
      const auto check = [&](const std::vector<float>& sum, std::int64_t side, double scale,
                             double added, const std::vector<float>& inverse) {
        Matrix with(sum.begin(), sum.end());
        for (double& value : with) value *= scale;
        for (std::int64_t i = 0; i < side; ++i) with[i * side + i] += added;
        const Matrix expected = inverse_of(with, side);
        double largest = 0, apart = 0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          largest = std::max(largest, std::abs(expected[i]));
          apart = std::max(apart, std::abs(expected[i] - double(inverse[i])));
        }
        EXPECT_LT(apart / largest, 1e-6) << side << " sides, damping " << damping;
      };
      check(a, n, 0.25, pi * std::sqrt(damping), found.input);
      check(b, m, 4, std::sqrt(damping) / pi, found.gradient);
    }
  }
}

// Compares the whole computation in float64 with a dense reference, to the accuracy of float64.
TEST(Kronecker, InFloat64IsThatOfTheReferenceToTenDigits) {
  for (const std::int64_t n : {1, 3, 64, 65, 131, 230}) {
    const std::int64_t m = n / 2 + 3;
    const std::vector<float> a = test::sum_of_rows(n, 2 * n, 1),
                             b = test::sum_of_rows(m, m / 2 + 1, 2);
    const Matrix input(a.begin(), a.end()), gradient(b.begin(), b.end());
    const FactorDamping added = damping_of(0.25 * cpu::diagonal_mean(input.data(), n),
                                           4 * cpu::diagonal_mean(gradient.data(), m), 0.01);
    const double pi =
        std::sqrt((0.25 * trace_of(a, n) / double(n)) / (4 * trace_of(b, m) / double(m)));
    EXPECT_NEAR(added.input, 0.1 * pi, 1e-10 * pi);
    EXPECT_NEAR(added.gradient, 0.1 / pi, 1e-10 / pi);
    const auto damped = [](Matrix x, std::int64_t side, double scale, double more) {
      for (double& value : x) value *= scale;
      for (std::int64_t i = 0; i < side; ++i) x[i * side + i] += more;
      return inverse_of(x, side);
    };
    Matrix of_input(input.size()), of_gradient(gradient.size());
    std::vector<double> scratch(static_cast<std::size_t>(2 * std::max(m, n) * std::max(m, n)) + 8);
    cpu::damped_inverse(gradient.data(), m, 4, added.gradient, of_gradient.data(), scratch.data());
    cpu::damped_inverse(input.data(), n, 0.25, added.input, of_input.data(), scratch.data());
    const auto near = [&](const Matrix& found, const Matrix& expected) {
      double largest = 0;
      for (const double x : expected) largest = std::max(largest, std::abs(x));
      for (std::size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(found[i], expected[i], 1e-10 * largest) << n << " sides, element " << i;
    };
    const Matrix left = damped(gradient, m, 4, 0.1 / pi), right = damped(input, n, 0.25, 0.1 * pi);
    near(of_input, right);
    near(of_gradient, left);
    Matrix w(static_cast<std::size_t>(m * n)), half(w.size(), 0), expected(w.size(), 0);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::sin(double(i));
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t k = 0; k < m; ++k)
        for (std::int64_t j = 0; j < n; ++j) half[i * n + j] += left[i * m + k] * w[k * n + j];
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t k = 0; k < n; ++k)
        for (std::int64_t j = 0; j < n; ++j)
          expected[i * n + j] += half[i * n + k] * right[k * n + j];
    cpu::precondition(w.data(), m, n, of_gradient.data(), of_input.data(), scratch.data());
    near(w, expected);
  }
}

TEST(Kronecker, NoBitDependsOnTheNumberOfThreads) {
  const std::vector<float> a = test::sum_of_rows(333, 100, 1), b = test::sum_of_rows(170, 100, 2);
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const Inverses one = invert(a, 333, b, 170, 0.01);
  for (const int threads : {2, 5}) {
    omp_set_num_threads(threads);
    const Inverses many = invert(a, 333, b, 170, 0.01);
    EXPECT_EQ(one.input, many.input);
    EXPECT_EQ(one.gradient, many.gradient);
  }
  omp_set_num_threads(before);
}

// The damping of each factor depends on both traces, so neither inversion may depend on the other
// or overwrite its input.
TEST(Kronecker, TheOrderOfInversionsChangesNoBit) {
  const std::vector<float> a = test::sum_of_rows(70, 100, 1), b = test::sum_of_rows(33, 20, 2);
  const Inverses both = invert(a, 70, b, 33, 0.01);
  for (const bool input_first : {true, false}) {
    Inverses out{std::vector<float>(a.size()), std::vector<float>(b.size())};
    for (const bool input : {input_first, !input_first}) {
      KroneckerCall call = test::factors_call(a, 70, b, 33, 0.01);
      (input ? call.input_inverse : call.gradient_inverse) =
          input ? out.input.data() : out.gradient.data();
      Scratch scratch(70, 33);
      call.scratch = scratch.data();
      cpu_tensor_kernels().invert_factors(call);
    }
    EXPECT_EQ(out.input, both.input);
    EXPECT_EQ(out.gradient, both.gradient);
  }
}

TEST(Kronecker, AGradientIsMultipliedFromBothSides) {
  const std::vector<float> left = test::sum_of_rows(7, 9, 3), right = test::sum_of_rows(4, 9, 4);
  std::vector<float> gradient(28);
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = float(i) - 13;
  std::vector<double> expected(28, 0), half(28, 0);
  for (int i = 0; i < 7; ++i)
    for (int j = 0; j < 4; ++j)
      for (int k = 0; k < 7; ++k) half[i * 4 + j] += double(left[i * 7 + k]) * gradient[k * 4 + j];
  for (int i = 0; i < 7; ++i)
    for (int j = 0; j < 4; ++j)
      for (int k = 0; k < 4; ++k) expected[i * 4 + j] += half[i * 4 + k] * double(right[k * 4 + j]);
  std::vector<float> one_side = gradient;
  Scratch scratch(4, 7);
  cpu_tensor_kernels().precondition(gradient.data(), 7, 4, left.data(), right.data(),
                                    scratch.data());
  cpu_tensor_kernels().precondition(one_side.data(), 7, 4, left.data(), nullptr, scratch.data());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(gradient[i], expected[i], 1e-5 * 5000) << i;
    EXPECT_NEAR(one_side[i], half[i], 1e-5 * 500) << i;
  }
}

// For every shape, kernels may write only the scratch that they request. The class Scratch checks
// it.
TEST(Kronecker, KeepsToItsScratch) {
  for (const std::int64_t inputs : {1, 3, 64, 100, 200}) {
    for (const std::int64_t outputs : {1, 5, 65, 180}) {
      const std::vector<float> a = test::sum_of_rows(inputs, 2 * inputs, 1);
      const std::vector<float> b = test::sum_of_rows(outputs, 2 * outputs, 2);
      const Inverses made = invert(a, inputs, b, outputs, 0.01);
      std::vector<float> weight(static_cast<std::size_t>(inputs * outputs), 1), bias(b.size(), 1);
      Scratch scratch(inputs, outputs);
      const TensorKernels& kernels = cpu_tensor_kernels();
      kernels.precondition(weight.data(), outputs, inputs, made.gradient.data(), made.input.data(),
                           scratch.data());
      kernels.precondition(bias.data(), outputs, 1, made.gradient.data(), nullptr, scratch.data());
    }
  }
}

// The layer had no input, so its inverses are those of the damping alone.
TEST(Kronecker, EmptyFactorsLeaveGradientsInTheirDirection) {
  const std::vector<float> none(9, 0);
  const Inverses found = invert(none, 3, none, 3, 0.04);
  for (int i = 0; i < 9; ++i) EXPECT_NEAR(found.input[i], i % 4 == 0 ? 5 : 0, 1e-6);
  EXPECT_EQ(found.input, found.gradient);
}

}  // namespace
}  // namespace hetu
