// Properties that only a GPU can show: every CUDA row against float64, the same bits twice, a bad
// index reported at an event. Skipped, with the reason printed, where there is no GPU;
// tests/cuda/run_on_gpu runs it where there is one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <string_view>

#include "base/error.h"
#include "executor/device/device.h"
#include "ops/cuda/cudnn_conv.h"
#include "ops/cuda/registry.h"
#include "tests/ops/cuda/cuda_tolerance.h"
#include "tests/ops/cuda/few_channels_layers.h"
#include "tests/ops/cuda/flash_samples.h"
#include "tests/ops/factors.h"
#include "tests/ops/samples.h"
#include "tests/ops/tensors.h"

namespace hetu::test {
namespace {

constexpr std::uint64_t kSeed = 20251125;

/// Returns the tolerance for float32, in which some functions of a GPU differ from the host's, or
/// for types of two bytes.
double tolerance(DType output) {
  return output == DType::BFloat16 ? 2e-2 : output == DType::Float16 ? 2e-3 : 2e-6;
}

/// Returns true if a dtype can hold the values. Gradients of attention with random statistics, as
/// in the grid, are too large for float16. Gradients with statistics of a softmax are tested with
/// tiles below.
bool is_held(const Case& c, const Tensor& values, DType dtype) {
  if (c.op != "fused_attention_grad") return true;
  const double most = dtype == DType::Float16 ? 65504.0 / 4 : std::numeric_limits<float>::max();
  const std::vector<double> all = values.values();
  return std::all_of(all.begin(), all.end(), [&](double x) { return std::fabs(x) <= most; });
}

class OnGpu : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (cuda_problem().empty()) device_ = open_device("cuda");
  }
  static void TearDownTestSuite() { device_.reset(); }
  void SetUp() override {
    if (!device_) GTEST_SKIP() << cuda_problem();
  }

  Device::Memory on_device(const Tensor& t) {
    Device::Memory memory = device_->alloc(t.bytes());
    device_->queue().upload(memory.get(), t.data(), t.bytes());
    return memory;
  }

  /// Runs the row on the GPU, on outputs and scratch filled with `fill`.
  std::vector<Tensor> run(const KernelRow& row, const Case& c, const std::vector<Tensor>& inputs,
                          const RunContext& context, unsigned char fill) {
    const PreparedKernel kernel = row.prepare(c.desc());
    std::vector<Device::Memory> held;
    std::vector<const void*> in;
    std::vector<void*> out;
    for (const Tensor& t : inputs) in.push_back(held.emplace_back(on_device(t)).get());
    std::vector<Tensor> outputs;
    for (const TensorType& t : c.outputs)
      out.push_back(held.emplace_back(on_device(outputs.emplace_back(t, fill))).get());
    const Tensor scratch({DType::Int8, {kernel.scratch_bytes}}, fill);
    void* const room = held.emplace_back(on_device(scratch)).get();
    device_->queue().run([&](AddressMap) { kernel.run({in.data(), out.data(), room, context}); });
    for (std::size_t i = 0; i < outputs.size(); ++i)
      device_->queue().download(outputs[i].data(), out[i], outputs[i].bytes());
    device_->queue().record().wait();
    return outputs;
  }

  static inline std::unique_ptr<Device> device_;
};

class GpuRows : public OnGpu, public testing::WithParamInterface<std::string> {};

TEST_P(GpuRows, AgreesWithFloat64AndWithItself) {
  const OpDef& def = op_set().find(GetParam());
  const RunContext context{kSeed, 7, 40, true, 4};
  for (const DType floats : floats_of(def))
    for (const Sample& s : samples_of(def)) {
      const Case c = make_case(def, s, floats);
      const std::vector<Tensor> inputs = make_inputs(c, s, kSeed);
      std::string shapes;
      for (const TensorType& t : c.inputs) shapes += fmt::format(" {}", to_string(t));
      SCOPED_TRACE(fmt::format("{}{}, seed {}", c.op, shapes, kSeed));
      const std::vector<Tensor> want = in_float64(c, inputs, context);
      for (const KernelRow* row : cuda_kernels(c.op)) {
        if (!row->takes(c.desc())) continue;
        const std::vector<Tensor> got = run(*row, c, inputs, context, 0xff);
        const std::vector<Tensor> again = run(*row, c, inputs, context, 0x00);
        for (std::size_t i = 0; i < got.size(); ++i) {
          if (is_held(c, want[i], got[i].type().dtype)) {
            EXPECT_LE(relative_difference(got[i].values(), want[i].values()),
                      tolerance(bounding_dtype(*row, c, i)))
                << row->implementation << ", output " << i;
          }
          EXPECT_TRUE(got[i].same_bits(again[i]))
              << "output " << i << " differs when run twice, or is not written whole";
        }
      }
    }
}

