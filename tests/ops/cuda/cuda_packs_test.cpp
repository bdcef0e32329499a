// Tests kernels of ops/cuda that move eight neighbours at once, run on the host. Shapes are whole
// packs or not. Tensors are aligned to 16 bytes, or one of them is shifted by an element.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ops/cuda/geometry.h"
#include "ops/cuda/registry.h"
#include "tests/ops/on_host/kernel_context.h"
#include "tests/ops/on_host/near.h"
#include "tests/ops/samples.h"

namespace hetu::test {
namespace {

constexpr std::uint64_t kSeed = 20251125;
constexpr RunContext kRun = {kSeed, 7, 40, true, 4};
constexpr DType kFloats[] = {DType::Float32, DType::BFloat16, DType::Float16};

/// Runs run_row() with tensor number `moved` shifted by one element. Inputs are counted first, then
/// outputs. -1 shifts no tensor.
std::vector<Tensor> run_placed(const Case& c, const std::vector<Tensor>& inputs, int moved) {
  constexpr std::int64_t kSpare = 64;
  const PreparedKernel kernel = prepare_cuda(c.desc());
  std::vector<Tensor> all, outputs;
  std::vector<char*> at;
  const auto place = [&](const TensorType& type, std::int64_t bytes) {
    const bool further = static_cast<int>(all.size()) == moved;
    all.emplace_back(TensorType{DType::Int8, {bytes + kSpare}});
    at.push_back(all.back().as<char>() + (further ? dtype_bytes(type.dtype) : 0));
  };
  for (const Tensor& t : inputs) {
    place(t.type(), t.bytes());
    std::memcpy(at.back(), t.data(), static_cast<std::size_t>(t.bytes()));
  }
  for (const TensorType& type : c.outputs) {
    outputs.emplace_back(type);
    place(type, outputs.back().bytes());
  }
  Tensor scratch({DType::Int8, {kernel.scratch_bytes}});
  const std::vector<const void*> in(at.begin(), at.begin() + std::ssize(inputs));
  const std::vector<void*> out(at.begin() + std::ssize(inputs), at.end());
  kernel.run(KernelCall{in.data(), out.data(), scratch.data(), kRun});
  EXPECT_TRUE(scratch.guards_hold());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    std::memcpy(outputs[i].data(), out[i], static_cast<std::size_t>(outputs[i].bytes()));
    EXPECT_EQ(static_cast<const char*>(out[i])[outputs[i].bytes()], char(0xff))
        << "written past output " << i;
  }
  return outputs;
}

int tensors_of(const Case& c) { return static_cast<int>(c.inputs.size() + c.outputs.size()); }

// The results must have the bits of the element-wise kernel.
TEST(CudaPacks, SweepAsElementsDo) {
  const HostKernelContext host;
  for (const std::string op : {"gelu", "gelu_grad"})
    for (const DType floats : kFloats)
      for (const std::int64_t n : {1, 7, 8, 19}) {
        SCOPED_TRACE(fmt::format("{} {} {}", op, dtype_name(floats), n));
        Sample s{.shapes = {{n}}};
        if (op == "gelu_grad") s.shapes.push_back({n});
        const Case c = make_case(op_set().find(op), s, floats);
        const std::vector<Tensor> inputs = make_inputs(c, s, kSeed);
        const Tensor want = run_row(*cuda_kernels(op).front(), c, inputs, {})[0];
        for (int moved = 0; moved < tensors_of(c); ++moved)
          EXPECT_TRUE(run_placed(c, inputs, moved)[0].same_bits(want));
      }
}

void expect_near_float64(Case c, const std::vector<Tensor>& inputs, Layout images = Layout::Plain) {
  const OpDef& def = op_set().find(c.op);
  const std::vector<Tensor> want = in_float64(c, inputs, kRun);
  const bool last = images == Layout::ChannelsLast;
  const std::vector<Tensor> there =
      last ? moved(def.images.inputs, inputs, "channels_last") : inputs;
  c.images = images;
  for (int place = -1; place < tensors_of(c); ++place) {
    SCOPED_TRACE(fmt::format("moved {}", place));
    const std::vector<Tensor> got = run_placed(c, there, place);
    expect_near(*cuda_kernels(c.op).front(), c,
                last ? moved(def.images.outputs, got, "plain") : got, want);
  }
}

// Covers rows of a pack and less, of a part of a warp's lanes, of several warps, and rows that are
// too long. Dropout covers warps that share random numbers, and rows that begin between groups of
// random numbers.
TEST(CudaPacks, NormaliseRowsInRegisters) {
  const HostKernelContext host;
  ASSERT_EQ(cuda::threads_of_held_row(8200), 0);
  for (const std::int64_t columns : {8, 131, 264, 384, 640, 1024, 1152, 2176, 8192, 8200})
    for (const std::string op : {"layer_norm", "layer_norm_input_grad", "dropout_add_layer_norm",
                                 "dropout_add_layer_norm_grad"})
      for (const DType floats : kFloats) {
        SCOPED_TRACE(fmt::format("{} {} {}", op, dtype_name(floats), columns));
        const Shape x = {kBatch, 3, columns}, row = {columns}, statistics = {kBatch, 3};
        Sample s{.shapes = {x, row, row}};
        if (op.ends_with("grad")) s.shapes = {x, row, statistics, statistics, x};
        if (op == "dropout_add_layer_norm") s.shapes = {x, x, row, row};
        if (op.starts_with("dropout")) s.attrs = {{"p", 0.3}, {"key", std::string("grid/node")}};
        const Case c = make_case(op_set().find(op), s, floats);
        expect_near_float64(c, make_inputs(c, s, kSeed));
      }
}

// Covers columns of a pack, a strip of packs, more than a strip, and partial packs. Rows are summed
// in one chunk or in several.
TEST(CudaPacks, SumColumns) {
  const HostKernelContext host;
  for (const std::int64_t rows : {1, 7, 300})
    for (const std::int64_t columns : {8, 60, 131, 136})
      for (const std::string op : {"sum_rows", "layer_norm_gamma_grad"})
        for (const DType floats : kFloats) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", op, dtype_name(floats), rows, columns));
          const Shape x = {rows, columns};
          Sample s{.shapes = {x}};
          if (op == "layer_norm_gamma_grad") s.shapes = {x, {rows}, {rows}, x};
          const Case c = make_case(op_set().find(op), s, floats);
          expect_near_float64(c, make_inputs(c, s, kSeed));
        }
}

