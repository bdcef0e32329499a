// Tests the TensorKernels of CUDA on the host against the CPU's: every sweep of every optimizer,
// sums, and operations on touched rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <random>
#include <vector>

#include "base/float16.h"
#include "ops/cuda/registry.h"
#include "ops/optimizer.h"
#include "ops/tensor_kernels.h"
#include "tests/ops/on_host/kernel_context.h"

namespace hetu::test {
namespace {

constexpr unsigned kSeed = 20251125;
constexpr std::int64_t kSizes[] = {1, 17, 8193, 100003};
constexpr std::int64_t kWidth = 5;

std::vector<float> numbers(std::int64_t count, unsigned seed, bool positive = false) {
  std::mt19937 draw(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> out(static_cast<std::size_t>(count));
  for (float& x : out) x = positive ? std::fabs(normal(draw)) : normal(draw);
  return out;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want, const char* what,
                 double tolerance = 1e-6) {
  double apart = 0, norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    apart += std::pow(double(got[i]) - want[i], 2);
    norm += std::pow(double(want[i]), 2);
  }
  EXPECT_LE(std::sqrt(apart), tolerance * std::sqrt(norm)) << what << ", seed " << kSeed;
}

struct Parameter {
  std::vector<float> weight, gradient, state[kMostStates];
  std::vector<BFloat16> narrow[kMostStates];
  explicit Parameter(std::int64_t n) : weight(numbers(n, kSeed)), gradient(numbers(n, kSeed + 1)) {
    for (int i = 0; i < kMostStates; ++i) {
      state[i] = numbers(n, kSeed + 2 + unsigned(i), true);
      for (const float x : state[i]) narrow[i].push_back(BFloat16(x));
    }
  }
  SweepCall narrow_call() {
    SweepCall c = call(true);
    for (int i = 0; i < kMostStates; ++i) c.state[i] = nullptr, c.narrow[i] = narrow[i].data();
    c.first = 77;
    round_states(c, kSeed, "parameter", c.update);
    return c;
  }
  SweepCall call(bool decay) {
    SweepCall c;
    c.weight = weight.data();
    c.gradient = gradient.data();
    for (int i = 0; i < kMostStates; ++i) c.state[i] = state[i].data();
    c.elements = static_cast<std::int64_t>(weight.size());
    c.decay = decay;
    c.factor = 0.5F;
    c.rate = 0.1F;
    c.update = 3;
    c.momentum = 0.9;
    c.beta1 = 0.9;
    c.beta2 = 0.99;
    c.epsilon = 1e-3;
    c.l2 = 0.01;
    c.weight_decay = 0.02;
    return c;
  }
};

// If float32 values differ in the last digit, some of them round to the other side.
void expect_same_narrow(const Parameter& got, const Parameter& want, const char* what) {
  expect_near(got.weight, want.weight, what, 1e-4);
  for (int i = 0; i < kMostStates; ++i)
    expect_near({got.narrow[i].begin(), got.narrow[i].end()},
                {want.narrow[i].begin(), want.narrow[i].end()}, what, 1e-4);
}

void expect_same(const Parameter& got, const Parameter& want, const char* what,
                 double tolerance = 1e-6) {
  expect_near(got.weight, want.weight, what, tolerance);
  for (int i = 0; i < kMostStates; ++i) expect_near(got.state[i], want.state[i], what, tolerance);
}

TEST(CudaTensors, CountersAreSet) {
  const HostKernelContext host;
  for (const TensorKernels* kernels : {&cpu_tensor_kernels(), &cuda_tensor_kernels()}) {
    RunCounters counters;
    kernels->set_counters(&counters, {7, 40});
    EXPECT_EQ(counters.step, 7);
    EXPECT_EQ(counters.sample_offset, 40);
  }
}

TEST(CudaTensors, SweepsAreTheCpus) {
  const HostKernelContext host;
  const TensorKernels &cpu = cpu_tensor_kernels(), &cuda = cuda_tensor_kernels();
  ASSERT_EQ(cuda.sweep_count, cpu.sweep_count);
  for (int i = 0; i < cpu.sweep_count; ++i) {
    const std::string name(cpu.sweeps[i].optimizer);
    const Sweep sweep = cuda.sweep(name);
    ASSERT_NE(sweep, nullptr) << name;
    for (const std::int64_t n : kSizes)
      for (const bool decay : {true, false}) {
        Parameter a(n), b(n);
        cpu.sweeps[i].run(a.call(decay));
        sweep(b.call(decay));
        expect_same(b, a, name.c_str());
      }
  }
}

TEST(CudaTensors, SweepsOverNarrowStatesAreTheCpus) {
  const HostKernelContext host;
  const TensorKernels &cpu = cpu_tensor_kernels(), &cuda = cuda_tensor_kernels();
  for (int i = 0; i < cpu.sweep_count; ++i) {
    const std::string name(cpu.sweeps[i].optimizer);
    for (const std::int64_t n : kSizes) {
      Parameter a(n), b(n);
      cpu.sweeps[i].run(a.narrow_call());
      cuda.sweep(name)(b.narrow_call());
      expect_same_narrow(b, a, name.c_str());
    }
  }
}

/// Several tensors in one call, with no, few and many elements, and chunks that are full, one
/// element short and one element over. Some tensors start at addresses that are not aligned to a
/// quad. Two of three have a rounded copy.
struct Several {
  static constexpr std::uint16_t kUntouched = 0x1234;
  struct Shifts {
    std::size_t weight, gradient, state[kMostStates], rounded;
  };
  std::vector<Parameter> parameters;
  std::vector<std::vector<std::uint16_t>> rounded;
  std::vector<Shifts> shifts;