TEST_P(GpuRows, AgreeOnChannelsLastImages) {
  const OpDef& def = op_set().find(GetParam());
  const RunContext context{kSeed, 7, 40, true, 4};
  for (const DType floats : floats_of(def))
    for (const Sample& s : samples_of(def)) {
      Case c = make_case(def, s, floats);
      if (!can_lie_channels_last(def, c)) continue;
      const std::vector<Tensor> inputs = make_inputs(c, s, kSeed);
      SCOPED_TRACE(fmt::format("{} {}, seed {}", c.op, to_string(c.inputs[0]), kSeed));
      const std::vector<Tensor> want = in_float64(c, inputs, context);
      c.images = Layout::ChannelsLast;
      const std::vector<Tensor> there = moved(def.images.inputs, inputs, "channels_last");
      for (const KernelRow* row : cuda_kernels(c.op)) {
        if (!row->takes(c.desc())) continue;
        const std::vector<Tensor> got =
            moved(def.images.outputs, run(*row, c, there, context, 0xff), "plain");
        for (std::size_t i = 0; i < got.size(); ++i)
          EXPECT_LE(relative_difference(got[i].values(), want[i].values()),
                    tolerance(bounding_dtype(*row, c, i)))
              << row->implementation << ", output " << i;
      }
    }
}

// The same test as in tests/ops/cuda/cuda_flash_test.cpp on the host.
TEST_F(OnGpu, FlashAttentionGoesThroughTiles) {
  const RunContext context{kSeed, 7, 40, true, 4};
  for (const FlashSample& f : flash_samples())
    for (const DType floats : {DType::Float32, DType::BFloat16, DType::Float16})
      for (const bool gradient : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", f.what, dtype_name(floats), gradient));
        const Case c = flash_case(f, floats, gradient);
        const std::vector<Tensor> inputs = flash_inputs(f, c, floats, kSeed, context);
        const std::vector<Tensor> want = in_float64(c, inputs, context);
        for (const KernelRow* row : cuda_kernels(c.op)) {
          if (!row->takes(c.desc())) continue;
          const std::vector<Tensor> got = run(*row, c, inputs, context, 0xff);
          for (std::size_t i = 0; i < got.size(); ++i)
            EXPECT_LE(relative_difference(got[i].values(), want[i].values()),
                      tolerance(got[i].type().dtype))
                << row->implementation << ", output " << i;
        }
      }
}

std::vector<std::string> with_rows() {
  std::vector<std::string> names;
  for (const std::string& op : operators())
    if (!cuda_kernels(op).empty()) names.push_back(op);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Ops, GpuRows, testing::ValuesIn(with_rows()),
                         [](const auto& one) { return one.param; });

