// Flash attention of ops/cuda on the host, tile by tile: against float64, over shapes of several
// tiles; and which tiles fit a card.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "graph/base/bfloat16.h"
#include "ops/cuda/registry.h"
#include "ops/cuda/tiles.h"
#include "ops/cuda/warp_tile.h"
#include "tests/ops/flash_samples.h"
#include "tests/ops/on_host/bench.h"
#include "tests/ops/tensors.h"

namespace hetu::test {
namespace {

constexpr std::uint64_t kSeed = 20251125;

/// Weights, and gradients of scores, are rounded to two bytes before the matrix units take them,
/// beside the result.
double tolerance(DType output) {
  return output == DType::BFloat16 ? 2.0 / 256 : output == DType::Float16 ? 2.0 / 2048 : 1e-6;
}

void expect_near(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_LE(relative_difference(got[i].values(), want[i].values()),
              tolerance(got[i].type().dtype))
        << "output " << i;
}

/// Which of the rows takes a sample: pure of its shape and dtype.
const char* expected(const FlashSample& f, DType floats) {
  if (f.columns == 1000) return "cuda";  // no card has so much shared memory
  return floats != DType::Float32 && f.columns <= 64 ? "flash_registers" : "flash";
}

TEST(CudaFlash, GoesThroughTilesOfQueriesAndKeys) {
  const HostBench host;
  const RunContext run{kSeed, 7, 40, true, 4};
  for (const FlashSample& f : flash_samples())
    for (const DType floats : {DType::Float32, DType::BFloat16, DType::Float16})
      for (const bool gradient : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", f.what, dtype_name(floats), gradient));
        const Case c = flash_case(f, floats, gradient);
        const std::vector<Tensor> inputs = flash_inputs(f, c, floats, kSeed, run);
        EXPECT_STREQ(prepare_cuda(c.desc()).implementation, expected(f, floats));
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

// Rows that do not begin where 16 bytes do are moved element by element, to the same bits.
TEST(CudaFlash, TakesTensorsAsTheyLie) {
  const HostBench host;
  const RunContext run{kSeed, 7, 40, true, 4};
  const FlashSample f = flash_samples().front();
  for (const bool gradient : {false, true}) {
    const Case c = flash_case(f, DType::BFloat16, gradient);
    const std::vector<Tensor> inputs = flash_inputs(f, c, DType::BFloat16, kSeed, run);
    const PreparedKernel kernel = prepare_cuda(c.desc());
    std::vector<char> scratch(static_cast<std::size_t>(kernel.scratch_bytes) + 1);
    std::vector<std::vector<char>> results[2];
    for (const std::size_t off : {0, 1}) {
      std::vector<std::vector<float>> lain;  // aligned by four, and by two where `off`
      std::vector<const void*> in;
      std::vector<void*> out;
      const auto lay = [&](const TensorType& t, const void* from) {
        const auto bytes = static_cast<std::size_t>(Tensor(t).bytes());
        const std::size_t by = is_narrow(t.dtype) ? 2 * off : 0;
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

// Products of tiles as lanes of the matrix units hold them, against plain ones; whole numbers, so
// that sums are exact.
TEST(CudaFlash, LanesMultiplyAsMatricesDo) {
  constexpr int kRows = cuda::kTileRows, kDepth = 32, kColumns = 64, kStep = kColumns + 8;
  struct alignas(16) Tiles {
    BFloat16 a[kRows * kStep], b[kDepth * kStep], turned[kColumns * kStep], out[kRows * kStep];
  };
  const auto tiles = std::make_unique<Tiles>();
  for (int i = 0; i < kRows * kStep; ++i) tiles->a[i] = BFloat16(static_cast<float>(i * 7 % 5 - 2));
  for (int k = 0; k < kDepth; ++k)
    for (int j = 0; j < kColumns; ++j)
      tiles->b[k * kStep + j] = tiles->turned[j * kStep + k] =
          BFloat16(static_cast<float>((k * 31 + j * 17) % 7 - 3));
  cuda::Factor<BFloat16, kDepth> left(tiles->a, kStep);
  cuda::Sums<kColumns> sums, turned;
  sums.fill(1);
  turned.fill(1);
  cuda::add_product<false>(sums, left, tiles->b, kStep);
  cuda::add_product<true>(turned, left, tiles->turned, kStep);
  cuda::Factor<BFloat16, kColumns> again(sums);  // of which [kRows, kColumns] times the identity is
  for (int j = 0; j < kColumns * kColumns; ++j)
    tiles->turned[j / kColumns * kStep + j % kColumns] = BFloat16(j % (kColumns + 1) == 0 ? 1 : 0);
  cuda::Sums<kColumns> same;
  same.fill(0);
  cuda::add_product<false>(same, again, tiles->turned, kStep);
  same.put(tiles->out, kStep);
  int seen = 0;
  std::vector<std::uint32_t> bits(cuda::kLaneThreads);
  sums.each([&](const cuda::Place& p, float& x) {
    float want = 1;
    for (int k = 0; k < kDepth; ++k)
      want += float(tiles->a[p.row * kStep + k]) * float(tiles->b[k * kStep + p.column]);
    EXPECT_EQ(x, want);
    EXPECT_EQ(turned.of(p.thread, p.block)[2 * p.half + p.side], want);
    EXPECT_EQ(float(tiles->out[p.row * kStep + p.column]), want);
    bits[static_cast<std::size_t>(p.thread)] |= 1u << p.bit();
    ++seen;
  });
  EXPECT_EQ(seen, kRows * kColumns);
  for (const std::uint32_t all : bits) EXPECT_EQ(all, ~0u) << "a bit stands for two places";
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
    // What the matrix units read begins where 32 bytes do, and pieces where 16 do.
    EXPECT_EQ(cuda::tile_step<BFloat16>(wide) * 2 * cuda::kTileSide % 32, 0);
    EXPECT_EQ(cuda::tile_step<BFloat16>(wide) % 8, 0);
    EXPECT_EQ(cuda::tile_step<float>(wide) % 4, 0);
  }
}

}  // namespace
}  // namespace hetu::test
