// Tests the inversion of Kronecker factors by the kernels of ops/cuda, run on the host, against the
// CPU's. Also tests the tiles of the inversion.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/cuda/factor_tiles.h"
#include "ops/cuda/registry.h"
#include "tests/ops/factors.h"
#include "tests/ops/on_host/kernel_context.h"
#include "tests/ops/tensors.h"

namespace hetu::test {
namespace {

constexpr std::int64_t kTile = cuda::kFactorTile;
constexpr std::int64_t kSides[] = {1, 2, 5, kTile - 1, kTile, kTile + 1, 2 * kTile, 200, 333};

/// Scratch and inverses, filled with NaN, between guard bytes.
struct Made {
  Tensor input, gradient, scratch;
  Made(const TensorKernels& kernels, KroneckerCall call, bool of_input, bool of_gradient)
      : input({DType::Float32, {call.inputs, call.inputs}}),
        gradient({DType::Float32, {call.outputs, call.outputs}}),
        scratch({DType::Int8, {kernels.factor_scratch(call.inputs, call.outputs)}}) {
    if (of_input) call.input_inverse = input.as<float>();
    if (of_gradient) call.gradient_inverse = gradient.as<float>();
    call.scratch = scratch.data();
    kernels.invert_factors(call);
    EXPECT_TRUE(input.guards_hold() && gradient.guards_hold() && scratch.guards_hold())
        << call.inputs << ", " << call.outputs;
  }
};

std::vector<float> floats_of(const Tensor& t) { return {t.as<float>(), t.as<float>() + t.count()}; }

TEST(CudaFactors, InversesAreTheCpus) {
  const HostKernelContext host;
  for (const std::int64_t n : kSides)
    for (const double damping : {1e-4, 1.0}) {
      const std::int64_t m = n / 2 + 3;
      const std::vector<float> a = sum_of_rows(n, n / 2 + 1, 1), b = sum_of_rows(m, 2 * m, 2);
      const KroneckerCall call = factors_call(a, n, b, m, damping);
      const Made want(cpu_tensor_kernels(), call, true, true);
      const Made got(cuda_tensor_kernels(), call, true, true);
      EXPECT_LE(part_apart(got.input.as<float>(), floats_of(want.input)), 1e-6)
          << n << " sides, damping " << damping;
      EXPECT_LE(part_apart(got.gradient.as<float>(), floats_of(want.gradient)), 1e-6)
          << m << " sides, damping " << damping;
    }
}

TEST(CudaFactors, EachAloneHasTheBitsOfBothTogether) {
  const HostKernelContext host;
  const std::vector<float> a = sum_of_rows(70, 100, 1), b = sum_of_rows(33, 20, 2);
  const KroneckerCall call = factors_call(a, 70, b, 33, 0.01);
  const Made both(cuda_tensor_kernels(), call, true, true);
  const Made input(cuda_tensor_kernels(), call, true, false);
  const Made gradient(cuda_tensor_kernels(), call, false, true);
  EXPECT_EQ(floats_of(input.input), floats_of(both.input));
  EXPECT_EQ(floats_of(gradient.gradient), floats_of(both.gradient));
  EXPECT_TRUE(std::isnan(input.gradient.at(0)) && std::isnan(gradient.input.at(0)))
      << "written without being asked for";
}

// Only the lower triangle is read. The inverse is symmetric.
TEST(CudaFactors, OfTheFactorTheLowerTriangleIsRead) {
  const HostKernelContext host;
  const std::int64_t n = 130;
  std::vector<float> a = sum_of_rows(n, 200, 1);
  const std::vector<float> b = sum_of_rows(3, 20, 2);
  const Made whole(cuda_tensor_kernels(), factors_call(a, n, b, 3, 0.01), true, false);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = i + 1; j < n; ++j) {
      a[i * n + j] = NAN;
      ASSERT_EQ(whole.input.at(i * n + j), whole.input.at(j * n + i)) << i << ", " << j;
    }
  const Made lower(cuda_tensor_kernels(), factors_call(a, n, b, 3, 0.01), true, false);
  EXPECT_EQ(floats_of(lower.input), floats_of(whole.input));
}

// Covers a layer without any input, and a factor that is not positive definite, with the first bad
// column at any index.
TEST(CudaFactors, WhatIsNotPositiveIsWhatItIsOnTheCpu) {
  const HostKernelContext host;
  const std::vector<float> b = sum_of_rows(3, 20, 2);
  const std::vector<float> none(9, 0);
  const KroneckerCall empty = factors_call(none, 3, none, 3, 0.04);
  const Made on_cpu(cpu_tensor_kernels(), empty, true, true);
  const Made made(cuda_tensor_kernels(), empty, true, true);
  EXPECT_LE(part_apart(made.input.as<float>(), floats_of(on_cpu.input)), 1e-6);
  for (const std::int64_t at : {0, 70, 129}) {
    std::vector<float> a = sum_of_rows(130, 200, 1);
    a[at * 130 + at] = -1000;
    for (const TensorKernels* kernels : {&cpu_tensor_kernels(), &cuda_tensor_kernels()}) {
      const Made bad(*kernels, factors_call(a, 130, b, 3, 1e-8), true, false);
      const std::vector<double> values = bad.input.values();
      EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](double x) { return std::isnan(x); }))
          << "column " << at;
    }
  }
}

