// Times of single kernels on a GPU, at the sizes of BERT-large and ResNet-50. Every row that
// supports the node is timed, so that libraries can be compared with own kernels. Also times the
// end of BERT-large's step.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "executor/device/device.h"
#include "ops/cuda/registry.h"
#include "ops/optimizer.h"
#include "ops/run_counters.h"
#include "tests/ops/samples.h"

namespace hetu::test {
namespace {

constexpr char kUsage[] =
    "usage: gpu_bench [DEVICE] [--small] [--only TEXT]\n"
    "A line of JSON per kernel. DEVICE: cuda, or cpu to try the program. --small divides the "
    "batch.\n"
    "--only: rows alone whose operator, a blank and its inputs hold the text.\n";

struct Timed {
  const char* op;
  Sample sample;
  DType dtype = DType::BFloat16;
  Layout images = Layout::Plain;
};

Attrs attention_attrs(std::int64_t heads, bool gradient) {
  Attrs attrs = {{"heads", heads},
                 {"kv_heads", heads},
                 {"causal", std::int64_t{0}},
                 {"window", std::int64_t{0}},
                 {"dropout", 0.1}};
  if (gradient) attrs.set("key", std::string("layer/attention"));
  return attrs;
}

/// Adds the kernels of BERT-large, for `batch` rows of `length` tokens.
void add_bert(std::vector<Timed>& all, std::int64_t batch, std::int64_t length) {
  const std::int64_t rows = batch * length, hidden = 1024, inner = 4096, heads = 16;
  const Shape x = {rows, hidden}, wide = {rows, inner}, three = {batch, length, hidden};
  const Attrs dropped = {{"p", 0.1}, {"key", std::string("layer/dropout")}};
  Attrs normed = dropped;
  normed.set("eps", 1e-12);
  all.push_back({"linear", {.shapes = {x, {hidden, hidden}, {hidden}}}});
  all.push_back({"linear_gelu", {.shapes = {x, {inner, hidden}, {inner}}}});
  all.push_back({"linear_gelu_tanh", {.shapes = {x, {inner, hidden}, {inner}}}});
  all.push_back({"linear_input_grad", {.shapes = {wide, {inner, hidden}}}});
  all.push_back({"linear_input_grad_add", {.shapes = {wide, {inner, hidden}, x}}});
  all.push_back({"linear_weight_grad", {.shapes = {x, wide}}});
  all.push_back({"linear_weight_bias_grad", {.shapes = {x, wide}}});
  all.push_back({"sum_rows", {.shapes = {wide}}});
  all.push_back({"gelu_grad", {.shapes = {wide, wide}}});
  all.push_back({"fused_attention",
                 {.shapes = {three, three, three}, .attrs = attention_attrs(heads, false)}});
  all.push_back({"fused_attention_grad",
                 {.shapes = {three, three, three, {batch, heads, length, 2}, three, three},
                  .attrs = attention_attrs(heads, true)}});
  all.push_back(
      {"dropout_add_layer_norm", {.shapes = {x, x, {hidden}, {hidden}}, .attrs = normed}});
  all.push_back({"dropout_add_layer_norm_grad",
                 {.shapes = {x, {hidden}, {rows}, {rows}, x}, .attrs = dropped}});
  all.push_back({"layer_norm_gamma_grad", {.shapes = {x, {rows}, {rows}, x}}});
}

/// Adds normalizations of ResNet-50, operators fused with them, and their gradients.
void add_norms(std::vector<Timed>& all, std::int64_t batch) {
  for (const auto& [channels, side] : {std::pair<std::int64_t, std::int64_t>{64, 112}, {256, 56}}) {
    const Shape x = {batch, channels, side, side}, one = {channels};
    const auto add = [&, dtype = DType::BFloat16](const char* op, std::vector<Shape> shapes,
                                                  Attrs attrs) {
      all.push_back({op,
                     {.shapes = std::move(shapes), .attrs = std::move(attrs)},
                     dtype,
                     Layout::ChannelsLast});
    };
    const Attrs epsilon = {{"epsilon", 1e-5}};
    add("batch_norm_relu", {x, one, one, one, one}, {});
    add("batch_norm_add_relu", {x, one, one, one, one, x}, {});
    add("batch_norm_relu_grad", {x, one, one, one, one, x}, epsilon);
    add("batch_norm_add_relu_grad", {x, one, one, one, x, x, x}, epsilon);
  }
}

/// Adds three convolutions of ResNet-50 with their gradients, and those of the first layer.
void add_resnet(std::vector<Timed>& all, std::int64_t batch, DType dtype, Layout images) {
  struct Layer {
    std::int64_t inputs, outputs, side, window, stride;
  };
  for (const Layer& l : {Layer{3, 64, 224, 7, 2}, Layer{64, 64, 56, 3, 1},
                         Layer{256, 512, 56, 1, 2}, Layer{512, 512, 7, 3, 1}}) {
    const std::int64_t made = l.side / l.stride, padding = l.window / 2;
    const Shape x = {batch, l.inputs, l.side, l.side}, y = {batch, l.outputs, made, made};
    const Shape w = {l.outputs, l.inputs, l.window, l.window};
    const Attrs attrs = {{"stride", l.stride}, {"padding", padding}};
    Attrs of_x = attrs, of_w = attrs;
    of_x.set("height", l.side);
    of_x.set("width", l.side);
    of_w.set("height", l.window);
    of_w.set("width", l.window);
    all.push_back({"conv2d", {.shapes = {x, w}, .attrs = attrs}, dtype, images});
    all.push_back({"conv2d_input_grad", {.shapes = {y, w}, .attrs = of_x}, dtype, images});
    all.push_back({"conv2d_weight_grad", {.shapes = {x, y}, .attrs = of_w}, dtype, images});
  }
}

std::vector<Timed> all_timed(std::int64_t divided) {
  std::vector<Timed> all;
  const std::int64_t side = std::max<std::int64_t>(8192 / divided, 16);
  const Sample square{.shapes = {{side, side}, {side, side}}};
  for (const DType dtype : {DType::BFloat16, DType::Float16, DType::Float32})
    all.push_back({"matmul", square, dtype});
  add_bert(all, std::max<std::int64_t>(32 / divided, 1), 128);
  add_bert(all, std::max<std::int64_t>(8 / divided, 1), 512);
  const std::int64_t images = std::max<std::int64_t>(128 / divided, 1);
  add_norms(all, images);
  all.push_back({"channels_last", {.shapes = {{images, 3, 224, 224}}}});
  add_resnet(all, images, DType::BFloat16, Layout::ChannelsLast);
  add_resnet(all, images, DType::Float32, Layout::Plain);
  return all;
}

/// Returns the numbers of elements of BERT-large's parameters.
std::vector<std::int64_t> parameters(std::int64_t layers) {
  constexpr std::int64_t kHidden = 1024, kInner = 4096, kWords = 30522;
  std::vector<std::int64_t> all = {kWords * kHidden, 512 * kHidden, 2 * kHidden, kHidden, kHidden};
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    for (int i = 0; i < 4; ++i) all.insert(all.end(), {kHidden * kHidden, kHidden});
    all.insert(all.end(), {kInner * kHidden, kInner, kHidden * kInner, kHidden});
    all.insert(all.end(), 4, kHidden);
  }
  return all;
}

Case case_of(const Timed& timed) {
  Case c = make_case(op_set().find(timed.op), timed.sample, timed.dtype);
  c.images = timed.images;
  return c;
}

/// Returns a tensor filled with repetitions of some random numbers.
Tensor filled(const TensorType& type, std::uint64_t seed) {
  constexpr std::int64_t kSome = 1 << 16;
  std::mt19937_64 random(seed);
  Tensor t(type);
  if (t.count() == 0) return t;
  const Tensor some =
      random_tensor({type.dtype, {std::min(t.count(), kSome)}}, random, 2, false, false);
  auto* to = static_cast<std::byte*>(t.data());
  for (std::int64_t at = 0; at < t.bytes(); at += some.bytes())
    std::memcpy(to + at, some.data(),
                static_cast<std::size_t>(std::min(some.bytes(), t.bytes() - at)));
  return t;
}

class Bench {
 public:
  Bench(const std::string& name, std::string only)
      : device_(open_device(name)), on_gpu_(name == "cuda"), only_(std::move(only)) {}

