// Tests the arithmetic of the CUDA kernels on the host over the operator grid. The sources are
// those that nvcc compiles for the GPU, compiled with threads as loops (tests/ops/on_host). Also
// tests the table: which operators have a row, which have none, and why.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <set>

#include "base/error.h"
#include "ops/cuda/geometry.h"
#include "ops/cuda/registry.h"
#include "ops/registry.h"
#include "tests/ops/on_host/cudnn_conv.h"
#include "tests/ops/on_host/kernel_context.h"
#include "tests/ops/on_host/near.h"
#include "tests/ops/on_host/product_bias_grad.h"
#include "tests/ops/samples.h"
#include "tests/ops/tensors.h"

namespace hetu::test {
namespace {

constexpr std::uint64_t kSeed = 20251125;

class CudaRows : public testing::TestWithParam<std::string> {
 protected:
  const OpDef& def() const { return op_set().find(GetParam()); }
  /// Returns the larger shapes only for one dtype of each size, because all two-byte dtypes run the
  /// same code.
  std::vector<Sample> samples_in(DType floats, DType largest) const {
    return floats == DType::Float32 || floats == largest ? samples_of(def()) : def().samples;
  }
};

TEST(CudaTable, EveryOperatorHasARow) {
  for (const std::string& op : operators()) EXPECT_FALSE(cuda_kernels(op).empty()) << op;
}

TEST(CudaTable, AnOperatorWithoutARowIsRefusedInOneLine) {
  KernelDesc d;
  d.op = "telepathy";
  d.name = "layer1/thoughts";
  try {
    prepare_cuda(d);
    FAIL() << "prepared";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Unsupported);
    EXPECT_STREQ(e.what(),
                 "--device cuda: telepathy 'layer1/thoughts' has no CUDA kernel; use --device cpu");
  }
}

TEST(CudaTable, TheReferenceIsTheLastRow) {
  const OpDef& def = op_set().find("fused_attention");
  const Case c = make_case(def, def.samples.front());
  EXPECT_STREQ(prepare_cuda(c.desc()).implementation, "flash_registers");
  EXPECT_STREQ(prepare_cuda(c.desc(), KernelChoice::Reference).implementation, "cuda");
}

TEST_P(CudaRows, AgreesWithFloat64) {
  const HostKernelContext host;
  const RunContext run{kSeed, 7, 40, true, 4};
  for (const DType floats : floats_of(def()))
    for (const Sample& s : samples_in(floats, DType::BFloat16)) {
      const Case c = make_case(def(), s, floats);
      const std::vector<Tensor> inputs = make_inputs(c, s, kSeed);
      std::string shapes;
      for (const TensorType& t : c.inputs) shapes += fmt::format(" {}", to_string(t));
      SCOPED_TRACE(fmt::format("{}{}, seed {}", c.op, shapes, kSeed));
      int taken = 0;
      for (const KernelRow* row : cuda_kernels(c.op)) {
        if (!row->takes(c.desc())) continue;
        ++taken;
        const std::vector<Tensor> want = in_float64(c, inputs, run);
        const std::vector<Tensor> got = run_row(*row, c, inputs, run, 0xff);
        const std::vector<Tensor> again = run_row(*row, c, inputs, run, 0x00);
        expect_near(*row, c, got, want);
        for (std::size_t i = 0; i < got.size(); ++i)
          EXPECT_TRUE(got[i].same_bits(again[i])) << "output " << i << " is not written whole";
      }
      EXPECT_GT(taken, 0) << "no row takes it";
    }
  EXPECT_EQ(host.fault().taken, 0) << "an index was called bad";
}

// A kernel that a CUDA graph replays must read step and sample numbers when it runs, not when it is
// captured.
TEST_P(CudaRows, ReadTheMomentLate) {
  const HostKernelContext host;
  const RunCounters counters{7, 40};
  const RunContext known{kSeed, 7, 40, true, 4};
  const RunContext late{kSeed, 1, 2, true, 4, &counters};
  const Case c = make_case(def(), def().samples.front());
  const std::vector<Tensor> inputs = make_inputs(c, def().samples.front(), kSeed);
  for (const KernelRow* row : cuda_kernels(c.op)) {
    if (!row->takes(c.desc())) continue;
    const std::vector<Tensor> want = run_row(*row, c, inputs, known, 0);
    const std::vector<Tensor> got = run_row(*row, c, inputs, late, 0);
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(got[i].same_bits(want[i])) << c.op << ", output " << i;
  }
}

TEST_P(CudaRows, AgreeOnChannelsLastImages) {
  const HostKernelContext host;
  const RunContext run{kSeed, 7, 40, true, 4};
  for (const DType floats : floats_of(def()))
    for (const Sample& s : samples_in(floats, DType::Float32)) {
      Case c = make_case(def(), s, floats);
      if (!can_lie_channels_last(def(), c)) continue;
      const std::vector<Tensor> inputs = make_inputs(c, s, kSeed);
      SCOPED_TRACE(fmt::format("{} {}, seed {}", c.op, to_string(c.inputs[0]), kSeed));
      const std::vector<Tensor> want = in_float64(c, inputs, run);
      c.images = Layout::ChannelsLast;
      const std::vector<Tensor> there = moved(def().images.inputs, inputs, "channels_last");
      ASSERT_TRUE(cuda_kernels(c.op).back()->takes(c.desc()));
      for (const KernelRow* row : cuda_kernels(c.op)) {
        if (!row->takes(c.desc())) continue;
        expect_near(*row, c, moved(def().images.outputs, run_row(*row, c, there, run), "plain"),
                    want);
      }
    }
}

std::vector<std::string> with_rows() {
  std::vector<std::string> names;
  for (const std::string& op : operators())
    if (!cuda_kernels(op).empty()) names.push_back(op);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Ops, CudaRows, testing::ValuesIn(with_rows()),
                         [](const auto& one) { return one.param; });

// The windows of the images fill more than a chunk, and the last chunk has fewer images.
TEST(CudaConv, GoesThroughImagesInPieces) {
  const HostKernelContext host;
  const std::int64_t side = 600, outputs = 2, window = 3, padding = 1;
  const Shape x = {3, 1, side, side}, w = {outputs, 1, window, window};
  const Shape y = {3, outputs, side, side};
  const auto attrs = [&](std::int64_t height, std::int64_t width) -> Attrs {
    return {{"padding", padding}, {"height", height}, {"width", width}};
  };
  const std::int64_t bytes_of_image = side * side * window * window * std::int64_t{sizeof(float)};
  ASSERT_EQ(cuda::images_of_piece(3, bytes_of_image), 2);
  ASSERT_EQ(cuda::images_of_piece(3, bytes_of_image * outputs), 1);
  const std::map<std::string, Sample> samples = {
      {"conv2d", {.shapes = {x, w}, .attrs = {{"padding", padding}}}},
      {"conv2d_input_grad", {.shapes = {y, w}, .attrs = attrs(side, side)}},
      {"conv2d_weight_grad", {.shapes = {x, y}, .attrs = attrs(window, window)}}};
  for (const auto& [op, s] : samples) {
    SCOPED_TRACE(op);
    const OpDef& def = op_set().find(op);
    Case c = make_case(def, s);
    const std::vector<Tensor> inputs = make_inputs(c, s, kSeed);
    const std::vector<Tensor> want = in_float64(c, inputs, {});
    const bool last = op != "conv2d_input_grad";
    c.images = last ? Layout::ChannelsLast : Layout::Plain;
    const std::vector<Tensor> there =
        last ? moved(def.images.inputs, inputs, "channels_last") : inputs;
    const std::vector<Tensor> got = run_row(*cuda_kernels(op).back(), c, there, {});
    expect_near(*cuda_kernels(op).back(), c, last ? moved(def.images.outputs, got, "plain") : got,
                want);
  }
}

const KernelRow& cudnn_row(std::string_view op) {
  for (const KernelRow* row : cuda_kernels(op))
    if (row->implementation == std::string_view("cudnn")) return *row;
  fail(Code::Internal, "{} has no row of cuDNN", op);
}

// If the library has no plan for a convolution, Hetu's own kernel runs.
TEST(CudaConv, RunsByOwnKernelsWhereCudnnHasNoPlan) {
  const HostKernelContext host;
  for (const char* op : {"conv2d", "conv2d_input_grad", "conv2d_weight_grad", "conv_transpose2d"}) {
    SCOPED_TRACE(op);
    const OpDef& def = op_set().find(op);
    const auto sample = std::find_if(def.samples.begin(), def.samples.end(),
                                     [](const Sample& s) { return s.shapes.size() == 2; });
    ASSERT_NE(sample, def.samples.end());
    const Case c = make_case(def, *sample);
    const std::vector<Tensor> inputs = make_inputs(c, *sample, kSeed);
    const KernelRow &library = cudnn_row(op), &own = *cuda_kernels(op).back();
    cuda::host_most_inputs = 0;
    const std::vector<Tensor> got = run_row(library, c, inputs, {}, 0xff);
    cuda::host_most_inputs = cuda::kAnyInputs;
    EXPECT_TRUE(got[0].same_bits(run_row(own, c, inputs, {}, 0xff)[0]));
  }
}

// For the channels-last two-byte images of a first layer, the library gets eight channels. Without
// such a plan, the forward passes the node's own number of channels to the library. The weight
// gradient, whose result is float32, then runs without the library.
TEST(CudaConv, PadsInputsOfFirstLayers) {
  const HostKernelContext host;
  const std::int64_t outputs = 4, window = 3;
  const Attrs forward = {{"stride", std::int64_t{2}}, {"padding", std::int64_t{1}}};
  Attrs backward = forward;
  for (const char* name : {"height", "width"}) backward.set(name, window);
  for (const DType floats : {DType::Float32, DType::BFloat16, DType::Float16})
    for (const std::int64_t inputs : {1, 3, 5, 8, 9})
      for (const Layout images : {Layout::Plain, Layout::ChannelsLast})
        for (const bool gradient : {false, true}) {
          SCOPED_TRACE(fmt::format("{} {} {}", dtype_name(floats), inputs, gradient));
          const OpDef& def = op_set().find(gradient ? "conv2d_weight_grad" : "conv2d");
          const Shape x = {2, inputs, 7, 5}, y = {2, outputs, 4, 3};
          const Sample s =
              gradient ? Sample{.shapes = {x, y}, .attrs = backward}
                       : Sample{.shapes = {x, {outputs, inputs, window, window}}, .attrs = forward};
          Case c = make_case(def, s, floats);
          c.images = images;
          const bool first = is_narrow(floats) && inputs < 8;
          const bool pads = first && images == Layout::ChannelsLast;
          const KernelRow& library = cudnn_row(def.name);
          ASSERT_EQ(library.takes(c.desc()), pads || !first || !gradient);
          if (!library.takes(c.desc())) continue;
          const std::vector<Tensor> given = make_inputs(c, s, kSeed);
          const std::vector<Tensor> there =
              images == Layout::Plain ? given : moved(def.images.inputs, given, "channels_last");
          const std::vector<Tensor> want = in_float64(c, given, {});
          const auto runs_with = [&](std::int64_t library_sees) {
            cuda::host_inputs = 0;
            const std::vector<Tensor> got = run_row(library, c, there, {}, 0xff);
            EXPECT_EQ(cuda::host_inputs, library_sees);
            const bool moves = images != Layout::Plain && !gradient;
            expect_near(library, c, moves ? moved(def.images.outputs, got, "plain") : got, want);
          };
          runs_with(pads ? 8 : inputs);
          if (!pads) continue;
          cuda::host_most_inputs = inputs;
          runs_with(gradient ? 0 : inputs);
          cuda::host_most_inputs = cuda::kAnyInputs;
        }
}

// The later micro-batches of a step add to the gradient of a weight with a product that
// accumulates.
TEST(CudaProducts, AddToWhatIsThere) {
  const HostKernelContext host;
  const OpDef& def = op_set().find("linear_weight_grad");
  const Sample s{.shapes = {{5, 3}, {5, 4}}};
  for (const DType floats : {DType::Float32, DType::BFloat16, DType::Float16}) {
    const Case c = make_case(def, s, floats);
    ASSERT_EQ(c.outputs[0].dtype, DType::Float32);
    const std::vector<Tensor> inputs = make_inputs(c, s, kSeed);
    const PreparedKernel kernel = prepare_cuda(c.desc());
    ASSERT_TRUE(kernel.add);
    EXPECT_EQ(kernel.scratch_bytes, 0) << "nothing is widened";
    Tensor sum(c.outputs[0], 0);
    const void* in[] = {inputs[0].data(), inputs[1].data()};
    void* out[] = {sum.data()};
    const RunContext run;
    kernel.run({in, out, nullptr, run});
    kernel.add({in, out, nullptr, run});
    std::vector<double> twice = in_float64(c, inputs, run)[0].values();
    for (double& x : twice) x *= 2;
    EXPECT_LE(relative_difference(sum.values(), twice), 1e-6) << dtype_name(floats);
  }
}

// As above, with the gradient of a bias, which is overwritten each time. The product writes it. If
// the library has no such product, the kernel of sum_rows writes it and must give its own bits.
TEST(CudaProducts, WriteBiasGradientsBesideWhatTheyAdd) {
  const HostKernelContext host;
  const OpDef& def = op_set().find("linear_weight_bias_grad");
  const Sample s{.shapes = {{5, 3}, {5, 4}}};
  for (const DType floats : {DType::Float32, DType::BFloat16, DType::Float16})
    for (const bool one_call : {true, false}) {
      SCOPED_TRACE(fmt::format("{}, {}", dtype_name(floats), one_call ? "one call" : "two"));
      cuda::host_sums_bias_grads = one_call;
      const Case c = make_case(def, s, floats);
      const std::vector<Tensor> inputs = make_inputs(c, s, kSeed);
      const std::vector<Tensor> want = in_float64(c, inputs, {});
      const PreparedKernel kernel = prepare_cuda(c.desc());
      ASSERT_TRUE(kernel.add);
      Tensor dw(c.outputs[0], 0xff), scratch({DType::Int8, {kernel.scratch_bytes}}, 0xff);
      const Tensor untouched = scratch;
      const void* in[] = {inputs[0].data(), inputs[1].data()};
      const RunContext run;
      for (const int times : {1, 2}) {
        Tensor db(c.outputs[1], 0xff);
        void* out[] = {dw.data(), db.data()};
        (times == 1 ? kernel.run : kernel.add)({in, out, scratch.data(), run});
        std::vector<double> sum = want[0].values();
        for (double& x : sum) x *= times;
        EXPECT_LE(relative_difference(dw.values(), sum), 1e-6);
        EXPECT_LE(relative_difference(db.values(), want[1].values()), 1e-6);
        const KernelRow& sums = *cuda_kernels("sum_rows").front();
        const Sample of_dy{.shapes = {s.shapes[1]}};
        const Case of = make_case(op_set().find("sum_rows"), of_dy, floats);
        if (!one_call) {
          EXPECT_TRUE(db.same_bits(run_row(sums, of, {inputs[1]}, {}, 0xff)[0]));
        }
      }
      EXPECT_EQ(scratch.same_bits(untouched), one_call);
    }
  cuda::host_sums_bias_grads = true;
}

// A bad index is reported with the data of the CPU's message, and nothing is read with it.
TEST(CudaIndices, ABadOneIsNoted) {
  const HostKernelContext host;
  const OpDef& def = op_set().find("embedding");
  const Sample s{.shapes = {{3, 4}, {5}}, .dtypes = {DType::Float32, DType::Int32}};
  const Case c = make_case(def, s);
  std::vector<Tensor> inputs = make_inputs(c, s, kSeed);
  inputs[1].set(3, 7);
  run_row(*cuda_kernels("embedding").front(), c, inputs, {});
  EXPECT_EQ(host.fault().taken, 1);
  EXPECT_EQ(host.fault().position, 3);
  EXPECT_EQ(host.fault().value, 7);
  EXPECT_EQ(host.fault().below, 3);
  EXPECT_STREQ(host.fault().node, "grid/node");
}

// Rows with equal numbers, among fewer and more rows than are searched at a time.
TEST(CudaIndices, AddRowsOfOneNumberInOrder) {
  const HostKernelContext host;
  const OpDef& def = op_set().find("embedding_grad");
  for (const std::int64_t ids : {1, 2, 7, 8, 9, 17, 40})
    for (const std::int64_t numbers : {1, 2, 5, 50}) {
      SCOPED_TRACE(fmt::format("{} ids of {} numbers", ids, numbers));
      const Sample s{.shapes = {{ids}, {ids, 3}},
                     .attrs = {{"rows", std::int64_t{51}}},
                     .dtypes = {DType::Int32, DType::Float32},
                     .integers_below = 51};
      const Case c = make_case(def, s);
      std::vector<Tensor> inputs = make_inputs(c, s, kSeed);
      for (std::int64_t i = 0; i < ids; ++i) inputs[0].set(i, static_cast<double>(i % numbers));
      expect_near(*cuda_kernels(c.op).front(), c,
                  run_row(*cuda_kernels(c.op).front(), c, inputs, {}), in_float64(c, inputs, {}));
    }
}

}  // namespace
}  // namespace hetu::test
