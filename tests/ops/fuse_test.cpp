// Tests the fusion of activations behind linear layers, norms of residual sums, and gradients of
// forks and of biases. With and without fusion, results and gradients must have the same bits,
// after autodiff, the passes and mixed precision.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <omp.h>

#include "graph/builder.h"
#include "graph/passes/fuse_activation.h"
#include "graph/passes/fuse_bias_grad.h"
#include "graph/passes/fuse_fork.h"
#include "graph/passes/fuse_residual.h"
#include "graph/passes/mixed_precision.h"
#include "ops/layers.h"
#include "ops/registry.h"
#include "tests/ops/tensors.h"

namespace hetu::test {
namespace {

constexpr unsigned kSeed = 43;
constexpr std::int64_t kSamples = 2;
const RunContext kRun = {kSeed, 7, 40, true};

struct Layer {
  const char* activation;
  std::int64_t tokens, width, wide;
  double dropout = 0.3;
  bool norm_first = false;  ///< the next layer also reads the sum
  bool skip_first = false;  ///< add(skip, dropout)
};

/// Returns a feed-forward layer of a transformer on x [B, tokens, width]; loss = sum(y * r).
Graph layer_model(const Layer& layer) {
  Builder b(op_set());
  const Shape shape = {kBatch, layer.tokens, layer.width};
  const ValueId x = b.placeholder("x", DType::Float32, shape);
  const ValueId skip = ops::linear(b, x, layer.width, "in");
  ValueId f = b.apply(layer.activation, {ops::linear(b, skip, layer.wide, "up")});
  f = b.apply("dropout", {ops::linear(b, f, layer.width, "down")}, {{"p", layer.dropout}});
  const ValueId sum = layer.skip_first ? b.apply("add", {skip, f}) : b.apply("add", {f, skip});
  ValueId y = ops::layer_norm(b, sum, "norm");
  if (layer.norm_first) y = b.apply("add", {sum, ops::linear(b, y, layer.width, "next")});
  b.fetch("y", y);
  b.differentiate(b.apply("sum", {b.apply("mul", {y, b.placeholder("r", DType::Float32, shape)})}));
  return b.finish();
}

/// Returns a model in which two linear layers, one of them wide, and a skip read the same input;
/// loss = sum(y * r).
Graph fork_model(const Layer& layer) {
  Builder b(op_set());
  const Shape shape = {kBatch, layer.tokens, layer.width};
  const ValueId x = ops::linear(b, b.placeholder("x", DType::Float32, shape), layer.width, "in");
  const ValueId one = ops::linear(b, x, layer.width, "one");
  const ValueId f = ops::linear(b, b.apply(layer.activation, {ops::linear(b, x, layer.wide, "up")}),
                                layer.width, "down");
  const ValueId y =
      b.apply("add", {b.apply("add", {one, f}), ops::linear(b, x, layer.width, "two")});
  b.fetch("y", b.apply("add", {y, x}));
  b.differentiate(b.apply("sum", {b.apply("mul", {b.graph().fetches[0].second,
                                                  b.placeholder("r", DType::Float32, shape)})}));
  return b.finish();
}

Graph fuse(const Graph& g) { return fuse_residual(fuse_activation(g)); }

int count(const Graph& g, const std::string& op) {
  return static_cast<int>(
      std::count_if(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.op == op; }));
}

/// Returns y, then the gradients of all parameters. The batch is bound, so that every kernel sees
/// one sample.
std::vector<Tensor> results(Graph g, DType floats, KernelChoice choice) {
  for (Value& v : g.values) v.type.shape = bind_batch(v.type.shape, kSamples);
  std::mt19937_64 random(kSeed);
  std::map<ValueId, Tensor> feeds;
  for (const Parameter& p : g.parameters)
    feeds[p.value] = random_tensor(g.values[p.value].type, random);
  for (const ValueId v : g.placeholders) feeds[v] = random_tensor(g.values[v].type, random);
  const auto values = evaluate(g, feeds, floats, choice, kRun);
  std::vector<Tensor> found = {values.at(g.fetches.at(0).second)};
  for (const GradientUse& u : g.gradients) found.push_back(values.at(u.gradient));
  return found;
}

// Covers few rows, partial tiles and vectors, several slabs and tiles, and every activation.
const Layer kLayers[] = {
    {"relu", 3, 70, 130},
    {"gelu", 1, 33, 70, 0.3, true},
    {"gelu_tanh", 3, 70, 130, 0.1, false, true},
    {"gelu", 150, 96, 400, 0.0},
    {"relu", 150, 96, 400, 0.5, true, true},
};

std::string name_of(const Layer& l) {
  return fmt::format("{} [{}, {}, {}] to {}, p {}, seed {}", l.activation, kSamples, l.tokens,
                     l.width, l.wide, l.dropout, kSeed);
}

void expect_same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(a[i].same_bits(b[i])) << (i == 0 ? "y" : fmt::format("gradient {}", i - 1));
}

