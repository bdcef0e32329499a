// The CUDA kernels' arithmetic, on the host: the sources that nvcc compiles for the GPU, compiled
// with threads as loops (tests/ops/on_host), over the operator grid. And their table: what has a
// row, what has none, and why.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <set>

#include "graph/base/error.h"
#include "ops/cuda/registry.h"
#include "ops/registry.h"
#include "tests/ops/on_host/bench.h"
#include "tests/ops/samples.h"
#include "tests/ops/tensors.h"

namespace hetu::test {
namespace {

constexpr std::uint64_t kSeed = 20251125;

/// Of float32 rounding in the formula of an element, and of one rounding to bfloat16.
double tolerance(DType output) { return output == DType::BFloat16 ? 1.0 / 256 : 1e-6; }

class CudaRows : public testing::TestWithParam<std::string> {
 protected:
  const OpDef& def() const { return op_set().find(GetParam()); }
};

TEST(CudaTable, EveryOperatorHasARowOrAReason) {
  std::map<std::string, std::set<std::string>> without;
  int rows = 0;
  for (const std::string& op : operators()) {
    const std::string why = cuda_gap(op);
    EXPECT_NE(cuda_kernels(op).empty(), why.empty())
        << op << (why.empty() ? " has neither a row nor a reason" : " has a row and a reason");
    if (why.empty())
      ++rows;
    else
      without[why].insert(op);
  }
  std::cout << rows << " operators have CUDA rows\n";
  for (const auto& [why, ops] : without)
    std::cout << ops.size() << " have none, " << why << ": "
              << fmt::format("{}", fmt::join(ops, ", ")) << "\n";
}

TEST(CudaTable, AnOperatorWithoutARowIsRefusedInOneLine) {
  KernelDesc d;
  d.op = "conv2d";
  d.name = "layer1/conv";
  try {
    prepare_cuda(d);
    FAIL() << "prepared";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Unsupported);
    EXPECT_STREQ(e.what(),
                 "--device cuda: conv2d 'layer1/conv' has no CUDA kernel (images go through cuDNN, "
                 "which is to come); use --device cpu");
  }
}

TEST_P(CudaRows, AgreesWithFloat64) {
  const HostBench host;
  const RunContext run{kSeed, 7, 40, true, 4};
  for (const DType floats : floats_of(def()))
    for (const Sample& s : samples_of(def())) {
      const Case c = make_case(def(), s, floats);
      if (has_float16(c)) continue;
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
        for (std::size_t i = 0; i < got.size(); ++i) {
          EXPECT_LE(relative_difference(got[i].values(), want[i].values()),
                    tolerance(got[i].type().dtype))
              << "output " << i;
          EXPECT_TRUE(got[i].same_bits(again[i])) << "output " << i << " is not written whole";
        }
      }
      EXPECT_GT(taken, 0) << "no row takes it";
    }
  EXPECT_EQ(host.fault().taken, 0) << "an index was called bad";
}

std::vector<std::string> with_rows() {
  std::vector<std::string> names;
  for (const std::string& op : operators())
    if (!cuda_kernels(op).empty()) names.push_back(op);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Ops, CudaRows, testing::ValuesIn(with_rows()),
                         [](const auto& one) { return one.param; });

// A bad index is told with what the CPU's message says, and reads nothing.
TEST(CudaIndices, ABadOneIsNoted) {
  const HostBench host;
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

}  // namespace
}  // namespace hetu::test
