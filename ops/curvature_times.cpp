#include "ops/curvature_times.h"

#include <chrono>
#include <functional>
#include <memory>
#include <random>

#include "base/error.h"
#include "ops/registry.h"
#include "ops/tensor_kernels.h"

namespace hetu {
namespace {

constexpr double kDamping = 1e-3;

// float32 memory with the alignment that kernels require.
class Numbers {
 public:
  explicit Numbers(std::int64_t count)
      : room_(static_cast<std::size_t>(count) + kAlignment / sizeof(float), 0.0F) {}
  float* data() {
    const auto address = reinterpret_cast<std::uintptr_t>(room_.data());
    return room_.data() + (kAlignment - address % kAlignment) % kAlignment / sizeof(float);
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  std::vector<float> room_;
};

Numbers drawn(std::int64_t count, unsigned seed) {
  Numbers numbers(count);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < count; ++i) numbers.data()[i] = normal(random);
  return numbers;
}

void check(const std::vector<LinearSides>& layers, std::int64_t rows, const TimedRuns& runs) {
  require(!layers.empty(), "there is no linear layer to time");
  for (const LinearSides& l : layers)
    require(l.inputs >= 1 && l.outputs >= 1,
            "the sides of a layer must be at least 1, got {} and {}", l.inputs, l.outputs);
  require(rows >= 1 && runs.timed >= 1 && runs.warm_up >= 0,
          "at least 1 row and 1 timed run are needed, got {} and {}", rows, runs.timed);
}

std::vector<double> timed(const TimedRuns& runs, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> ms;
  for (int i = 0; i < runs.warm_up + runs.timed; ++i) {
    const Clock::time_point begin = Clock::now();
    work();
    const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
    if (i >= runs.warm_up) ms.push_back(took.count());
  }
  return ms;
}

// The kernel of one factor with its inputs and outputs.
struct FactorRun {
  FactorRun(std::int64_t rows, std::int64_t side, unsigned seed)
      : x(drawn(rows * side, seed)), unread(side * side), y(side * side) {
    const TensorType square{DType::Float32, {side, side}};
    KernelDesc desc;
    desc.op = "kronecker_factor";
    desc.name = "factor";
    desc.inputs = {{DType::Float32, {rows, side}}, square};
    desc.outputs = {square};
    desc.attrs = &attrs;
    kernel = prepare_cpu(desc);
    scratch = Numbers(kernel.scratch_bytes / static_cast<std::int64_t>(sizeof(float)) + 1);
  }
  void run() {
    const void* inputs[] = {x.data(), unread.data()};
    void* outputs[] = {y.data()};
    kernel.run({inputs, outputs, scratch.data(), context});
  }

  Attrs attrs;
  Numbers x, unread, y, scratch{0};
  PreparedKernel kernel;
  RunContext context;
};

}  // namespace

std::vector<double> time_factors(const std::vector<LinearSides>& layers, std::int64_t rows,
                                 const TimedRuns& runs) {
  check(layers, rows, runs);
  std::vector<std::unique_ptr<FactorRun>> factors;
  unsigned seed = 0;
  for (const LinearSides& l : layers)
    for (const std::int64_t side : {l.inputs, l.outputs})
      factors.push_back(std::make_unique<FactorRun>(rows, side, ++seed));
  return timed(runs, [&] {
    for (const auto& factor : factors) factor->run();
  });
}

CurvatureTimes time_inverses(const std::vector<LinearSides>& layers, const TimedRuns& runs) {
  check(layers, 1, runs);
  struct Layer {
    Numbers input_sum, gradient_sum, input_inverse, gradient_inverse, weight, bias;
    KroneckerCall call;
  };
  std::vector<Layer> all;
  const auto factor = [](std::int64_t side, unsigned seed) {
    // Twice as many rows as the side, so that the factor has full rank.
    FactorRun run(2 * side, side, seed);
    run.run();
    return std::move(run.y);
  };
  unsigned seed = 0;
  for (const LinearSides& l : layers) {
    const std::int64_t in = l.inputs, out = l.outputs;
    all.push_back({factor(in, ++seed),
                   factor(out, ++seed),
                   Numbers(in * in),
                   Numbers(out * out),
                   drawn(in * out, ++seed),
                   drawn(out, ++seed),
                   {}});
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    KroneckerCall& c = all[i].call;
    c.inputs = layers[i].inputs;
    c.outputs = layers[i].outputs;
    c.damping = kDamping;
    c.input_scale = 0.5 / static_cast<double>(c.inputs);
    c.gradient_scale = 0.5 / static_cast<double>(c.outputs);
    c.input_sum = all[i].input_sum.data();
    c.gradient_sum = all[i].gradient_sum.data();
    c.input_inverse = all[i].input_inverse.data();
    c.gradient_inverse = all[i].gradient_inverse.data();
  }
  const TensorKernels& kernels = cpu_tensor_kernels();
  std::int64_t bytes = 0;
  for (const LinearSides& l : layers)
    bytes = std::max(bytes, kernels.factor_scratch(l.inputs, l.outputs));
  Numbers scratch(bytes / 4);
  for (Layer& l : all) l.call.scratch = scratch.data();
  CurvatureTimes times;
  times.inversion = timed(runs, [&] {
    for (const Layer& l : all) kernels.invert_factors(l.call);
  });
  times.precondition = timed(runs, [&] {
    for (Layer& l : all) {
      kernels.precondition(l.weight.data(), l.call.outputs, l.call.inputs, l.call.gradient_inverse,
                           l.call.input_inverse, scratch.data());
      kernels.precondition(l.bias.data(), l.call.outputs, 1, l.call.gradient_inverse, nullptr,
                           scratch.data());
    }
  });
  return times;
}

}  // namespace hetu