  void run(const Case& c) {
    if (fmt::format("{} {}", c.op, shapes_of(c)).find(only_) == std::string::npos) return;
    const OpDef& def = op_set().find(c.op);
    std::vector<Device::Memory> held;
    std::vector<const void*> in;
    std::vector<void*> out;
    for (const TensorType& t : c.inputs) {
      const Tensor values = filled(t, 5 + in.size());
      in.push_back(held.emplace_back(device_->alloc(values.bytes())).get());
      device_->queue().upload(held.back().get(), values.data(), values.bytes());
      device_->queue().record().wait();
    }
    for (const TensorType& t : c.outputs)
      out.push_back(held.emplace_back(device_->alloc(Tensor(t).bytes())).get());
    const double flops = def.flops ? double(def.flops({def, "bench", c.inputs, c.attrs})) : 0;
    for (const KernelRow* row : rows_of(c)) tell(c, *row, flops, in, out);
  }

  /// Times ResNet's max pooling and its gradient. The gradient uses the positions that the pooling
  /// returned.
  void run_pool(std::int64_t images) {
    const Shape x = {images, 64, 112, 112}, y = {images, 64, 56, 56};
    Attrs attrs = {
        {"kernel", std::int64_t{3}}, {"stride", std::int64_t{2}}, {"padding", std::int64_t{1}}};
    const DType dtype = DType::BFloat16;
    const Case pool =
        case_of({"max_pool2d", {.shapes = {x}, .attrs = attrs}, dtype, Layout::ChannelsLast});
    for (const char* side : {"height", "width"}) attrs.set(side, x[2]);
    const Case grad = case_of({"max_pool2d_grad",
                               {.shapes = {y, y}, .attrs = attrs, .dtypes = {dtype, DType::Int32}},
                               dtype,
                               Layout::ChannelsLast});
    const Tensor values = filled(pool.inputs[0], 5);
    const Device::Memory of_x = device_->alloc(values.bytes()),
                         of_y = device_->alloc(Tensor(pool.outputs[0]).bytes()),
                         places = device_->alloc(Tensor(pool.outputs[1]).bytes());
    device_->queue().upload(of_x.get(), values.data(), values.bytes());
    device_->queue().record().wait();
    tell(pool, *rows_of(pool).front(), 0, {of_x.get()}, {of_y.get(), places.get()});
    tell(grad, *rows_of(grad).front(), 0, {of_y.get(), places.get()}, {of_x.get()});
  }

