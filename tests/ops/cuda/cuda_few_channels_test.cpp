// Tests convolutions of images with few channels by matrix units, run on the host. The cases cover
// every alignment of windows within words. They also cover tiles that end in the middle of a row or
// an image, and several blocks of output channels. A non-finite number must affect only the windows
// that contain it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/ops/cuda/few_channels_layers.h"
#include "tests/ops/on_host/kernel_context.h"
#include "tests/ops/on_host/lanes.h"
#include "tests/ops/on_host/near.h"

namespace hetu::test {
namespace {

constexpr std::uint64_t kSeed = 20251128;

std::vector<Tensor> made(const FewChannelsTask& task, int fill = 0xff) {
  return task.back(run_row(*task.row(), task.c, task.there(), {}, fill));
}

void expect_as_float64(const ConvLayer& l, const char* op, DType floats, DType result) {
  SCOPED_TRACE(fmt::format("{} {} {}, {} x {} x {} x {} to {} by {} / {}, padding {}, seed {}", op,
                           dtype_name(floats), dtype_name(result), l.images, l.inputs, l.height,
                           l.width, l.outputs, l.window, l.stride, l.padding, kSeed));
  const FewChannelsTask task(l, op, floats, result, kSeed);
  ASSERT_NE(task.row(), nullptr);
  const std::vector<Tensor> got = made(task);
  expect_near(*task.row(), task.c, got, task.want());
  EXPECT_TRUE(got[0].same_bits(made(task, 0x00)[0])) << "not written whole";
}

void expect_all_as_float64(const ConvLayer& l, DType floats) {
  expect_as_float64(l, "conv2d", floats, floats);
  for (const DType result : {floats, DType::Float32})
    expect_as_float64(l, "conv2d_weight_grad", floats, result);
}

// Asynchronous copies to shared memory complete either at once or as late as possible.
class FewChannels : public testing::TestWithParam<bool> {
 protected:
  FewChannels() { cuda::host_brings_late = GetParam(); }
  ~FewChannels() override { cuda::host_brings_late = false; }
  const HostKernelContext host;
};

TEST_P(FewChannels, AgreesWithFloat64OverWindows) {
  for (const std::int64_t inputs : {1, 2, 3, 4, 5, 7})
    for (const auto& [window, stride, padding] : {std::array<std::int64_t, 3>{7, 2, 3},
                                                  {3, 2, 1},
                                                  {3, 1, 1},
                                                  {4, 4, 0},
                                                  {5, 2, 0},
                                                  {2, 2, 1},
                                                  {1, 2, 0}}) {
      if (stride * inputs % 2 != 0) continue;
      expect_all_as_float64({2, inputs, 14, 16, 24, window, stride, padding}, DType::Float16);
    }
}

TEST_P(FewChannels, AgreesWithFloat64OverSizes) {
  for (const auto& [height, width] :
       {std::array<std::int64_t, 2>{1, 1}, {33, 30}, {40, 9}, {5, 90}, {64, 64}})
    for (const std::int64_t outputs : {8, 20, 64, 72})
      expect_all_as_float64({3, 3, height, width, outputs, 7, 2, 3}, DType::BFloat16);
}

INSTANTIATE_TEST_SUITE_P(Brought, FewChannels, testing::Bool(),
                         [](const auto& one) { return one.param ? "late" : "at_once"; });

// Covers strips of packs behind the first strip, and blocks of several tiles, some with one tile
// more.
TEST(FewChannelsShapes, GoThroughStripsAndTiles) {
  const HostKernelContext host;
  expect_all_as_float64({2, 5, 20, 18, 8, 9, 2, 4}, DType::BFloat16);
  expect_as_float64({400, 1, 2, 2, 8, 1, 2, 0}, "conv2d_weight_grad", DType::BFloat16,
                    DType::Float32);
  expect_as_float64({1600, 2, 1, 1, 8, 1, 1, 0}, "conv2d", DType::BFloat16, DType::BFloat16);
}

// Places one NaN or infinity anywhere: before a line's first element, behind its last, and at the
// end of a tile. The results of other windows must not change.
TEST(FewChannelsShapes, KeepWhatIsNotFiniteToWindowsThatSeeIt) {
  const HostKernelContext host;
  for (const ConvLayer& layer : {ConvLayer{1, 3, 9, 9, 8, 7, 2, 3}, {1, 3, 9, 10, 8, 3, 2, 0}})
    for (const char* op : {"conv2d", "conv2d_weight_grad"}) {
      FewChannelsTask task(layer, op, DType::BFloat16, DType::BFloat16, kSeed);
      Tensor& x = task.inputs[0];
      std::int64_t seen = 0;
      for (std::int64_t at = 0; at < x.count(); at += at + 3 < x.count() ? 2 : 1)
        for (const double none : {std::numeric_limits<double>::quiet_NaN(), HUGE_VAL}) {
          SCOPED_TRACE(fmt::format("{}, windows of {}, {} at {}", op, layer.window, none, at));
          const double before = x.at(at);
          x.set(at, none);
          const Tensor want = task.want()[0], got = made(task)[0];
          x.set(at, before);
          for (std::int64_t i = 0; i < want.count(); ++i) {
            seen += std::isfinite(want.at(i)) ? 0 : 1;
            ASSERT_EQ(std::isnan(want.at(i)), std::isnan(got.at(i))) << i;
            ASSERT_EQ(std::isfinite(want.at(i)), std::isfinite(got.at(i))) << i;
            if (std::isinf(want.at(i))) {
              ASSERT_EQ(want.at(i), got.at(i)) << i;
            }
          }
        }
      EXPECT_GT(seen, 0);
    }
}

// The kernel leaves other cases to the general ones: windows that begin in the middle of a word,
// packs, plain images, groups, and rows too long for shared memory.
TEST(FewChannelsShapes, TakesWhatGainsByItAlone) {
  const auto takes = [](const ConvLayer& l, DType floats = DType::BFloat16,
                        Layout images = Layout::ChannelsLast) {
    Case forward = few_channels_case(l, "conv2d", floats, floats),
         back = few_channels_case(l, "conv2d_weight_grad", floats, floats);
    forward.images = back.images = images;
    EXPECT_EQ(few_channels_row(forward) == nullptr, few_channels_row(back) == nullptr);
    return few_channels_row(forward) != nullptr;
  };
  const ConvLayer first = {2, 3, 224, 224, 64, 7, 2, 3};
  EXPECT_TRUE(takes(first));
  EXPECT_TRUE(takes(first, DType::Float16));
  EXPECT_FALSE(takes(first, DType::Float32));
  EXPECT_FALSE(takes(first, DType::BFloat16, Layout::Plain));
  EXPECT_FALSE(takes({2, 3, 32, 32, 64, 3, 1, 1}));
  EXPECT_TRUE(takes({2, 4, 32, 32, 64, 3, 1, 1}));
  EXPECT_FALSE(takes({2, 8, 32, 32, 64, 3, 2, 1}));
  EXPECT_FALSE(takes({1, 3, 20, 4000, 64, 7, 2, 3}));
  // sizes that overflow an int
  EXPECT_FALSE(takes({1, 2, 3, 100000000, 8, 3, 1, 0}));
  EXPECT_FALSE(takes({1, 3, 16000, 16000, 8, 2, 12000, 0}));
  EXPECT_FALSE(takes({1, 2, 20000, 20000, 8, 12000, 2, 0}));
}

}  // namespace
}  // namespace hetu::test
