// Flash attention of ops/cuda on the host, tile by tile: against float64, over shapes of several
// tiles; and which tiles fit a card.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "graph/base/bfloat16.h"
#include "ops/cuda/registry.h"
#include "ops/cuda/tiles.h"
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

TEST(CudaFlash, GoesThroughTilesOfQueriesAndKeys) {
  const HostBench host;
  const RunContext run{kSeed, 7, 40, true, 4};
  for (const FlashSample& f : flash_samples())
    for (const DType floats : {DType::Float32, DType::BFloat16, DType::Float16})
      for (const bool gradient : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", f.what, dtype_name(floats), gradient));
        const Case c = flash_case(f, floats, gradient);
        const std::vector<Tensor> inputs = flash_inputs(f, c, floats, kSeed, run);
        const KernelRow& row = *cuda_kernels(c.op).front();
        if (f.columns == 1000) {
          EXPECT_FALSE(row.takes(c.desc())) << "no card has so much shared memory";
          continue;
        }
        ASSERT_TRUE(row.takes(c.desc()));
        expect_near(run_row(row, c, inputs, run, 0xff), in_float64(c, inputs, run));
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
    // What the matrix units read begins where 32 bytes do, and pieces where 16 do.
    EXPECT_EQ(cuda::tile_step<BFloat16>(wide) * 2 * cuda::kTileSide % 32, 0);
    EXPECT_EQ(cuda::tile_step<BFloat16>(wide) % 8, 0);
    EXPECT_EQ(cuda::tile_step<float>(wide) % 4, 0);
  }
}

}  // namespace
}  // namespace hetu::test