  /// Times the gradients' norm, and AdamW with copies in bfloat16.
  void run_update(std::int64_t layers) {
    std::vector<Device::Memory> held;
    std::vector<SweepCall> calls;
    std::vector<SquaresCall> norms;
    std::int64_t elements = 0;
    const auto room = [&](std::int64_t bytes) {
      return held.emplace_back(device_->alloc(bytes)).get();
    };
    Optimizer adamw;
    adamw.kind = Optimizer::Kind::AdamW;
    for (const std::int64_t n : parameters(layers)) {
      SweepCall call = sweep_call(adamw, 1e-4, 1, 3);
      call.weight = reinterpret_cast<float*>(room(n * 4));
      call.gradient = reinterpret_cast<float*>(room(n * 4));
      for (int s = 0; s < 2; ++s) call.state[s] = reinterpret_cast<float*>(room(n * 4));
      call.rounded = room(n * 2);
      call.elements = n;
      calls.push_back(call);
      norms.push_back({call.gradient, n, reinterpret_cast<double*>(room(8))});
      elements += n;
    }
    const TensorKernels& kernels = device_->kernels();
    const auto tell = [&](const char* what, double seconds, std::int64_t bytes) {
      std::printf("%s\n", fmt::format(R"({{"op": "{}", "inputs": "{} tensors, {} elements", )"
                                      R"("us": {:.2f}, "tbytes_per_s": {:.3f}}})",
                                      what, calls.size(), elements, seconds * 1e6,
                                      static_cast<double>(elements * bytes) / seconds * 1e-12)
                              .c_str());
    };
    tell("gradient norm", median_of([&] { kernels.sums_of_squares(norms); }), 4);
    tell("adamw and bf16 copies",
         median_of([&] { kernels.sweep_all(calls, kernels.sweep("adamw")); }), 30);
  }

  /// Times a function of a stage as the executor submits it: counters, then its kernels, which are
  /// small here, of a kilobyte each. Kernels are submitted as a recorded unit and one by one.
  /// Prints the host's time of the submission, and the total time if the device has no other work.
  void run_stage_function(int kernels) {
    const Case c = make_case(op_set().find("relu"), {.shapes = {{256}}}, DType::Float32);
    const Device::Memory in = device_->alloc(1024), out = device_->alloc(1024);
    const Device::Memory counters = device_->alloc(sizeof(RunCounters));
    device_->queue().upload(in.get(), std::vector<std::byte>(1024).data(), 1024);
    device_->queue().record().wait();
    const auto& rows = on_gpu_ ? cuda_kernels(c.op) : cpu_kernels(c.op);
    const PreparedKernel kernel = rows.front()->prepare(c.desc());
    const void* const ins[] = {in.get()};
    void* const outs[] = {out.get()};
    Queue& queue = device_->queue();
    const RunContext context;
    const auto launches = [&] {
      for (int i = 0; i < kernels; ++i)
        queue.run([&](AddressMap) { kernel.run({ins, outs, nullptr, context}); });
    };
    for (const bool recorded : {true, false}) {
      if (recorded && !queue.records()) continue;
      const auto function = [&] {
        auto* const at = reinterpret_cast<RunCounters*>(counters.get());
        queue.run([&](AddressMap) { device_->kernels().set_counters(at, {}); });
        if (recorded)
          queue.repeat(fmt::format("{} kernels", kernels), launches);
        else
          launches();
      };
      std::vector<double> given, done;
      for (int i = 0; i < 50; ++i) {
        const auto began = std::chrono::steady_clock::now();
        function();
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
        queue.record().wait();
        if (i >= 10) given.push_back(took.count());
      }
      for (int i = 0; i < 7; ++i) {
        const std::int64_t began = queue.record().wait();
        for (int n = 0; n < 20; ++n) function();
        done.push_back(static_cast<double>(queue.record().wait() - began) * 1e-9 / 20);
      }
      std::printf("%s\n",
                  fmt::format(R"({{"op": "stage function, {}", "inputs": "{} kernels of 1 KiB", )"
                              R"("host_us": {:.2f}, "us": {:.2f}}})",
                              recorded ? "a CUDA graph" : "one by one", kernels,
                              middle_of(given) * 1e6, middle_of(done) * 1e6)
                      .c_str());
    }
  }