  explicit Several(int count) {
    constexpr std::int64_t kElements[] = {0, 1, 3, 2048, 5, 2047, 129, 2049, 8197, 0, 128, 6144};
    std::mt19937 draw(kSeed);
    const auto shift = [&](unsigned below) { return draw() % 4 == 0 ? draw() % below : 0; };
    for (int i = 0; i < count; ++i) {
      const std::int64_t n = kElements[draw() % std::size(kElements)];
      parameters.emplace_back(n + 1);
      rounded.emplace_back(static_cast<std::size_t>(n + 4), kUntouched);
      shifts.push_back({shift(2), shift(2), {shift(2), shift(2), shift(2)}, shift(4)});
    }
  }

  std::vector<SweepCall> calls(bool narrow) {
    std::vector<SweepCall> all;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      Parameter& p = parameters[i];
      SweepCall c = narrow && i % 5 != 0 ? p.narrow_call() : p.call(true);
      c.weight += shifts[i].weight;
      c.gradient += shifts[i].gradient;
      for (int s = 0; s < kMostStates; ++s) {
        if (c.narrow[s] != nullptr)
          c.narrow[s] += shifts[i].state[s];
        else
          c.state[s] += shifts[i].state[s];
      }
      c.elements -= 1;
      c.decay = i % 4 != 0;
      c.rounded = i % 3 != 0 ? rounded[i].data() + shifts[i].rounded : nullptr;
      c.rounded_dtype = i % 3 == 1 ? DType::BFloat16 : DType::Float16;
      c.rate = 0.1F / static_cast<float>(i + 1);
      all.push_back(c);
    }
    return all;
  }

  /// Returns the rounded copies that the weights of `calls` require.
  std::vector<std::vector<std::uint16_t>> wanted(const std::vector<SweepCall>& calls) const {
    std::vector<std::vector<std::uint16_t>> all = rounded;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      std::fill(all[i].begin(), all[i].end(), kUntouched);
      for (std::int64_t k = 0; i % 3 != 0 && k < calls[i].elements; ++k)
        all[i][shifts[i].rounded + static_cast<std::size_t>(k)] =
            i % 3 == 1 ? BFloat16(calls[i].weight[k]).bits : Float16(calls[i].weight[k]).bits;
    }
    return all;
  }
};