/// Checks types. Runs the fused graph with one thread and with several, and compares its bits with
/// those of the separate nodes.
void expect_bits_of(const Graph& apart, const Graph& joined, KernelChoice choice) {
  check_types(op_set(), joined);
  const auto wanted = results(apart, DType::Float32, choice);
  const int before = omp_get_max_threads();
  for (const int threads : {1, 3}) {
    omp_set_num_threads(threads);
    expect_same_bits(results(joined, DType::Float32, choice), wanted);
  }
  omp_set_num_threads(before);
}

TEST(Fuse, GivesTheBitsOfWhatItJoins) {
  for (const Layer& layer : kLayers) {
    SCOPED_TRACE(name_of(layer));
    const Graph apart = layer_model(layer), joined = fuse(apart);
    EXPECT_EQ(count(joined, std::string("linear_") + layer.activation), 1);
    EXPECT_EQ(count(joined, "dropout_add_layer_norm"), 1);
    // If the sum has other readers, the gradient of dropout covers all of them and can't be fused.
    EXPECT_EQ(count(joined, "dropout_add_layer_norm_grad"), layer.norm_first ? 0 : 1);
    expect_bits_of(apart, joined, KernelChoice::Best);
    const auto wanted = results(apart, DType::Float32, KernelChoice::Best);
    const auto exact = results(apart, DType::Float64, KernelChoice::Reference);
    const auto plain = results(joined, DType::Float64, KernelChoice::Reference);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      EXPECT_LE(relative_difference(plain[i].values(), exact[i].values()), 1e-12) << i;
      EXPECT_LE(relative_difference(wanted[i].values(), exact[i].values()), 1e-5) << i;
    }
  }
}

TEST(Fuse, GivesTheBitsOfTheSumsAtForks) {
  for (const Layer& layer : kLayers) {
    SCOPED_TRACE(name_of(layer));
    const Graph apart = fork_model(layer), joined = fuse_fork(apart);
    EXPECT_EQ(count(joined, "linear_input_grad_add"), 2);
    for (const KernelChoice choice : {KernelChoice::Best, KernelChoice::Reference})
      expect_bits_of(apart, joined, choice);
  }
}

TEST(Fuse, GivesTheBitsOfBiasGradients) {
  for (const Layer& layer : kLayers) {
    SCOPED_TRACE(name_of(layer));
    const Graph apart = fork_model(layer), joined = fuse_bias_grad(apart);
    EXPECT_EQ(count(joined, "linear_weight_bias_grad"), 5);
    for (const KernelChoice choice : {KernelChoice::Best, KernelChoice::Reference})
      expect_bits_of(apart, joined, choice);
  }
}

// As in the executor, the pass runs after mixed precision. Mixed precision rounds the gradient of
// the model's result only for products, so the bias sum reads the unrounded values. Also covers
// widening kernels.
TEST(Fuse, GivesTheBitsOfBiasGradientsInTwoBytes) {
  for (const Layer& layer : kLayers)
    for (const DType narrow : {DType::BFloat16, DType::Float16}) {
      SCOPED_TRACE(name_of(layer) + " " + dtype_name(narrow));
      const Graph apart = mixed_precision(fork_model(layer), op_set(), narrow);
      const Graph joined = fuse_bias_grad(apart);
      EXPECT_EQ(count(joined, "linear_weight_bias_grad"), 2);
      EXPECT_EQ(count(joined, "sum_rows"), 3);
      expect_bits_of(apart, joined, KernelChoice::Best);
    }
}

// As in the executor, the graph is fused first and then narrowed.
TEST(Fuse, GivesTheBitsOfWhatItJoinsInBfloat16) {
  if (const std::string lacks = lacks_for_bfloat16(); !lacks.empty())
    GTEST_SKIP() << "this processor has no " << lacks
                 << ", and kernels that widen do not round what they join";
  for (const Layer& layer : kLayers) {
    SCOPED_TRACE(name_of(layer));
    const Graph apart = layer_model(layer);
    const auto narrow = [](const Graph& g) {
      return mixed_precision(g, op_set(), DType::BFloat16);
    };
    expect_same_bits(results(narrow(fuse(apart)), DType::Float32, KernelChoice::Best),
                     results(narrow(apart), DType::Float32, KernelChoice::Best));
    const Graph fork = fork_model(layer);
    expect_same_bits(results(narrow(fuse_fork(fork)), DType::Float32, KernelChoice::Best),
                     results(narrow(fork), DType::Float32, KernelChoice::Best));
  }
}

}  // namespace
}  // namespace hetu::test