 private:
  std::vector<const KernelRow*> rows_of(const Case& c) const {
    std::vector<const KernelRow*> taken;
    for (const KernelRow* row : on_gpu_ ? cuda_kernels(c.op) : cpu_kernels(c.op))
      if (row->takes(c.desc())) taken.push_back(row);
    return taken;
  }
  static std::string shapes_of(const Case& c) {
    std::string all;
    for (const TensorType& t : c.inputs) {
      if (!all.empty()) all += ' ';
      all += to_string(t);
    }
    return all;
  }
  static double middle_of(std::vector<double> all) {
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    std::nth_element(all.begin(), middle, all.end());
    return *middle;
  }

  void tell(const Case& c, const KernelRow& row, double flops, const std::vector<const void*>& in,
            const std::vector<void*>& out) {
    std::string why;
    double seconds = 0;
    try {
      const PreparedKernel kernel = row.prepare(c.desc());
      const Device::Memory scratch = device_->alloc(kernel.scratch_bytes);
      const RunContext context{11, 3, 0, true, 1};
      seconds = median_of([&] { kernel.run({in.data(), out.data(), scratch.get(), context}); });
    } catch (const Error& e) {
      why = e.what();
    }
    std::printf("%s\n",
                fmt::format(R"({{"op": "{}", "inputs": "{}", "images": "{}", "row": "{}", )"
                            R"("us": {:.2f}, "tflops": {:.2f}, "problem": "{}"}})",
                            c.op, shapes_of(c), c.images == Layout::Plain ? "plain" : "last",
                            row.implementation, seconds * 1e6,
                            seconds > 0 ? flops / seconds * 1e-12 : 0.0, why)
                    .c_str());
    std::fflush(stdout);
  }

  /// Returns the median time of seven groups of runs. Each group takes 20 ms, or has one run.
  template <class Work>
  double median_of(const Work& work) {
    const auto timed = [&](int times) {
      Queue& queue = device_->queue();
      const std::int64_t began = queue.record().wait();
      for (int i = 0; i < times; ++i) queue.run([&](AddressMap) { work(); });
      return double(queue.record().wait() - began) * 1e-9 / times;
    };
    timed(1);  // the first run makes plans
    const double once = std::max(timed(1), 1e-9);
    const int times = std::clamp(static_cast<int>(0.02 / once), 1, 2000);
    std::vector<double> groups;
    for (int i = 0; i < 7; ++i) groups.push_back(timed(times));
    return middle_of(groups);
  }

  std::unique_ptr<Device> device_;
  bool on_gpu_;
  std::string only_;
};

}  // namespace
}  // namespace hetu::test

int main(int count, char** words) {
  const char* device = "cuda";
  std::string only;
  std::int64_t divided = 1;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (word == "--small") {
      divided = 64;
    } else if (word == "--only" && i + 1 < count) {
      only = words[++i];
    } else if (word.substr(0, 1) != "-") {
      device = words[i];
    } else {
      const bool asked = word == "--help" || word == "-h";
      std::fputs(hetu::test::kUsage, asked ? stdout : stderr);
      return asked ? 0 : 2;
    }
  }
  try {
    std::vector<hetu::test::Case> cases;  // the same cases are valid for all devices
    for (const auto& timed : hetu::test::all_timed(divided))
      cases.push_back(hetu::test::case_of(timed));
    hetu::test::Bench bench(device, only);
    for (const hetu::test::Case& c : cases) bench.run(c);
    if (!only.empty()) return 0;
    bench.run_pool(std::max<std::int64_t>(128 / divided, 1));
    bench.run_update(divided > 1 ? 1 : 24);
    for (const int kernels : {1, 100}) bench.run_stage_function(kernels);
  } catch (const hetu::Error& e) {
    std::fprintf(stderr, "gpu_bench: %s\n", e.what());
    return 1;
  }
}