TEST(CudaTensors, CopiesOfManyGoEachToItsPlaceAndNoFurther) {
  const HostKernelContext host;
  constexpr std::int64_t kElements[] = {0, 1, 255, 256, 257, 1000};
  constexpr int kCount = 300;  // more than one launch takes
  for (const TensorKernels* kernels : {&cpu_tensor_kernels(), &cuda_tensor_kernels()}) {
    std::vector<std::vector<float>> from, to, want;
    std::vector<CopyCall> calls;
    for (int i = 0; i < kCount; ++i) {
      const std::int64_t n = kElements[static_cast<std::size_t>(i) % std::size(kElements)];
      to.emplace_back(n + 1, -1.0F);
      for (std::int64_t k = 0; k < n; ++k) to[i][k] = 0;
      want.push_back(to[i]);
      from.emplace_back(n);
      for (std::int64_t k = 0; k < n; ++k)
        want[i][k] = from[i][k] = static_cast<float>(i) + static_cast<float>(k) / 1024;
    }
    for (int i = 0; i < kCount; ++i)
      calls.push_back({to[i].data(), from[i].data(), static_cast<std::int64_t>(from[i].size())});
    calls.push_back({to[1].data(), to[1].data(), 1});  // a copy onto itself
    kernels->copy_all(calls);
    EXPECT_EQ(to, want);
  }
}

TEST(CudaTensors, SeveralSweepsAtOnceAreThoseOfEachAlone) {
  const HostKernelContext host;
  const TensorKernels &cpu = cpu_tensor_kernels(), &cuda = cuda_tensor_kernels();
  constexpr int kCount = 75;  // more than one launch takes
  for (int i = 0; i < cpu.sweep_count; ++i)
    for (const bool narrow : {false, true}) {
      const std::string name(cpu.sweeps[i].optimizer);
      Several together(kCount), alone(kCount), of_cpu(kCount);
      cuda.sweep_all(together.calls(narrow), cuda.sweep(name));
      for (const SweepCall& call : alone.calls(narrow)) cuda.sweep(name)(call);
      cpu.sweep_all(of_cpu.calls(narrow), cpu.sweep(name));
      EXPECT_EQ(together.rounded, together.wanted(together.calls(narrow))) << name;
      EXPECT_EQ(of_cpu.rounded, of_cpu.wanted(of_cpu.calls(narrow))) << name;
      for (int p = 0; p < kCount; ++p) {
        const Parameter &got = together.parameters[p], &want = alone.parameters[p];
        EXPECT_EQ(got.weight, want.weight) << name << ", parameter " << p;
        for (int s = 0; s < kMostStates; ++s) {
          EXPECT_EQ(got.state[s], want.state[s]) << name << ", parameter " << p;
          EXPECT_EQ(std::vector<float>(got.narrow[s].begin(), got.narrow[s].end()),
                    std::vector<float>(want.narrow[s].begin(), want.narrow[s].end()))
              << name << ", parameter " << p;
        }
        expect_same(got, of_cpu.parameters[p], name.c_str(), narrow ? 1e-4 : 1e-6);
        expect_same_narrow(got, of_cpu.parameters[p], name.c_str());
      }
    }
}

/// Returns the sums of squares of tensors that lie one after the other in `x`, so that few are
/// aligned.
std::vector<double> squares(const TensorKernels& kernels, const std::vector<float>& x,
                            const std::vector<std::int64_t>& sizes, bool at_once) {
  std::vector<double> results(sizes.size(), -1);
  std::vector<SquaresCall> calls;
  const float* at = x.data();
  for (std::size_t i = 0; i < sizes.size(); at += sizes[i++])
    calls.push_back({at, sizes[i], &results[i]});
  if (at_once)
    kernels.sums_of_squares(calls);
  else
    for (const SquaresCall& call : calls) kernels.sums_of_squares({&call, 1});
  return results;
}