// Without cuDNN, or without a plan, own kernels run everything, and no other test notices.
// GPU_TEST_CUDNN states whether cuDNN is on this machine: 1 or 0.
TEST_F(OnGpu, CudnnHasPlansWhereItIsWanted) {
  const char* const wanted = std::getenv("GPU_TEST_CUDNN");
  if (wanted == nullptr) GTEST_SKIP() << "GPU_TEST_CUDNN is not set";
  ASSERT_EQ(cuda::has_cudnn(), std::string_view(wanted) == "1");
  if (!cuda::has_cudnn()) return;
  const cpu::ConvShape shapes[] = {
      // of ResNet-50, the third unpadded and padded; also dilation and groups, which ResNet-50
      // lacks
      {{2, 8, 9, 9}, {2, 8, 9, 9}, {3, 3, 1, 1}},    {{2, 8, 9, 9}, {2, 16, 5, 5}, {1, 1, 2}},
      {{2, 3, 16, 16}, {2, 8, 8, 8}, {7, 7, 2, 3}},  {{2, 8, 16, 16}, {2, 8, 8, 8}, {7, 7, 2, 3}},
      {{2, 8, 9, 9}, {2, 8, 9, 9}, {3, 3, 1, 2, 2}}, {{2, 8, 9, 9}, {2, 8, 9, 9}, {3, 3, 1, 1}, 2}};
  for (const cpu::ConvShape& shape : shapes)
    for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16})
      for (const Layout layout : {Layout::Plain, Layout::ChannelsLast})
        for (const auto makes :
             {cuda::ConvMakes::Output, cuda::ConvMakes::Input, cuda::ConvMakes::Weights})
          device_->queue().run([&](AddressMap) {
            EXPECT_TRUE(cuda::CudnnConv({makes, shape, layout, dtype, "there"}).there())
                << dtype_name(dtype) << ", " << shape.w.height << ", groups " << shape.groups
                << ", makes " << static_cast<int>(makes);
          });
}

// If the library has no such product, the kernel of sum_rows runs after it, in scratch, and no
// other test notices.
TEST_F(OnGpu, ProductsMakeGradientsOfBiases) {
  const OpDef& def = op_set().find("linear_weight_bias_grad");
  const RunContext context;
  for (const Shape& x : {Shape{5, 3}, Shape{130, 200}})
    for (const DType floats : {DType::Float32, DType::BFloat16, DType::Float16}) {
      const Sample s{.shapes = {x, {x[0], x[1] + 1}}};
      const Case c = make_case(def, s, floats);
      SCOPED_TRACE(fmt::format("{}, {}", to_string(c.inputs[0]), to_string(c.inputs[1])));
      const std::vector<Tensor> inputs = make_inputs(c, s, kSeed);
      const std::vector<Tensor> want = in_float64(c, inputs, context);
      const PreparedKernel kernel = prepare_cuda(c.desc());
      const Tensor untouched({DType::Int8, {kernel.scratch_bytes}}, 0xff);
      std::vector<Tensor> found = {Tensor(c.outputs[0], 0xff), Tensor(c.outputs[1], 0xff),
                                   untouched};
      std::vector<Device::Memory> in, out;
      for (const Tensor& t : inputs) in.push_back(on_device(t));
      for (const Tensor& t : found) out.push_back(on_device(t));
      const void* const from[] = {in[0].get(), in[1].get()};
      void* const to[] = {out[0].get(), out[1].get()};
      const KernelCall call{from, to, out[2].get(), context};
      device_->queue().run([&](AddressMap) { kernel.run(call); });
      device_->queue().run([&](AddressMap) { kernel.add(call); });
      for (std::size_t i = 0; i < found.size(); ++i)
        device_->queue().download(found[i].data(), out[i].get(), found[i].bytes());
      device_->queue().record().wait();
      std::vector<double> twice = want[0].values();
      for (double& w : twice) w *= 2;
      EXPECT_LE(relative_difference(found[0].values(), twice), 2e-6);
      EXPECT_LE(relative_difference(found[1].values(), want[1].values()), 2e-6);
      EXPECT_TRUE(found[2].same_bits(untouched)) << "the library makes none";
    }
}

