// Tests flash attention of ops/cuda on the host, tile by tile, against float64. Shapes span several
// tiles. Also tests which tiles fit a GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/bfloat16.h"
#include "ops/cuda/registry.h"
#include "ops/cuda/tiles.h"
#include "ops/cuda/warp_tile.h"
#include "tests/ops/cuda/flash_samples.h"
#include "tests/ops/on_host/kernel_context.h"
#include "tests/ops/tensors.h"

namespace hetu::test {
namespace {

constexpr std::uint64_t kSeed = 20251125;

/// Returns the tolerance. Weights and score gradients are rounded to two bytes before the matrix
/// units read them, and the result is rounded as well.
double tolerance(DType output) {
  return output == DType::BFloat16 ? 2.0 / 256 : output == DType::Float16 ? 2.0 / 2048 : 1e-6;
}

void expect_near(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_LE(relative_difference(got[i].values(), want[i].values()),
              tolerance(got[i].type().dtype))
        << "output " << i;
}

/// Returns the implementation that must take a sample.
const char* expected(const FlashSample& f) {
  if (f.columns == 1000) return "cuda";  // no GPU has enough shared memory
  return f.columns <= 64 ? "flash_registers" : "flash";
}

TEST(CudaFlash, GoesThroughTilesOfQueriesAndKeys) {
  const HostKernelContext host;
  const RunContext run{kSeed, 7, 40, true, 4};
  for (const FlashSample& f : flash_samples())
    for (const DType floats : {DType::Float32, DType::BFloat16, DType::Float16})
      for (const bool gradient : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", f.what, dtype_name(floats), gradient));
        const Case c = flash_case(f, floats, gradient);
        const std::vector<Tensor> inputs = flash_inputs(f, c, floats, kSeed, run);
        EXPECT_STREQ(prepare_cuda(c.desc()).implementation, expected(f));
        const std::vector<Tensor> want = in_float64(c, inputs, run);
        for (const KernelRow* row : cuda_kernels(c.op)) {
          if (!row->takes(c.desc()) || row->implementation == std::string_view("cuda")) continue;
          SCOPED_TRACE(row->implementation);
          const std::vector<Tensor> got = run_row(*row, c, inputs, run, 0xff);
          expect_near(got, want);
          if (row->implementation == std::string_view("flash")) continue;
          cuda::host_brings_late = true;
          const std::vector<Tensor> again = run_row(*row, c, inputs, run, 0x00);
          cuda::host_brings_late = false;
          for (std::size_t i = 0; i < got.size(); ++i)
            EXPECT_TRUE(got[i].same_bits(again[i])) << "output " << i;
        }
      }
}

// The queries of one sample are NaN. Its rows of the result must be NaN, except rows that see no
// key.
TEST(CudaFlash, KeepsNaN) {
  const HostKernelContext host;
  const RunContext run{kSeed, 7, 40, true, 4};
  for (std::size_t n = 0; n < 6; ++n) {
    const FlashSample f = flash_samples()[n];
    const Case c = flash_case(f, DType::Float32, /*gradient=*/false);
    std::vector<Tensor> inputs = flash_inputs(f, c, DType::Float32, kSeed, run);
    for (std::int64_t i = 0; i < inputs[0].count() / 2; ++i)
      inputs[0].set(i, std::numeric_limits<double>::quiet_NaN());
    const std::vector<double> want = in_float64(c, inputs, run)[0].values();
    EXPECT_TRUE(std::isnan(want[0])) << f.what;
    for (const KernelRow* row : cuda_kernels(c.op)) {
      if (!row->takes(c.desc())) continue;
      const std::vector<double> got = run_row(*row, c, inputs, run, 0xff)[0].values();
      std::int64_t differ = 0;
      for (std::size_t i = 0; i < want.size(); ++i)
        differ += std::isnan(want[i]) != std::isnan(got[i]) ? 1 : 0;
      EXPECT_EQ(differ, 0) << f.what << ", " << row->implementation;
    }
  }
}

// Rows that are not aligned to 16 bytes are moved element by element and must give the same bits.
TEST(CudaFlash, TakesTensorsAsTheyLie) {
  const HostKernelContext host;
  const RunContext run{kSeed, 7, 40, true, 4};
  const FlashSample f = flash_samples().front();
  for (const int n : {0, 1, 2, 3}) {
    const bool gradient = n % 2 != 0;
    const DType floats = n < 2 ? DType::Float32 : DType::BFloat16;
    const Case c = flash_case(f, floats, gradient);
    const std::vector<Tensor> inputs = flash_inputs(f, c, floats, kSeed, run);
    const PreparedKernel kernel = prepare_cuda(c.desc());
    std::vector<char> scratch(static_cast<std::size_t>(kernel.scratch_bytes) + 1);
    std::vector<std::vector<char>> results[2];
    for (const std::size_t off : {0, 1}) {
      // aligned to 16 bytes, or shifted by one element if `off`
      std::vector<std::vector<float>> lain;
      std::vector<const void*> in;
      std::vector<void*> out;
      const auto lay = [&](const TensorType& t, const void* from) {
        const auto bytes = static_cast<std::size_t>(Tensor(t).bytes());
        const std::size_t by = t.dtype == floats ? off * dtype_bytes(floats) : 0;
        lain.emplace_back(bytes / 4 + 2);
        char* const at = reinterpret_cast<char*>(lain.back().data()) + by;
        if (from != nullptr) std::memcpy(at, from, bytes);
        return at;
      };
      for (const Tensor& t : inputs) in.push_back(lay(t.type(), t.data()));
      for (const TensorType& t : c.outputs) out.push_back(lay(t, nullptr));
      kernel.run({in.data(), out.data(), scratch.data(), run});
      for (std::size_t i = 0; i < out.size(); ++i) {
        const auto bytes = static_cast<std::size_t>(Tensor(c.outputs[i]).bytes());
        const char* const at = static_cast<const char*>(out[i]);
        results[off].emplace_back(at, at + bytes);
      }
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

/// A tile [Rows, Columns] of at(row, column). Its rows are spaced as in the kernels' tiles.
template <class T, int Rows, int Columns>
struct alignas(16) TileOf {
  static constexpr int kStep = cuda::tile_step<T>(Columns);
  T at[Rows * kStep] = {};
  template <class At>
  explicit TileOf(const At& of) {
    for (int i = 0; i < Rows * Columns; ++i)
      at[i / Columns * kStep + i % Columns] = T(of(i / Columns, i % Columns));
  }
  float operator()(int row, int column) const { return float(at[row * kStep + column]); }
};

template <class T>
class CudaLanes : public testing::Test {};
using TypesOfLanes = testing::Types<BFloat16, float>;
TYPED_TEST_SUITE(CudaLanes, TypesOfLanes);

// Compares products of tiles in the matrix units' lane layout with plain products. Whole numbers
// make the sums exact.
TYPED_TEST(CudaLanes, MultiplyAsMatricesDo) {
  using T = TypeParam;
  constexpr int kRows = cuda::kTileRows, kDepth = 32, kColumns = 64;
  const auto whole = [](int k, int j) { return static_cast<float>((k * 31 + j * 17) % 7 - 3); };
  const TileOf<T, kRows, kDepth> a(
      [](int i, int k) { return static_cast<float>((i * 36 + k) * 7 % 5 - 2); });
  const TileOf<T, kDepth, kColumns> b(whole);
  const TileOf<T, kColumns, kDepth> b_turned([&](int j, int k) { return whole(k, j); });
  const TileOf<T, kColumns, kColumns> identity([](int i, int j) { return i == j ? 1.0F : 0.0F; });
  TileOf<T, kRows, kColumns> out([](int, int) { return 0.0F; });
  cuda::Factor<T, kDepth> left(a.at, a.kStep);
  cuda::Sums<kColumns> sums, turned, same;
  sums.fill(1);
  turned.fill(1);
  same.fill(0);
  cuda::add_product<false>(sums, left, b.at, b.kStep);
  cuda::add_product<true>(turned, left, b_turned.at, b_turned.kStep);
  // the product with the identity must return the sums
  cuda::Factor<T, kColumns, true> again(sums);
  cuda::add_product<false>(same, again, identity.at, identity.kStep);
  same.put(out.at, out.kStep);
  int seen = 0;
  std::vector<std::uint32_t> bits(cuda::kLaneThreads);
  sums.each([&](const cuda::Position& p, float& x) {
    float want = 1;
    for (int k = 0; k < kDepth; ++k) want += a(p.row, k) * b(k, p.column);
    EXPECT_EQ(x, want);
    EXPECT_EQ(turned[p], want);
    EXPECT_EQ(out(p.row, p.column), want);
    bits[static_cast<std::size_t>(p.thread)] |= 1u << p.bit();
    ++seen;
  });
  EXPECT_EQ(seen, kRows * kColumns);
  for (const std::uint32_t all : bits) EXPECT_EQ(all, ~0u) << "a bit stands for two places";
}

// All numbers are positive, so that truncation in the matrix units would add up. Products of tiles
// from shared memory and of sums are accumulated over more keys than one tile has.
TEST(CudaFlash, ProductsOfFloat32AreThoseOfFloat32) {
  constexpr int kSide = 64, kTimes = 8;
  const auto some = [](int seed) {
    return [seed](int i, int j) {
      return 1.0F + static_cast<float>((i * 7919 + j * 104729 + seed) % 9973) / 9973.0F;
    };
  };
  const TileOf<float, kSide, kSide> a(some(1)), b(some(2));
  cuda::Factor<float, kSide> left(a.at, a.kStep);
  cuda::Sums<kSide> taken, of_sums, turned, weights;
  for (cuda::Sums<kSide>* sums : {&taken, &of_sums, &turned}) sums->fill(0);
  weights.each([&](const cuda::Position& p, float& x) { x = a(p.row, p.column); });
  cuda::Factor<float, kSide, true> of_weights(weights);
  for (int i = 0; i < kTimes; ++i) {
    cuda::add_product<false>(taken, left, b.at, b.kStep);
    cuda::add_product<false>(of_sums, of_weights, b.at, b.kStep);
    cuda::add_product<true>(turned, left, b.at, b.kStep);
  }
  double most = 0;
  taken.each([&](const cuda::Position& p, float& x) {
    double want = 0, want_turned = 0;
    for (int k = 0; k < kSide; ++k) {
      want += kTimes * double{a(p.row, k)} * double{b(k, p.column)};
      want_turned += kTimes * double{a(p.row, k)} * double{b(p.column, k)};
    }
    most = std::max({most, std::abs(x / want - 1), std::abs(of_sums[p] / want - 1),
                     std::abs(turned[p] / want_turned - 1)});
  });
  EXPECT_LE(most, 1e-6);
}

TEST(CudaFlash, Tf32HasElevenBitsRoundedToNearest) {
  const auto upper = [](float x) { return std::bit_cast<float>(cuda::tf32_upper(x)); };
  const auto lower = [](float x) { return std::bit_cast<float>(cuda::tf32_lower(x)); };
  const float unit = 0x1p-10F;
  EXPECT_EQ(upper(1 + unit), 1 + unit);
  EXPECT_EQ(upper(1 + unit / 2), 1 + unit) << "away from zero";
  EXPECT_EQ(upper(-1 - unit / 2), -1 - unit);
  EXPECT_EQ(upper(1 + unit / 2 - 0x1p-23F), 1);
  EXPECT_EQ(upper(2 - 0x1p-23F), 2);
  EXPECT_EQ(lower(1 + unit / 4), unit / 4);
  EXPECT_EQ(lower(1 - unit / 8), -unit / 8 + (1 - upper(1 - unit / 8)));
  for (const float x : {0.1F, -3.14159265F, 1e-30F, 12345.678F})
    EXPECT_LE(std::abs(double{x} - double{upper(x)} - double{lower(x)}), 0x1p-21 * std::abs(x));
  for (const std::uint32_t nan : {0x7fffffffu, 0x7f800001u, 0x7fc00000u, 0xffffffffu})
    EXPECT_TRUE(std::isnan(lower(std::bit_cast<float>(nan)))) << "a NaN stays one";
  EXPECT_TRUE(std::isnan(lower(HUGE_VALF)));
}

/// Returns true if the lanes access words of shared memory in different banks. Each lane accesses
/// `words` consecutive words.
template <class At>
bool in_different_banks(int lanes, int words, const At& at) {
  std::vector<bool> taken(32);
  for (int lane = 0; lane < lanes; ++lane)
    for (int w = 0; w < words; ++w) {
      const auto bank = static_cast<std::size_t>((at(lane) + w) % 32);
      if (taken[bank]) return false;
      taken[bank] = true;
    }
  return true;
}

TEST(CudaFlash, LanesReadFloat32FromDifferentBanks) {
  for (const int columns : {32, 64}) {
    const int step = cuda::tile_step<float>(columns);
    for (int r = 0; r < 4; ++r)
      EXPECT_TRUE(in_different_banks(cuda::kWarp, 1, [&](int lane) {
        const cuda::Spot spot = cuda::right_spot(lane, r, true);
        return spot.row * step + spot.column;
      }));
    for (const auto& row : {cuda::row_down<float>, cuda::row_across<float>})
      for (int square = 0; square < 4; ++square)
        EXPECT_TRUE(in_different_banks(8, 4, [&](int lane) {
          const cuda::Spot spot = row(8 * square + lane);
          return spot.row * step + spot.column;
        }));
  }
}

TEST(CudaFlash, TilesAreTheLargestThatFit) {
  using cuda::flash_tile;
  using cuda::FlashTile;
  const auto bytes = [](int each) {
    return [each](FlashTile t) { return each * t.queries * t.keys; };
  };
  EXPECT_EQ(flash_tile(bytes(1)).keys, 64);
  EXPECT_EQ(flash_tile(bytes(cuda::kMostShared / 4096 + 1)).keys, 32);
  EXPECT_EQ(flash_tile(bytes(cuda::kMostShared / 256)).queries, 16);
  EXPECT_EQ(flash_tile(bytes(cuda::kMostShared)).queries, 0) << "nothing fits";
}

TEST(CudaFlash, PartsOfSharedMemoryAreAligned) {
  cuda::SharedRoom room;
  EXPECT_EQ(room.take(3, 4), 0);
  EXPECT_EQ(room.tile<BFloat16>(16, 16), cuda::kSharedAlignment);
  EXPECT_EQ(room.bytes() % cuda::kSharedAlignment, 0);
  EXPECT_GE(room.bytes(), cuda::kSharedAlignment + 16 * cuda::tile_step<BFloat16>(16) * 2);
  for (const int columns : {1, 16, 17, 64, 100}) {
    const int wide = cuda::tile_round(columns);
    EXPECT_TRUE(wide >= columns && wide < columns + 16 && wide % 16 == 0);
    // Reads of the matrix units start at multiples of 32 bytes, and chunks at multiples of 16.
    EXPECT_EQ(cuda::tile_step<BFloat16>(wide) * 2 * cuda::kTileSide % 32, 0);
    EXPECT_EQ(cuda::tile_step<BFloat16>(wide) % 8, 0);
    EXPECT_EQ(cuda::tile_step<float>(wide) % 4, 0);
  }
}

}  // namespace
}  // namespace hetu::test