TEST(CudaTensors, SquaresOfSeveralAreTheCpusAndThoseOfEachAlone) {
  const HostKernelContext host;
  const TensorKernels &cpu = cpu_tensor_kernels(), &cuda = cuda_tensor_kernels();
  std::vector<std::int64_t> sizes = {100003, 0, 1, 8191, 8192, 8193, 4096, 17, 3, 24576, 2, 16383};
  for (int i = 0; i < 250; ++i) sizes.push_back(i % 7);  // more than one launch takes
  std::vector<float> x = numbers(300000, kSeed);
  // makes the result sensitive to the order of additions
  for (float& one : x) one = std::pow(one, 9.0F);
  const std::vector<double> want = squares(cpu, x, sizes, true);
  const std::vector<double> got = squares(cuda, x, sizes, true);
  for (std::size_t i = 0; i < sizes.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-12 * want[i]) << sizes[i] << " elements, seed " << kSeed;
  EXPECT_EQ(squares(cuda, x, sizes, false), got);
  // The address of a tensor changes no bit of its sum.
  const std::vector<float> moved(x.begin() + 2, x.end());
  const std::vector<double> here = squares(cuda, {x.begin() + 5, x.end()}, {200000}, true);
  EXPECT_EQ(squares(cuda, moved, {3, 200000}, true)[1], here[0]);
}

TEST(CudaTensors, SquaresOfWhatIsNotFiniteAreNot) {
  const HostKernelContext host;
  std::vector<float> x = numbers(60000, kSeed);
  x[100] = std::numeric_limits<float>::infinity();
  x[40001] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<double> got =
      squares(cuda_tensor_kernels(), x, {100, 20000, 19901, 1, 19000}, true);
  EXPECT_TRUE(std::isfinite(got[0]) && std::isfinite(got[2]) && std::isfinite(got[4]));
  EXPECT_TRUE(std::isinf(got[1]) && std::isnan(got[3]));
}

/// A table with a third of its rows touched. Some touched rows have no gradient.
struct Table {
  std::int64_t rows;
  std::vector<float> values;
  std::vector<std::uint64_t> bits;
  explicit Table(std::int64_t count, unsigned seed)
      : rows(count),
        values(static_cast<std::size_t>(count * kWidth)),
        bits(static_cast<std::size_t>(TouchedRows::words_of(count))) {
    const std::vector<float> filled = numbers(count * kWidth, seed);
    for (std::int64_t r = seed % 3; r < count; r += 3) {
      touched().touch(r);
      for (std::int64_t j = 0; r % 2 == 0 && j < kWidth; ++j)
        values[r * kWidth + j] = filled[r * kWidth + j];
    }
  }
  TouchedRows touched() { return {bits.data(), rows, kWidth}; }
};

TEST(CudaTensors, RowSweepsAreTheCpus) {
  const HostKernelContext host;
  const TensorKernels &cpu = cpu_tensor_kernels(), &cuda = cuda_tensor_kernels();
  for (int i = 0; i < cpu.sweep_count; ++i) {
    const std::string name(cpu.sweeps[i].optimizer);
    // Its elements depend on each other, so ops/tensor_kernels.h defines no rows for it.
    if (name == "lamb") continue;
    Table gradient(201, 4);
    Parameter a(201 * kWidth), b(201 * kWidth);
    a.gradient = b.gradient = gradient.values;
    cpu.sweep_rows(a.call(true), gradient.touched(), cpu.sweep(name));
    cuda.sweep_rows(b.call(true), gradient.touched(), cuda.sweep(name));
    expect_same(b, a, name.c_str());
    EXPECT_NE(a.weight, Parameter(201 * kWidth).weight) << name << " changed nothing";
    cpu.sweep_rows(a.narrow_call(), gradient.touched(), cpu.sweep(name));
    cuda.sweep_rows(b.narrow_call(), gradient.touched(), cuda.sweep(name));
    expect_same_narrow(b, a, name.c_str());
  }
}