// Rows that are no multiple of 16 bytes, with enough work for a copy of them. The grid's cases are
// too small.
TEST_F(OnGpu, ProductsOfUnevenRowsGoThroughCopies) {
  const std::int64_t rows = 64, inner = 1024;
  for (const std::int64_t wide : {2050, 2051}) {
    const Shape x = {rows, inner}, y = {rows, wide}, w = {wide, inner};
    const std::map<std::string, std::vector<Shape>> all = {{"linear", {x, w, {wide}}},
                                                           {"linear_input_grad", {y, w}},
                                                           {"linear_weight_grad", {x, y}},
                                                           {"linear_weight_bias_grad", {x, y}}};
    for (const auto& [op, shapes] : all) {
      SCOPED_TRACE(fmt::format("{} {}", op, wide));
      const Sample s{.shapes = shapes};
      const Case c = make_case(op_set().find(op), s, DType::BFloat16);
      const KernelRow& row = *cuda_kernels(op).front();
      EXPECT_GE(row.prepare(c.desc()).scratch_bytes, rows * wide * 2) << "no copy is made";
      const std::vector<Tensor> inputs = make_inputs(c, s, kSeed), want = in_float64(c, inputs, {});
      const std::vector<Tensor> got = run(row, c, inputs, {}, 0xff);
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_LE(relative_difference(got[i].values(), want[i].values()),
                  tolerance(c.outputs[i].dtype))
            << "output " << i;
    }
  }
}

// Tiles that end within a row, blocks of several tiles, channels and packs of several blocks.
TEST_F(OnGpu, FewChannelsGoThroughTiles) {
  for (const ConvLayer& l : {ConvLayer{3, 3, 64, 62, 72, 7, 2, 3},
                             {2, 3, 33, 35, 20, 7, 2, 3},
                             {2, 5, 20, 18, 8, 9, 2, 4},
                             {1600, 2, 1, 1, 8, 1, 1, 0}})
    for (const char* op : {"conv2d", "conv2d_weight_grad"})
      for (const DType floats : {DType::BFloat16, DType::Float16}) {
        SCOPED_TRACE(fmt::format("{}, {}, {} images", op, dtype_name(floats), l.images));
        const FewChannelsTask task(l, op, floats, floats, kSeed);
        ASSERT_NE(task.row(), nullptr);
        const auto made = [&](unsigned char fill) {
          return task.back(run(*task.row(), task.c, task.there(), {}, fill))[0];
        };
        const Tensor got = made(0xff);
        EXPECT_LE(relative_difference(got.values(), task.want()[0].values()), tolerance(floats));
        EXPECT_TRUE(got.same_bits(made(0x00)));
      }
}

TEST_F(OnGpu, Tf32RoundsNoGradientOfABias) {
  auto device = open_device("cuda");
  device->use_tf32();
  std::swap(device_, device);
  const Sample s{.shapes = {{130, 200}, {130, 150}}};
  const Case c = make_case(op_set().find("linear_weight_bias_grad"), s);
  const std::vector<Tensor> inputs = make_inputs(c, s, kSeed), want = in_float64(c, inputs, {});
  const std::vector<Tensor> got = run(*cuda_kernels(c.op).front(), c, inputs, {}, 0xff);
  EXPECT_GT(relative_difference(got[0].values(), want[0].values()), 1e-5) << "not rounded";
  EXPECT_LE(relative_difference(got[1].values(), want[1].values()), 2e-6);
  std::swap(device_, device);
}

TEST_F(OnGpu, ABadIndexIsToldAtTheEvent) {
  // a separate device, because all its later events report the error, too
  auto device = open_device("cuda");
  std::swap(device_, device);
  const OpDef& def = op_set().find("embedding");
  const Sample s{.shapes = {{3, 4}, {5}}, .dtypes = {DType::Float32, DType::Int32}};
  const Case c = make_case(def, s);
  std::vector<Tensor> inputs = make_inputs(c, s, kSeed);
  inputs[1].set(3, 7);
  EXPECT_THAT([&] { run(*cuda_kernels("embedding").front(), c, inputs, {}, 0); },
              testing::ThrowsMessage<Error>(
                  testing::HasSubstr("'grid/node': index 7 at position 3 is outside [0, 3)")));
  std::swap(device_, device);
}

TEST_F(OnGpu, MoreThanTheCardHasIsNull) {
  EXPECT_EQ(device_->alloc(std::int64_t{1} << 50), nullptr);
  EXPECT_NE(device_->alloc(1 << 20), nullptr) << "the refusal before is remembered";
}

