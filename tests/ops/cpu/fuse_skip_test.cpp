// Gradients along skip connections must have the same bits with and without fusion. The tests use
// the image layout that the executor chooses, in float32 and in narrow dtypes.
#include "graph/passes/fuse_skip.h"

#include <gmock/gmock.h>
#include <omp.h>

#include "graph/passes/channels_last.h"
#include "graph/passes/dead.h"
#include "graph/passes/fuse_norm.h"
#include "graph/passes/mixed_precision.h"
#include "ops/cpu/dnnl_product.h"
#include "ops/registry.h"
#include "tests/executor/conv_model.h"
#include "tests/ops/tensors.h"

namespace hetu::test {
namespace {

constexpr unsigned kSeed = 47;
constexpr std::int64_t kSamples = 3;
const RunContext kRun = {kSeed, 7, 40, true};

using testing_model::conv_norm;

ValueId relu(Builder& b, ValueId x) { return b.apply("relu", {x}); }

/// Returns a ResNet-50 block on x with 24 channels. The skip is a convolution if `down` is set, and
/// x itself otherwise.
ValueId bottleneck(Builder& b, ValueId x, bool down, const std::string& name) {
  ValueId y = relu(b, conv_norm(b, x, 8, 1, 1, name + ".conv1"));
  y = relu(b, conv_norm(b, y, 8, 3, 1, name + ".conv2"));
  y = conv_norm(b, y, 24, 1, 1, name + ".conv3");
  const ValueId skip = down ? conv_norm(b, x, 24, 1, 1, name + ".down") : x;
  return relu(b, b.apply("add", {y, skip}));
}

/// Returns consecutive blocks, with or without cuts between them; loss = sum(y * r).
Graph model(bool cuts) {
  Builder b(op_set());
  const Shape shape = {kBatch, 24, 21, 17};
  ValueId x = relu(b, conv_norm(b, b.placeholder("x", DType::Float32, shape), 24, 3, 1, "stem"));
  int blocks = 0;
  for (const bool down : {true, false, false}) {
    if (cuts) b.cut();
    x = bottleneck(b, x, down, "block" + std::to_string(blocks++));
  }
  b.fetch("y", x);
  b.differentiate(b.apply("sum", {b.apply("mul", {x, b.placeholder("r", DType::Float32, shape)})}));
  return remove_dead(fuse_norm(b.finish()));
}

int count(const Graph& g, const std::string& op) {
  return static_cast<int>(
      std::count_if(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.op == op; }));
}

/// Returns y, then the gradients of all parameters. The batch is bound, so that every kernel sees
/// one sample.
std::vector<Tensor> results(Graph g, KernelChoice choice) {
  for (Value& v : g.values) v.type.shape = bind_batch(v.type.shape, kSamples);
  std::mt19937_64 random(kSeed);
  std::map<ValueId, Tensor> feeds;
  for (const ValueId v : g.placeholders) feeds[v] = random_tensor(g.values[v].type, random);
  for (const Parameter& p : g.parameters)
    feeds[p.value] = random_tensor(g.values[p.value].type, random);
  for (const StateBuffer& s : g.buffers)
    feeds[s.value] = random_tensor(g.values[s.value].type, random, 2, false, true);
  const auto values = evaluate(g, feeds, DType::Float32, choice, kRun);
  std::vector<Tensor> found = {values.at(g.fetches.at(0).second)};
  for (const GradientUse& u : g.gradients) found.push_back(values.at(u.gradient));
  return found;
}

void expect_same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].same_bits(b[i])) << i;
}

TEST(FuseSkip, GivesTheBitsOfWhatItJoins) {
  const int before = omp_get_max_threads();
  const Graph apart = channels_last(model(false), op_set());
  const Graph joined = channels_last(fuse_skip(model(false)), op_set());
  check_types(op_set(), joined);
  EXPECT_EQ(count(joined, "batch_norm_add_relu_grad"), 2);
  EXPECT_EQ(count(joined, "batch_norm_grad"), 2) << "beside a block, and of the last one";
  EXPECT_EQ(count(joined, "relu_grad"), 1) << "of the last block, where no two gradients meet";
  EXPECT_EQ(count(joined, "add"), 1) << "before the first block";
  const auto wanted = results(apart, KernelChoice::Best);
  for (const int threads : {1, 3}) {
    omp_set_num_threads(threads);
    expect_same_bits(results(joined, KernelChoice::Best), wanted);
  }
  omp_set_num_threads(before);
  expect_same_bits(results(fuse_skip(model(false)), KernelChoice::Reference),
                   results(model(false), KernelChoice::Reference));
}

// As in the executor, the graph is fused first and then narrowed.
TEST(FuseSkip, GivesTheBitsOfWhatItJoinsInBfloat16) {
  if (const std::string lacks = cpu::lacks_for_bfloat16(); !lacks.empty())
    GTEST_SKIP() << "this processor has no " << lacks
                 << ", and kernels that widen do not round what they join";
  const auto narrow = [](const Graph& g) {
    return mixed_precision(channels_last(g, op_set()), op_set(), DType::BFloat16);
  };
  expect_same_bits(results(narrow(fuse_skip(model(false))), KernelChoice::Best),
                   results(narrow(model(false)), KernelChoice::Best));
}

TEST(FuseSkip, DoesNotDependOnCuts) {
  const Graph cut = fuse_skip(model(true)), whole = fuse_skip(model(false));
  for (const char* op : {"batch_norm_add_relu_grad", "add", "relu_grad"})
    EXPECT_EQ(count(cut, op), count(whole, op)) << op;
  EXPECT_EQ(print_graph(fuse_skip(whole)), print_graph(whole));
}

}  // namespace
}  // namespace hetu::test