TEST(CudaTensors, RowsAreTheCpusBitForBit) {
  const HostKernelContext host;
  const TensorKernels* const both[] = {&cpu_tensor_kernels(), &cuda_tensor_kernels()};
  std::vector<Table> made[2];
  for (int i = 0; i < 2; ++i) {
    const TensorKernels& k = *both[i];
    Table to(201, 4), from(201, 5), cleared(201, 6), found(201, 7);
    const std::vector<std::int32_t> ids = {3, 200, 3, 64, 63, 3};
    const std::vector<float> values = numbers(6 * kWidth, kSeed);
    k.scatter_rows(to.values.data(), to.touched(), {ids.data(), values.data(), 6});
    k.merge_rows(to.values.data(), to.touched(), from.values.data(), from.touched());
    k.clear_rows(cleared.values.data(), cleared.touched());
    std::fill(found.bits.begin(), found.bits.end(), 0);
    k.touch_filled(found.values.data(), found.touched());
    made[i] = {to, from, cleared, found};
  }
  for (std::size_t t = 0; t < made[0].size(); ++t) {
    EXPECT_EQ(made[1][t].values, made[0][t].values) << "table " << t;
    EXPECT_EQ(made[1][t].bits, made[0][t].bits) << "table " << t;
  }
}

// There are more rows than a part holds, with few and with many distinct numbers.
TEST(CudaTensors, ManyRowsAreAddedPartByPart) {
  const HostKernelContext host;
  constexpr std::int64_t kRows = 333;
  for (const int numbers_there : {2, 50, 201}) {
    std::vector<std::int32_t> ids(kRows);
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(numbers_there));
    const std::vector<float> values = numbers(kRows * kWidth, kSeed);
    Table want(201, 4), got(201, 4);
    cpu_tensor_kernels().scatter_rows(want.values.data(), want.touched(),
                                      {ids.data(), values.data(), kRows});
    cuda_tensor_kernels().scatter_rows(got.values.data(), got.touched(),
                                       {ids.data(), values.data(), kRows});
    expect_near(got.values, want.values, "rows", 1e-5);
    EXPECT_EQ(got.bits, want.bits) << numbers_there;
  }
}

TEST(CudaTensors, SumsAndMeansAreTheCpus) {
  const HostKernelContext host;
  const TensorKernels &cpu = cpu_tensor_kernels(), &cuda = cuda_tensor_kernels();
  for (const std::int64_t n : kSizes) {
    const std::vector<float> x = numbers(n, kSeed), y = numbers(n, kSeed + 1);
    const auto after = [&](const TensorKernels& k) {
      std::vector<float> to = x;
      std::vector<double> sum(x.size(), 0.25);
      k.add(to.data(), y.data(), n);
      k.add(to.data() + 1, y.data(), n - 1);
      k.add_difference(to.data(), x.data(), y.data(), n);
      k.scale(to.data(), 1.0F / 3, n);
      k.add_wide(sum.data(), to.data(), n);
      k.mean(to.data(), sum.data(), 3, n);
      return to;
    };
    EXPECT_EQ(after(cuda), after(cpu)) << n;
    std::vector<float> filled(x.size(), 2);
    cuda.fill(filled.data(), 7, n);
    EXPECT_EQ(filled, std::vector<float>(x.size(), 7)) << n;
  }
  Table t(201, 4);
  double want = 0, got = 0;
  cpu.sum_of_squares_rows(t.values.data(), t.touched(), &want);
  cuda.sum_of_squares_rows(t.values.data(), t.touched(), &got);
  EXPECT_NEAR(got, want, 1e-12 * want);
}

}  // namespace
}  // namespace hetu::test