// Covers channels of packs, a strip of packs, more than a strip, and partial packs. Some planes are
// whole packs.
TEST(CudaPacks, NormaliseChannels) {
  const HostKernelContext host;
  constexpr std::pair<std::int64_t, std::int64_t> kSizes[] = {
      {5, 11}, {12, 12}, {8, 11}, {136, 12}};
  for (const auto& [count, side] : kSizes)
    for (const std::string op :
         {"batch_norm", "batch_norm_relu", "batch_norm_add_relu", "batch_norm_grad",
          "batch_norm_relu_grad", "batch_norm_add_relu_grad"})
      for (const DType floats : kFloats) {
        const Shape x = {3, count, side, side}, one = {count};
        Sample s{.shapes = {x, one, one, one, one}};
        if (op == "batch_norm_grad" || op == "batch_norm_add_relu_grad") s.shapes[4] = x;
        if (op.ends_with("relu_grad") || op == "batch_norm_add_relu") s.shapes.push_back(x);
        if (op == "batch_norm_add_relu_grad") s.shapes.push_back(x);
        if (op.ends_with("grad")) s.attrs = {{"epsilon", 5.0}};
        const Case c = make_case(op_set().find(op), s, floats);
        const std::vector<Tensor> inputs = make_inputs(c, s, kSeed);
        for (const Layout images : {Layout::Plain, Layout::ChannelsLast}) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", op, dtype_name(floats), count, side));
          expect_near_float64(c, inputs, images);
        }
      }
}

/// Windows that overlap, that touch, and that leave pixels out.
constexpr std::int64_t kWindows[][3] = {
    {3, 2, 1}, {2, 2, 0}, {2, 3, 0}, {4, 1, 2}};  // kernel, stride, padding

