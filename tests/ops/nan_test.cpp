// Tests NaN inputs for every operator record, sample and kernel row. A result that is NaN in
// float64 must be NaN in every row, and no operator may turn a NaN into a plausible number.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "ops/registry.h"
#include "tests/ops/samples.h"
#include "tests/ops/tensors.h"

namespace hetu::test {
namespace {

constexpr std::uint64_t kSeed = 20250107;
constexpr std::int64_t kMostElements = 20000;  // The reference rows take minutes for more elements.
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool is_floating(const TensorType& type) {
  return type.dtype == DType::Float32 || type.dtype == DType::Float64 || is_narrow(type.dtype);
}

class NaNs : public testing::TestWithParam<std::string> {
 protected:
  const OpDef& def() const { return op_set().find(GetParam()); }
  RunContext run() const { return {kSeed, 7, 40, true, 4}; }

  // Compares rows on these inputs with the reference row in float64.
  void compare(const Case& c, const std::vector<Tensor>& inputs, const std::string& what) const {
    const std::vector<Tensor> want = in_float64(c, inputs, run());
    for (const KernelRow* row : cpu_kernels(def().name)) {
      if (!row->takes(c.desc())) continue;
      const std::vector<Tensor> got = run_row(*row, c, inputs, run());
      for (std::size_t o = 0; o < got.size(); ++o) {
        std::int64_t lost = 0;
        for (std::int64_t i = 0; i < got[o].count(); ++i)
          lost += std::isnan(want[o].at(i)) && !std::isnan(got[o].at(i)) ? 1 : 0;
        EXPECT_EQ(lost, 0) << fmt::format("{} [{}], {}: NaNs that output {} lost", c.op,
                                          row->implementation, what, o);
      }
    }
  }
};

TEST_P(NaNs, AreInEveryRowWhereFloat64HasThem) {
  std::mt19937_64 random(kSeed);
  for (const DType floats : floats_of(def())) {
    for (const Sample& s : samples_of(def())) {
      const Case c = make_case(def(), s, floats);
      const std::vector<Tensor> numbers = make_inputs(c, s, kSeed);
      std::vector<std::size_t> reals;
      std::int64_t elements = 0;
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        elements += numbers[i].count();
        if (is_floating(c.inputs[i]) && numbers[i].count() > 0) reals.push_back(i);
      }
      if (reals.empty() || elements > kMostElements) continue;
      // one NaN, then an input full of NaN
      for (const bool all : {false, true}) {
        std::vector<Tensor> inputs = numbers;
        const std::size_t i = reals[random() % reals.size()];
        const std::int64_t count = numbers[i].count();
        const auto at = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
        for (std::int64_t j = all ? 0 : at; j < (all ? count : at + 1); ++j) inputs[i].set(j, kNaN);
        compare(c, inputs,
                fmt::format("{}, input {} {}", to_string(c.inputs[i]), i,
                            all ? "all NaN" : fmt::format("NaN at {}", at)));
      }
    }
  }
}

// Operators that return numbers for NaN by definition: counts, signs as in PyTorch, and x to the
// power of 0. Also gradients that are 0 where an input is not positive, and elements that don't
// come from the input.
const std::set<std::string> kGivesNumbers = {"batch_norm_add_relu_grad",
                                             "batch_norm_relu_grad",
                                             "cast",
                                             "count_labels",
                                             "count_samples",
                                             "pad",
                                             "power",
                                             "relu_grad",
                                             "sign",
                                             "top_k_hits"};

// If an element is not 0 for ordinary inputs, it depends on them: it is not masked, dropped or
// padded. The check runs in float64 by the reference rows, with which the other rows were compared.
TEST_P(NaNs, GiveNaNs) {
  if (kGivesNumbers.count(GetParam()) != 0) GTEST_SKIP() << "gives numbers by its definition";
  for (const Sample& s : samples_of(def())) {
    const Case c = make_case(def(), s);
    std::vector<Tensor> inputs = make_inputs(c, s, kSeed);
    std::int64_t elements = 0;
    for (const Tensor& t : inputs) elements += t.count();
    const auto is_empty = [](const Tensor& t) { return t.count() == 0; };
    if (elements > kMostElements || std::any_of(inputs.begin(), inputs.end(), is_empty)) continue;
    const std::vector<Tensor> with_numbers = in_float64(c, inputs, run());
    for (Tensor& t : inputs)
      for (std::int64_t j = 0; is_floating(t.type()) && j < t.count(); ++j) t.set(j, kNaN);
    const std::vector<Tensor> found = in_float64(c, inputs, run());
    // The second output of fused attention is read only by its gradient. One NaN among its two
    // numbers is enough.
    const std::size_t outputs = GetParam() == "fused_attention" ? 1 : found.size();
    for (std::size_t o = 0; o < outputs; ++o) {
      std::int64_t numbers = 0;
      for (std::int64_t i = 0; is_floating(c.outputs[o]) && i < found[o].count(); ++i)
        numbers += with_numbers[o].at(i) != 0 && !std::isnan(found[o].at(i)) ? 1 : 0;
      EXPECT_EQ(numbers, 0) << fmt::format("{}, output {} of {}", c.op, o, to_string(c.inputs[0]));
    }
  }
}

std::vector<std::string> reading_floats() {
  std::vector<std::string> names;
  for (const std::string& name : operators()) {
    const std::vector<Sample> all = samples_of(op_set().find(name));
    const auto reads = [&](const Sample& s) {
      for (std::size_t i = 0; i < s.shapes.size(); ++i)
        if (dtype_of(s, i) == DType::Float32) return true;
      return false;
    };
    if (std::any_of(all.begin(), all.end(), reads)) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Grid, NaNs, testing::ValuesIn(reading_floats()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace hetu::test