TEST_F(OnGpu, WhatIsUploadedComesBack) {
  for (const std::int64_t bytes : {1LL, 4096LL, (4LL << 20) + 1, (37LL << 20) + 5}) {
    std::vector<unsigned char> there(static_cast<std::size_t>(bytes)), back(there.size());
    for (std::size_t i = 0; i < there.size(); ++i) there[i] = static_cast<unsigned char>(i * 7);
    const Device::Memory a = device_->alloc(bytes), b = device_->alloc(bytes);
    device_->queue().upload(a.get(), there.data(), bytes);
    device_->queue().copy(b.get(), a.get(), bytes);
    device_->queue().download(back.data(), b.get(), bytes);
    device_->queue().record().wait();
    EXPECT_EQ(there, back) << bytes;
  }
}

// Few bytes and many, twice. Together they exceed the pinned memory.
TEST_F(OnGpu, WhatIsDownloadedIsThereAtTheEvent) {
  constexpr std::int64_t kMost = 100000;
  std::vector<unsigned char> there(static_cast<std::size_t>(kMost) + 64);
  for (std::size_t i = 0; i < there.size(); ++i) there[i] = static_cast<unsigned char>(i * 11);
  const auto bytes = static_cast<std::int64_t>(there.size());
  const Device::Memory from = device_->alloc(bytes);
  device_->queue().upload(from.get(), there.data(), bytes);
  for (int times = 0; times < 2; ++times) {
    std::vector<std::vector<unsigned char>> back;
    for (const std::int64_t size : {1, 4, 8, 1000, 65536, 65537, 100000})
      for (int copy = 0; copy < 8; ++copy) back.emplace_back(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < back.size(); ++i)
      device_->queue().download(back[i].data(), from.get() + i,
                                static_cast<std::int64_t>(back[i].size()));
    device_->queue().record().wait();
    for (std::size_t i = 0; i < back.size(); ++i)
      EXPECT_TRUE(std::equal(back[i].begin(), back[i].end(), there.begin() + i)) << i;
  }
}

/// Returns the GPU's preconditioning results for a layer's factors and a gradient of ones.
std::vector<std::vector<float>> preconditioned(Device& device, KroneckerCall call) {
  const auto n = call.inputs, m = call.outputs;
  const TensorKernels& kernels = device.kernels();
  std::vector<Device::Memory> held;
  const auto room = [&](std::int64_t elements, const float* from) {
    held.push_back(device.alloc(elements * 4));
    auto* const there = reinterpret_cast<float*>(held.back().get());
    if (from != nullptr) device.queue().upload(there, from, elements * 4);
    return there;
  };
  const std::vector<float> ones(static_cast<std::size_t>(m * n), 1);
  float* const gradient = room(m * n, ones.data());
  call.input_sum = room(n * n, call.input_sum);
  call.gradient_sum = room(m * m, call.gradient_sum);
  call.input_inverse = room(n * n, nullptr);
  call.gradient_inverse = room(m * m, nullptr);
  call.scratch = room(kernels.factor_scratch(n, m) / 4, nullptr);
  device.queue().run([&](AddressMap) {
    kernels.invert_factors(call);
    kernels.precondition(gradient, m, n, call.gradient_inverse, call.input_inverse, call.scratch);
  });
  std::vector<std::vector<float>> made;
  for (const DeviceSpan& span :
       {DeviceSpan{call.input_inverse, n * n, &device},
        DeviceSpan{call.gradient_inverse, m * m, &device}, DeviceSpan{gradient, m * n, &device}})
    made.push_back(span.values());
  return made;
}

TEST_F(OnGpu, FactorsAreInvertedAsOnTheCpu) {
  const std::unique_ptr<Device> cpu = open_device("cpu");
  for (const std::int64_t n : {1, 64, 65, 300, 1030}) {
    const std::int64_t m = n / 2 + 3;
    const std::vector<float> a = sum_of_rows(n, 40, 1), b = sum_of_rows(m, 40, 2);
    const KroneckerCall call = factors_call(a, n, b, m, 0.01);
    const auto want = preconditioned(*cpu, call), got = preconditioned(*device_, call);
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_LE(part_apart(got[i].data(), want[i]), 1e-5) << n << " sides, result " << i;
    EXPECT_EQ(preconditioned(*device_, call), got) << n << " sides, again";
  }
}

}  // namespace
}  // namespace hetu::test