// Many numbers are equal. The first of equal elements is the largest and gets the gradient.
TEST(CudaPacks, PoolLargestOfChannels) {
  const HostKernelContext host;
  for (const std::int64_t channels : {5, 8, 24})
    for (const auto& [kernel, stride, padding] : kWindows)
      for (const DType floats : kFloats)
        for (const Layout images : {Layout::Plain, Layout::ChannelsLast}) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", dtype_name(floats), channels, kernel, stride));
          const std::int64_t height = 9, width = 7;
          Sample s{.shapes = {{2, channels, height, width}}};
          s.attrs = {{"kernel", kernel}, {"stride", stride}, {"padding", padding}};
          const Case c = make_case(op_set().find("max_pool2d"), s, floats);
          std::vector<Tensor> inputs = make_inputs(c, s, kSeed);
          for (std::int64_t i = 0; i < inputs[0].count(); ++i)
            inputs[0].set(i, std::round(inputs[0].at(i)));
          expect_near_float64(c, inputs, images);

          Sample back{.shapes = {c.outputs[0].shape, c.outputs[0].shape}, .attrs = s.attrs};
          back.dtypes = {DType::Float32, DType::Int32};
          back.attrs.set("height", height);
          back.attrs.set("width", width);
          const Case grad = make_case(op_set().find("max_pool2d_grad"), back, floats);
          std::vector<Tensor> given = make_inputs(grad, back, kSeed);
          given[1] = in_float64(c, inputs, kRun)[1];
          expect_near_float64(grad, given, images);
          given[1].set(given[1].count() - 1, 1);  // outside its window
          expect_near_float64(grad, given, images);
        }
  EXPECT_EQ(host.fault().taken, 0);
}

// The kernel replaces a division by a multiplication. In a row this long, the plain product would
// be one too large at the end. A position that is wrongly considered outside its window would make
// each pixel search all windows.
TEST(CudaPacks, PlacesInLongRowsAreWhereTheyAre) {
  const HostKernelContext host;
  const std::int64_t width = 65537, windows = (width + 2 - 3) / 2 + 1;
  Sample s{.shapes = {{1, 8, 1, windows}, {1, 8, 1, windows}}};
  s.attrs = {{"kernel", std::int64_t{3}},
             {"stride", std::int64_t{2}},
             {"padding", std::int64_t{1}},
             {"height", std::int64_t{1}},
             {"width", width}};
  s.dtypes = {DType::Float32, DType::Int32};
  Case c = make_case(op_set().find("max_pool2d_grad"), s, DType::BFloat16);
  c.images = Layout::ChannelsLast;
  Tensor dy(c.inputs[0]), places(c.inputs[1]), dx(c.outputs[0], 0xff);
  for (std::int64_t i = 0; i < dy.count(); ++i) {
    dy.set(i, static_cast<double>(i % 7 + 1));
    // the last position of each window
    places.set(i, static_cast<double>(std::min(i / 8 * 2 + 1, width - 1)));
  }
  const PreparedKernel kernel = cuda_kernels(c.op).front()->prepare(c.desc());
  Tensor strays({DType::Int32, {kernel.scratch_bytes / 4}}, 0xff);
  const void* const in[] = {dy.data(), places.data()};
  void* const out[] = {dx.data()};
  kernel.run(KernelCall{in, out, strays.data(), kRun});
  for (std::int64_t i = 0; i < strays.count(); ++i) ASSERT_EQ(strays.at(i), 0);
  for (std::int64_t i = 0; i < dx.count(); ++i) {
    const std::int64_t pixel = i / 8;
    const bool is = pixel % 2 == 1 || pixel == width - 1;
    ASSERT_EQ(dx.at(i), is ? dy.at(pixel / 2 * 8 + i % 8) : 0) << pixel;
  }
}

// A bad position is reported once and adds nothing.
TEST(CudaPacks, ABadPlaceOfALargestIsNoted) {
  for (const std::int64_t channels : {5, 8}) {
    const HostKernelContext host;
    const Shape y = {1, channels, 2, 2};
    Sample s{.shapes = {y, y}, .dtypes = {DType::Float32, DType::Int32}, .integers_below = 1};
    s.attrs = {{"kernel", std::int64_t{2}},
               {"stride", std::int64_t{1}},
               {"height", std::int64_t{3}},
               {"width", std::int64_t{3}}};
    Case c = make_case(op_set().find("max_pool2d_grad"), s);
    c.images = Layout::ChannelsLast;
    std::vector<Tensor> inputs = make_inputs(c, s, kSeed);
    const std::int64_t second = channels;  // the second window
    inputs[1].set(second, 9);
    const Tensor dx = run_row(*cuda_kernels(c.op).front(), c, inputs, kRun)[0];
    EXPECT_EQ(host.fault().taken, 1);
    EXPECT_EQ(host.fault().value, 9);
    EXPECT_EQ(host.fault().position, second);
    EXPECT_EQ(host.fault().below, 9);
    const Tensor& dy = inputs[0];
    EXPECT_FLOAT_EQ(float(dx.at(0)),
                    float(dy.at(0)) + float(dy.at(2 * channels)) + float(dy.at(3 * channels)));
  }
}

}  // namespace
}  // namespace hetu::test
