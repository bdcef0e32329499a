// Times of the CPU kernels at the shapes of BERT-base, batch 8 x 128, and of the convolutions of
// ResNet-50, batch 16, channels-last. Run it with the number of threads to compare, for example
// OMP_NUM_THREADS=2 build/bin/ops_bench --benchmark_filter=linear. The counter GFLOP/s or GB/s (of
// the bytes that must at least be read and written) shows how far a kernel is from the machine's
// limit.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <random>

#include "base/bfloat16.h"
#include "graph/op_def.h"
#include "ops/registry.h"

namespace hetu {
namespace {

constexpr std::int64_t kSamples = 8, kPositions = 128, kRows = kSamples * kPositions;
constexpr std::int64_t kHidden = 768, kWide = 3072, kHeads = 12, kWords = 30522;

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<void, Free>;

Buffer allocate(std::int64_t bytes) {
  return Buffer(std::aligned_alloc(64, static_cast<std::size_t>((bytes + 127) / 64 * 64)));
}

struct Bench {
  std::string label;
  const char* op;
  std::vector<TensorType> inputs;
  Attrs attrs;
  double flops = 0;                 ///< 0: report bytes instead
  std::int64_t integers_below = 2;  ///< exclusive upper bound of integer inputs
  int labelled = 100;               ///< percent of labels that are not -1
  Layout images = Layout::Plain;
};

void fill(const TensorType& type, const Bench& b, std::mt19937_64& random, void* data) {
  const std::int64_t n = element_count(type.shape);
  for (std::int64_t i = 0; i < n; ++i) {
    const float value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
    if (type.dtype == DType::Float32)
      static_cast<float*>(data)[i] = value;
    else if (type.dtype == DType::BFloat16)
      static_cast<BFloat16*>(data)[i] = BFloat16(value);
    else
      static_cast<std::int32_t*>(data)[i] =
          static_cast<int>(random() % 100) < b.labelled
              ? static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(b.integers_below))
              : -1;
  }
}

void run(benchmark::State& state, const Bench& b, KernelChoice choice) {
  Attrs attrs = b.attrs;
  KernelDesc desc{b.op, b.label, b.inputs, {}, &attrs, kSamples, stable_hash(b.label)};
  desc.outputs = infer_types(op_set().find(b.op), b.label, b.inputs, attrs);
  desc.images = b.images;
  const PreparedKernel kernel = prepare_cpu(desc, choice);
  std::mt19937_64 random(1);
  std::vector<Buffer> buffers;
  std::vector<const void*> in;
  std::vector<void*> out;
  double bytes = 0;
  for (const TensorType& t : desc.inputs) {
    buffers.push_back(allocate(tensor_bytes(t, 1)));
    fill(t, b, random, buffers.back().get());
    in.push_back(buffers.back().get());
    bytes += double(tensor_bytes(t, 1));
  }
  for (const TensorType& t : desc.outputs) {
    buffers.push_back(allocate(tensor_bytes(t, 1)));
    out.push_back(buffers.back().get());
    bytes += double(tensor_bytes(t, 1));
  }
  const Buffer scratch = allocate(kernel.scratch_bytes);
  const RunContext context{1, 2, 3, true};
  const KernelCall call{in.data(), out.data(), scratch.get(), context};
  kernel.run(call);  // touches every page
  for (auto _ : state) kernel.run(call);
  const bool compute = b.flops > 0;
  state.counters[compute ? "GFLOP/s" : "GB/s"] = benchmark::Counter(
      (compute ? b.flops : bytes) * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.SetLabel(kernel.implementation);
}

TensorType f(Shape shape) { return {DType::Float32, std::move(shape)}; }
TensorType i(Shape shape) { return {DType::Int32, std::move(shape)}; }

void add_linear(std::vector<Bench>& all, const std::vector<const char*>& labels, std::int64_t in,
                std::int64_t out) {
  const double flops = 2.0 * double(kRows) * double(in) * double(out);
  all.push_back({labels[0], "linear", {f({kRows, in}), f({out, in}), f({out})}, {}, flops});
  all.push_back({labels[1], "linear_input_grad", {f({kRows, out}), f({out, in})}, {}, flops});
  all.push_back({labels[2], "linear_weight_grad", {f({kRows, in}), f({kRows, out})}, {}, flops});
}

struct Convolved {
  const char* name;
  std::int64_t side, in, out, window, stride;
};
/// Adds a convolution of 16 images of side x side pixels, and its gradients.
void add_convolution(std::vector<Bench>& all, DType floats, const Convolved& c) {
  const std::int64_t side = c.side, in = c.in, out = c.out, window = c.window, stride = c.stride;
  const std::int64_t made = side / stride, padding = window / 2;
  const Attrs a = {{"stride", stride}, {"padding", padding}};
  const auto of = [&](std::int64_t height) {
    return Attrs{{"stride", stride}, {"padding", padding}, {"height", height}, {"width", height}};
  };
  const TensorType x = {floats, {16, in, side, side}}, w = {floats, {out, in, window, window}},
                   y = {floats, {16, out, made, made}};
  const std::string shape = fmt::format("/{}/{}", c.name, dtype_name(floats));
  const double flops = 32.0 * double(made * made * in * out * window * window);
  constexpr auto kLast = Layout::ChannelsLast;
  all.push_back({"conv" + shape, "conv2d", {x, w}, a, flops, 2, 100, kLast});
  all.push_back({"conv_dx" + shape, "conv2d_input_grad", {y, w}, of(side), flops, 2, 100, kLast});
  all.push_back(
      {"conv_dw" + shape, "conv2d_weight_grad", {x, y}, of(window), flops, 2, 100, kLast});
}

void add_attention(std::vector<Bench>& all) {
  const TensorType heads = f({kSamples, kPositions, kHidden}),
                   probs = f({kSamples, kHeads, kPositions, kPositions}),
                   mask = i({kSamples, kPositions});
  const double attention = 4.0 * double(kRows * kPositions * kHidden);
  for (const double p : {0.0, 0.1}) {
    const Attrs a = {{"heads", kHeads}, {"dropout", p}};
    const Attrs g = {{"heads", kHeads}, {"dropout", p}, {"key", std::string("attention")}};
    all.push_back({p > 0 ? "attention/dropout" : "attention",
                   "attention",
                   {heads, heads, heads, mask},
                   a,
                   attention});
    all.push_back({p > 0 ? "attention_grad/dropout" : "attention_grad",
                   "attention_grad",
                   {heads, heads, heads, probs, heads, heads},
                   g,
                   2 * attention});
  }
}

std::vector<Bench> benches() {
  std::vector<Bench> all;
  for (const DType floats : {DType::Float32, DType::BFloat16})
    for (const Convolved& c : {Convolved{"56x64", 56, 64, 64, 3, 1},
                               {"28x128", 28, 128, 128, 3, 1},
                               {"14x256", 14, 256, 256, 3, 1},
                               {"7x512", 7, 512, 512, 3, 1},
                               {"56x128:2", 56, 128, 128, 3, 2},
                               {"14x1024x256", 14, 1024, 256, 1, 1}})
      add_convolution(all, floats, c);
  add_linear(all, {"linear/768x768", "linear_dx/768x768", "linear_dw/768x768"}, kHidden, kHidden);
  add_linear(all, {"linear/768x3072", "linear_dx/768x3072", "linear_dw/768x3072"}, kHidden, kWide);
  add_linear(all, {"linear/3072x768", "linear_dx/3072x768", "linear_dw/3072x768"}, kWide, kHidden);
  add_linear(all, {"linear/768x30522", "linear_dx/768x30522", "linear_dw/768x30522"}, kHidden,
             kWords);
  const TensorType x = f({kRows, kHidden}), wide = f({kRows, kWide}), v = f({kHidden}),
                   row = f({kRows}), logits = f({kRows, kWords});
  add_attention(all);
  all.push_back({"layer_norm", "layer_norm", {x, v, v}, {}});
  all.push_back({"layer_norm_dx", "layer_norm_input_grad", {x, v, row, row, x}, {}});
  all.push_back({"layer_norm_dgamma", "layer_norm_gamma_grad", {x, row, row, x}, {}});
  all.push_back({"sum_rows/768", "sum_rows", {x}, {}});
  all.push_back({"sum_rows/3072", "sum_rows", {wide}, {}});
  all.push_back({"sum_rows/30522", "sum_rows", {logits}, {}});
  all.push_back({"relu/3072", "relu", {wide}, {}});
  all.push_back({"relu_grad/3072", "relu_grad", {wide, wide}, {}});
  all.push_back({"gelu/3072", "gelu", {wide}, {}});
  all.push_back({"gelu_grad/3072", "gelu_grad", {wide, wide}, {}});
  all.push_back({"add/768", "add", {x, x}, {}});
  all.push_back({"dropout/768", "dropout", {x}, {{"p", 0.1}}});
  all.push_back({"embedding", "embedding", {f({kWords, kHidden}), i({kRows})}, {}, 0, kWords});
  all.push_back(
      {"embedding_grad", "embedding_grad", {i({kRows}), x}, {{"rows", kWords}}, 0, kWords});
  for (const int labelled : {100, 15}) {
    all.push_back({labelled == 100 ? "cross_entropy" : "cross_entropy/15%",
                   "softmax_cross_entropy",
                   {logits, i({kRows})},
                   {{"ignore", std::int64_t{-1}}},
                   0,
                   kWords,
                   labelled});
    all.push_back({labelled == 100 ? "cross_entropy_grad" : "cross_entropy_grad/15%",
                   "softmax_cross_entropy_grad",
                   {logits, i({kRows}), row, f({})},
                   {{"ignore", std::int64_t{-1}}},
                   0,
                   kWords,
                   labelled});
  }
  return all;
}

}  // namespace
}  // namespace hetu

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const hetu::Bench& b : hetu::benches())
    benchmark::RegisterBenchmark(
        b.label.c_str(),
        [b](benchmark::State& state) { hetu::run(state, b, hetu::KernelChoice::Best); })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