TEST(CudaFactors, GradientsAreMultipliedAsOnTheCpu) {
  const HostKernelContext host;
  const TensorKernels &cpu = cpu_tensor_kernels(), &cuda = cuda_tensor_kernels();
  for (const std::int64_t rows : {1, 7, 100})
    for (const std::int64_t columns : {1, 5, 130})
      for (const bool both : {true, false}) {
        const std::vector<float> b = sum_of_rows(rows, 9, 3), a = sum_of_rows(columns, 9, 4);
        std::vector<float> gradient(static_cast<std::size_t>(rows * columns));
        for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = std::sin(float(i + 1));
        std::vector<float> made[2];
        for (const TensorKernels* kernels : {&cpu, &cuda}) {
          Tensor scratch({DType::Int8, {kernels->factor_scratch(columns, rows)}});
          Tensor to({DType::Float32, {rows, columns}});
          std::copy(gradient.begin(), gradient.end(), to.as<float>());
          kernels->precondition(to.as<float>(), rows, columns, b.data(), both ? a.data() : nullptr,
                                scratch.data());
          EXPECT_TRUE(to.guards_hold() && scratch.guards_hold());
          made[kernels == &cuda] = floats_of(to);
        }
        EXPECT_LE(part_apart(made[1].data(), made[0]), 1e-6) << rows << ", " << columns;
      }
}

TEST(FactorTiles, TheTriangleIsGoneThroughOnceRowAfterRow) {
  std::int64_t t = 0;
  for (std::int64_t row = 0; row < 300; ++row)
    for (std::int64_t column = 0; column <= row; ++column, ++t) {
      const cuda::TilePosition at = cuda::position_in_triangle(t);
      ASSERT_TRUE(at.row == row && at.column == column) << t;
    }
  for (const std::int64_t row : {1LL << 15, 1LL << 20, (1LL << 30) - 1}) {
    const std::int64_t first = cuda::tiles_above(row);
    EXPECT_EQ(cuda::position_in_triangle(first).row, row);
    EXPECT_EQ(cuda::position_in_triangle(first).column, 0);
    EXPECT_EQ(cuda::position_in_triangle(first - 1).row, row - 1);
    EXPECT_EQ(cuda::position_in_triangle(first - 1).column, row - 1);
  }
}

TEST(FactorTiles, BlocksHaveTheirSharedMemoryOnEveryCard) {
  constexpr cuda::FactorRoom room = cuda::factor_room();
  EXPECT_LE(room.bytes, cuda::kMostShared);
  EXPECT_LE(cuda::diagonal_room().bytes, cuda::kMostShared);
  for (const int at : {room.left, room.right, room.product, cuda::diagonal_room().column})
    EXPECT_EQ(at % cuda::kSharedAlignment, 0);
  EXPECT_GE(room.bytes - room.product, int(kTile * kTile * 8));
  EXPECT_EQ(kTile % cuda::kFactorDepth, 0) << "a product's depth is gone through in whole pieces";
  EXPECT_EQ(cuda::kFactorDepth % cuda::kTileSide, 0);
}

TEST(FactorTiles, ScratchIsWholeTilesAndAColumnOfThem) {
  constexpr std::int64_t tile = kTile * kTile * std::int64_t{sizeof(double)};
  EXPECT_EQ(cuda::inversion_bytes(1), 2 * tile);
  EXPECT_EQ(cuda::inversion_bytes(kTile), 2 * tile);
  EXPECT_EQ(cuda::inversion_bytes(kTile + 1), (4 + 2) * tile);
  EXPECT_EQ(cuda::inversion_bytes(4096), std::int64_t{64 * 64 + 64} * tile);
  // a long gradient of one row
  EXPECT_GE(cuda_tensor_kernels().factor_scratch(1, 1 << 20), std::int64_t{4} << 20);
}

}  // namespace
}  // namespace hetu::test
