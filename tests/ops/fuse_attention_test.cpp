// Compares fused attention with plain attention, after autodiff and the pass: results and
// gradients, for every sample and kernel case.
#include "graph/passes/fuse_attention.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>

#include "graph/builder.h"
#include "ops/registry.h"
#include "tests/ops/kernel_cases.h"
#include "tests/ops/tensors.h"

namespace hetu::test {
namespace {

constexpr unsigned kSeed = 41;
const RunContext kRun = {kSeed, 7, 40, true};

std::vector<Sample> attention_cases() {
  std::vector<Sample> all = op_set().find("attention").samples;
  for (const KernelCase& k : kernel_cases())
    if (k.op == "attention") all.push_back(k.sample);
  return all;
}

/// A model with loss = sum(y * r), where q, k and v are parameters. The fetch "y" is the
/// attention's result.
struct Model {
  Graph graph;
  std::map<std::string, Tensor> leaves;
};

Model make_model(const Sample& s) {
  Model m;
  std::mt19937_64 random(kSeed);
  Builder b(op_set());
  std::vector<ValueId> inputs;
  for (std::size_t i = 0; i < s.shapes.size(); ++i) {
    const DType dtype = s.dtypes.empty() ? DType::Float32 : s.dtypes[i];
    const Shape shape = bind_batch(s.shapes[i], 2);
    const std::string name = std::string(1, "qkvm"[i]);
    inputs.push_back(i < 3 ? b.parameter(name, shape, {}) : b.placeholder(name, dtype, shape));
    m.leaves[name] = random_tensor({dtype, shape}, random, s.integers_below);
  }
  const ValueId y = b.apply("attention", inputs, s.attrs, "probed");
  const TensorType type = b.type(y);
  const ValueId r = b.placeholder("r", type.dtype, type.shape);
  m.leaves["r"] = random_tensor(type, random);
  b.fetch("y", y);
  b.differentiate(b.apply("sum", {b.apply("mul", {y, r})}));
  m.graph = b.finish();
  return m;
}

/// Returns y, then the gradients of q, k and v.
std::vector<Tensor> results(const Graph& g, const std::map<std::string, Tensor>& leaves,
                            DType floats, KernelChoice choice) {
  std::map<ValueId, Tensor> feeds;
  for (const Parameter& p : g.parameters) feeds[p.value] = leaves.at(p.name);
  for (const ValueId v : g.placeholders) feeds[v] = leaves.at(g.producer(v).name);
  const auto values = evaluate(g, feeds, floats, choice, kRun);
  std::vector<Tensor> found = {values.at(g.fetches.at(0).second)};
  for (const GradientUse& u : g.gradients) found.push_back(values.at(u.gradient));
  return found;
}

// If a vector row takes both forms, they have the same bits. By the reference rows, they agree to
// the last digits in float64, and float32 is within 1e-5 of float64.
TEST(FuseAttention, GivesTheResultsAndGradientsOfAttention) {
  int fused = 0, dropped = 0;
  for (const Sample& s : attention_cases()) {
    SCOPED_TRACE(fmt::format("q {}, seed {}", to_string(s.shapes[0]), kSeed));
    const Model m = make_model(s);
    const Graph after = fuse_attention(m.graph);
    const bool rewritten = std::any_of(after.nodes.begin(), after.nodes.end(), [](const Node& n) {
      return n.op == "fused_attention_grad";
    });
    if (!rewritten) continue;  // the mask is as large as the weights
    ++fused;
    if (s.attrs.has("dropout") && s.attrs.real("dropout") > 0) ++dropped;
    const auto exact = results(m.graph, m.leaves, DType::Float64, KernelChoice::Reference);
    const auto plain = results(after, m.leaves, DType::Float64, KernelChoice::Reference);
    const auto apart = results(m.graph, m.leaves, DType::Float32, KernelChoice::Best);
    const auto joined = results(after, m.leaves, DType::Float32, KernelChoice::Best);
    const bool vector = s.shapes[0].back() / s.attrs.integer("heads") % 16 == 0;
    ASSERT_EQ(exact.size(), 4U);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      SCOPED_TRACE(i == 0 ? "y" : fmt::format("gradient of input {}", i - 1));
      EXPECT_LE(relative_difference(plain[i].values(), exact[i].values()), 1e-12);
      EXPECT_LE(relative_difference(joined[i].values(), exact[i].values()), 1e-5);
      EXPECT_TRUE(!vector || joined[i].same_bits(apart[i]));
    }
  }
  EXPECT_GE(fused, 15);
  EXPECT_GE(dropped, 5);
}

}  // namespace
}  // namespace hetu::test
