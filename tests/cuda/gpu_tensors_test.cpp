// Updates and sums of squares of many tensors at once on a GPU. They equal the CPU's, and have the
// same bits as separate calls. HETU_GPU_TEST_DEVICE as in gpu_test.cpp.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "executor/stage/stage_memory.h"
#include "ops/optimizer.h"

namespace hetu::test {
namespace {

constexpr unsigned kSeed = 20251125;
constexpr int kTensors = 6;  // weight, gradient, three states, rounded copy
constexpr std::int64_t kElements[] = {0, 1, 3, 2047, 2048, 2049, 129, 20001, 40000, 5, 16384};
constexpr int kParameters = 90;  // more than one launch takes

std::int64_t elements_of(int i) { return kElements[i % std::size(kElements)]; }
/// Returns the distance in floats between the tensors of a parameter. For some parameters, a tensor
/// doesn't begin at a multiple of four.
std::int64_t step_of(int i) { return (elements_of(i) + 7) / 4 * 4 + (i % 4 == 3 ? 1 : 0); }
DType copy_dtype(int i) { return i % 2 == 0 ? DType::BFloat16 : DType::Float16; }

/// Returns all tensors of a parameter, one after the other.
std::vector<float> start_of(int i, bool narrow) {
  std::mt19937 draw(kSeed + static_cast<unsigned>(i));
  std::normal_distribution<float> normal(0, 1);
  const std::int64_t step = step_of(i);
  std::vector<float> all(static_cast<std::size_t>(kTensors * step));
  for (std::int64_t t = 0; t < kTensors - 1; ++t)
    for (std::int64_t k = 0; k < elements_of(i); ++k) {
      const float x = t < 2 ? normal(draw) : std::fabs(normal(draw));
      const BFloat16 rounded(x);
      char* const at = reinterpret_cast<char*>(&all[static_cast<std::size_t>(t * step)]);
      if (narrow && t >= 2)
        std::memcpy(at + 2 * k, &rounded, 2);
      else
        std::memcpy(at + 4 * k, &x, 4);
    }
  return all;
}

SweepCall call_of(const Optimizer& optimizer, int i, bool narrow, float* at) {
  SweepCall c = sweep_call(optimizer, 0.1 / (i + 1), 0.5, 3);
  const std::int64_t step = step_of(i);
  c.weight = at;
  c.gradient = at + step;
  for (int s = 0; s < optimizer_states(optimizer.kind); ++s) {
    float* const state = at + (2 + s) * step;
    if (narrow)
      c.narrow[s] = reinterpret_cast<BFloat16*>(state);
    else
      c.state[s] = state;
  }
  if (narrow) round_states(c, kSeed, "parameter" + std::to_string(i), 3);
  c.rounded = at + 5 * step;
  c.rounded_dtype = copy_dtype(i);
  c.elements = elements_of(i);
  c.decay = i % 3 != 0;
  return c;
}

using Blocks = std::vector<std::vector<float>>;

/// Returns all parameters after an update, which is done in one call or one parameter at a time.
Blocks updated(Device& device, const Optimizer& optimizer, bool narrow, bool at_once) {
  Blocks blocks;
  std::vector<Device::Memory> held;
  std::vector<SweepCall> all;
  for (int i = 0; i < kParameters; ++i) {
    blocks.push_back(start_of(i, narrow));
    const auto bytes = static_cast<std::int64_t>(blocks.back().size() * sizeof(float));
    held.push_back(device.alloc(bytes));
    device.queue().upload(held.back().get(), blocks.back().data(), bytes);
    all.push_back(call_of(optimizer, i, narrow, reinterpret_cast<float*>(held.back().get())));
  }
  const TensorKernels& kernels = device.kernels();
  const Sweep sweep = kernels.sweep(optimizer_name(optimizer.kind));
  device.queue().run([&kernels, sweep, all, at_once](AddressMap at) {
    std::vector<SweepCall> calls;
    for (const SweepCall& call : all) calls.push_back(to_kernel_addresses(call, at));
    if (at_once) return kernels.sweep_all(calls, sweep);
    for (const SweepCall& call : calls) kernels.sweep_all({&call, 1}, sweep);
  });
  for (std::size_t i = 0; i < blocks.size(); ++i)
    device.queue().download(blocks[i].data(), held[i].get(),
                            static_cast<std::int64_t>(blocks[i].size() * sizeof(float)));
  device.queue().record().wait();
  return blocks;
}

bool same_bits(const Blocks& a, const Blocks& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) return false;
  return a.size() == b.size();
}

/// Returns tensor t of parameter i, as numbers.
std::vector<float> numbers(const std::vector<float>& block, int i, int t, bool narrow) {
  const float* const at = block.data() + t * step_of(i);
  std::vector<float> out(at, at + elements_of(i));
  for (std::size_t k = 0; k < out.size(); ++k) {
    std::uint16_t bits;
    std::memcpy(&bits, reinterpret_cast<const char*>(at) + 2 * k, 2);
    if (t == kTensors - 1 && copy_dtype(i) == DType::Float16)
      out[k] = std::bit_cast<Float16>(bits);
    else if (t == kTensors - 1 || (narrow && t >= 2))
      out[k] = std::bit_cast<BFloat16>(bits);
  }
  return out;
}

double apart(const std::vector<float>& got, const std::vector<float>& want) {
  double difference = 0, norm = 1e-30;
  for (std::size_t k = 0; k < want.size(); ++k) {
    difference += std::pow(double{got[k]} - want[k], 2);
    norm += std::pow(double{want[k]}, 2);
  }
  return std::sqrt(difference / norm);
}

class GpuTensors : public testing::Test {
 protected:
  void SetUp() override {
    const char* const other = std::getenv("HETU_GPU_TEST_DEVICE");
    const std::string name = other != nullptr ? other : "cuda";
    if (name == "cuda" && !cuda_problem().empty()) GTEST_SKIP() << cuda_problem();
    device_ = open_device(name);
  }
  std::unique_ptr<Device> device_, cpu_ = open_device("cpu");
};

// Where the last digit of a float32 differs, some values are rounded in the other direction.
TEST_F(GpuTensors, UpdatesOfManyAreTheCpus) {
  for (int kind = 0; kind < kOptimizerKinds; ++kind)
    for (const bool narrow : {false, true}) {
      Optimizer optimizer;
      optimizer.kind = static_cast<Optimizer::Kind>(kind);
      optimizer.epsilon = 1e-3;
      if (narrow && optimizer_states(optimizer.kind) == 0) continue;
      const char* const name = optimizer_name(optimizer.kind);
      const Blocks want = updated(*cpu_, optimizer, narrow, true);
      const Blocks got = updated(*device_, optimizer, narrow, true);
      EXPECT_TRUE(same_bits(got, updated(*device_, optimizer, narrow, false))) << name;
      for (int i = 0; i < kParameters; ++i)
        for (int t = 0; t < kTensors; ++t) {
          const bool rounded = t == kTensors - 1 || (narrow && t >= 2);
          EXPECT_LE(apart(numbers(got[i], i, t, narrow), numbers(want[i], i, t, narrow)),
                    rounded || narrow ? 1e-2 : 1e-5)
              << name << ", parameter " << i << ", tensor " << t;
        }
    }
}

/// Returns the sums of squares of tensors that follow each other in memory.
std::vector<double> squares(Device& device, const std::vector<float>& x, bool at_once) {
  const auto bytes = static_cast<std::int64_t>(x.size() * sizeof(float));
  const Device::Memory values = device.alloc(bytes), room = device.alloc(kParameters * 8 * 3);
  std::vector<SquaresCall> all;
  device.queue().upload(values.get(), x.data(), bytes);
  const float* at = reinterpret_cast<const float*>(values.get());
  for (int i = 0; i < 3 * kParameters; at += elements_of(i++))
    all.push_back({at, elements_of(i), reinterpret_cast<double*>(room.get()) + i});
  device.queue().run([all, at_once, sums = device.kernels().sums_of_squares](AddressMap addresses) {
    std::vector<SquaresCall> calls = all;
    for (SquaresCall& call : calls)
      call = {addresses(call.x), call.elements, addresses(call.result)};
    if (at_once) return sums(calls);
    for (const SquaresCall& call : calls) sums({&call, 1});
  });
  std::vector<double> results(all.size());
  device.queue().download(results.data(), room.get(),
                          static_cast<std::int64_t>(results.size() * sizeof(double)));
  device.queue().record().wait();
  return results;
}

TEST_F(GpuTensors, SquaresOfManyAreTheCpus) {
  std::int64_t all = 0;
  for (int i = 0; i < 3 * kParameters; ++i) all += elements_of(i);
  std::mt19937 draw(kSeed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> x(static_cast<std::size_t>(all));
  for (float& one : x) one = normal(draw);
  const std::vector<double> want = squares(*cpu_, x, true), got = squares(*device_, x, true);
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-12 * want[i]) << "tensor " << i << ", seed " << kSeed;
  EXPECT_EQ(squares(*device_, x, false), got);
}

}  // namespace
}  // namespace hetu::test
