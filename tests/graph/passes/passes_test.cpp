// Tests every pass on every model and on random graphs, and autodiff on random graphs against
// finite differences.
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <string>

#include "base/error.h"
#include "graph/passes/dead.h"
#include "graph/passes/fold.h"
#include "graph/passes/fuse_activation.h"
#include "graph/passes/fuse_attention.h"
#include "graph/passes/fuse_bias_grad.h"
#include "graph/passes/fuse_fork.h"
#include "graph/passes/fuse_residual.h"
#include "graph/passes/rewrite.h"
#include "tests/graph/evaluate.h"
#include "tests/graph/kept.h"
#include "tests/graph/models.h"

namespace hetu {
namespace {

constexpr std::int64_t kTestBatch = 2;

struct Pass {
  const char* name;
  Graph (*run)(const Graph&);
};

Graph fold_and_clean(const Graph& g) { return remove_dead(fold(g)); }

const Pass kPasses[] = {{"dead", remove_dead},
                        {"fold", fold},
                        {"fold+dead", fold_and_clean},
                        {"fuse_attention", fuse_attention},
                        {"fuse_activation", fuse_activation},
                        {"fuse_residual", fuse_residual},
                        {"fuse_fork", fuse_fork},
                        {"fuse_bias_grad", fuse_bias_grad}};

// Returns the visible results of a run: fetches and gradients, in order.
std::vector<Numbers> shown(const Graph& g, const std::map<std::string, Numbers>& leaves) {
  const std::vector<Numbers> values = evaluate(g, leaves, kTestBatch);
  std::vector<Numbers> out;
  for (const auto& [name, v] : g.fetches) out.push_back(values[v]);
  for (const GradientUse& u : g.gradients) out.push_back(values[u.gradient]);
  return out;
}

TEST(Passes, KeepTheModels) {
  for (const Graph& g : {trained(mlp()), trained(transformer()), transformer().finish()}) {
    for (const Pass& pass : kPasses) {
      SCOPED_TRACE(pass.name);
      expect_kept(g, pass.run(g));
    }
  }
}

TEST(Passes, KeepResultsBitForBitOnRandomGraphs) {
  int folded = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const Graph g = random_graph(random, 5 + static_cast<int>(seed));
    const std::map<std::string, Numbers> leaves = random_leaves(g, random, kTestBatch);
    const std::vector<Numbers> wanted = shown(g, leaves);
    for (const Pass& pass : kPasses) {
      SCOPED_TRACE(fmt::format("seed {} pass {}\n{}", seed, pass.name, print_graph(g)));
      const Graph after = pass.run(g);
      expect_kept(g, after);
      ASSERT_EQ(shown(after, leaves), wanted);
      if (std::string(pass.name) == "fold+dead" && after.nodes.size() + 5 < g.nodes.size()) {
        ++folded;
      }
    }
  }
  EXPECT_GT(folded, 40);
}

TEST(Autodiff, AgreesWithDifferencesOnRandomGraphs) {
  constexpr double kStep = 1e-6;
  for (unsigned seed = 100; seed < 140; ++seed) {
    std::mt19937 random(seed);
    const Graph g = random_graph(random, 12);
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, print_graph(g)));
    std::map<std::string, Numbers> leaves = random_leaves(g, random, kTestBatch);
    const std::vector<Numbers> values = evaluate(g, leaves, kTestBatch);
    for (const Parameter& p : g.parameters) {
      for (std::size_t i = 0; i < leaves[p.name].size(); ++i) {
        double gradient = 0;
        for (const GradientUse& u : uses_of(g, p.name)) gradient += values[u.gradient][i];
        const double at = leaves[p.name][i];
        const auto loss = [&](double x) {
          leaves[p.name][i] = x;
          return evaluate(g, leaves, kTestBatch)[g.loss][0];
        };
        const double difference = (loss(at + kStep) - loss(at - kStep)) / (2 * kStep);
        leaves[p.name][i] = at;
        ASSERT_NEAR(gradient, difference, 1e-5 * std::max(1.0, std::abs(difference))) << p.name;
      }
    }
  }
}

TEST(Dead, RemovesWhatNothingNeeds) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 3});
  b.placeholder("unread", DType::Int32, {kBatch});
  const ValueId p = b.parameter("p", {2, 3}, {});
  b.parameter("lost", {4}, {});
  const ValueId y = b.apply("linear", {x, p}, {}, "y");
  b.apply("relu", {y}, {}, "nowhere");
  b.fetch("sum", b.apply("sum", {y}));
  const Graph g = remove_dead(b.finish());
  EXPECT_EQ(g.nodes.size(), 4U);
  ASSERT_EQ(g.parameters.size(), 1U);
  EXPECT_EQ(g.parameters[0].name, "p");
  EXPECT_EQ(g.placeholders.size(), 1U);
}

// The part for a fetch gives the same value as the whole graph, and contains nothing of training.
TEST(PartFor, KeepsWhatOneFetchNeeds) {
  int fields = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const Graph g = random_graph(random, 5 + static_cast<int>(seed));
    const std::map<std::string, Numbers> leaves = random_leaves(g, random, kTestBatch);
    const std::vector<Numbers> values = evaluate(g, leaves, kTestBatch);
    for (const auto& [name, v] : g.fetches) {
      const Graph part = part_for(g, {name});
      SCOPED_TRACE(fmt::format("seed {} fetch {}\n{}", seed, name, print_graph(part)));
      check_types(op_set(), part);
      EXPECT_EQ(print_graph(parse_graph(print_graph(part))), print_graph(part));
      ASSERT_EQ(part.fetches.size(), 1U);
      EXPECT_EQ(evaluate(part, leaves, kTestBatch)[part.fetches[0].second], values[v]);
      EXPECT_EQ(part.loss, kNone);
      for (const Node& n : part.nodes) EXPECT_LE(n.phase, Phase::Forward) << n.name;
      EXPECT_EQ(fields_for(g, {v}), fields_for(part, {part.fetches[0].second}));
      EXPECT_EQ(fields_for(g, {v}).size(), part.placeholders.size());
      fields += static_cast<int>(part.placeholders.size());
    }
  }
  EXPECT_GT(fields, 40);
  EXPECT_THAT(
      [] { part_for(mlp().finish(), {"nope"}); },
      testing::ThrowsMessage<Error>(testing::HasSubstr("unknown fetch 'nope'; the fetches are: ")));
}

// Returns the operators of a graph that sums make(x) for x [B, 2, 3], after folding and cleaning.
std::vector<std::string> folded_ops(ValueId (*make)(Builder&, ValueId)) {
  Builder b(op_set());
  const ValueId x = b.apply("tanh", {b.placeholder("x", DType::Float32, {kBatch, 2, 3})});
  b.fetch("sum", b.apply("sum", {make(b, x)}));
  const Graph g = fold_and_clean(b.finish());
  std::vector<std::string> ops;
  for (std::size_t i = 2; i + 1 < g.nodes.size(); ++i) ops.push_back(g.nodes[i].op);
  return ops;
}

TEST(Fold, Rules) {
  using testing::ElementsAre;
  EXPECT_THAT(folded_ops([](Builder& b, ValueId x) {
                const ValueId r = b.apply("reshape", {x}, {{"shape", Shape{-6}}});
                return b.apply("reshape", {r}, {{"shape", Shape{kBatch, 6}}});
              }),
              ElementsAre("reshape"));
  EXPECT_THAT(folded_ops([](Builder& b, ValueId x) {
                const ValueId r = b.apply("reshape", {x}, {{"shape", Shape{-6}}});
                return b.apply("reshape", {r}, {{"shape", Shape{kBatch, 2, 3}}});
              }),
              ElementsAre());
  EXPECT_THAT(folded_ops([](Builder& b, ValueId x) {
                for (int i = 0; i < 2; ++i)
                  x = b.apply("transpose", {x}, {{"perm", Shape{0, 2, 1}}});
                return x;
              }),
              ElementsAre());
  EXPECT_THAT(folded_ops([](Builder& b, ValueId x) {
                x = b.apply("scale", {x}, {{"factor", 1.0}});
                x = b.apply("cast", {x}, {{"dtype", std::string("float32")}});
                return b.apply("scale", {x}, {{"factor", 2.0}});
              }),
              ElementsAre("scale"));
  EXPECT_THAT(folded_ops([](Builder& b, ValueId x) {
                const ValueId r = b.apply("reshape", {x}, {{"shape", Shape{-6}}});
                b.cut();  // prevents the folding
                return b.apply("reshape", {r}, {{"shape", Shape{kBatch, 2, 3}}});
              }),
              ElementsAre("reshape", "reshape"));
}

TEST(Fold, JoinsTransposesInTheRightOrder) {
  Builder b(op_set());
  ValueId x = b.apply("tanh", {b.placeholder("x", DType::Float32, {2, 3, 5})});
  x = b.apply("transpose", {x}, {{"perm", Shape{1, 2, 0}}});  // [3, 5, 2]
  x = b.apply("transpose", {x}, {{"perm", Shape{2, 1, 0}}});  // [2, 5, 3]
  b.fetch("sum", b.apply("sum", {x}));
  const Graph g = fold_and_clean(b.finish());
  check_types(op_set(), g);
  EXPECT_EQ(node_named(g, "transpose_1").attrs.integers("perm"), (Shape{0, 2, 1}));
}

TEST(Fold, ConstantsAreMadeInTheBlockThatReadsThem) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {});
  const ValueId c = b.apply("scale", {b.apply("fill", {}, {{"shape", Shape{}}, {"value", 3.0}})},
                            {{"factor", 2.0}}, "six");
  ValueId y = b.apply("mul", {x, c});
  b.cut();
  y = b.apply("mul", {y, c});
  b.fetch("y", y);
  const Graph g = fold_and_clean(b.finish());
  EXPECT_EQ(node_named(g, "six").op, "fill");
  EXPECT_EQ(node_named(g, "six").attrs.real("value"), 6.0);
  EXPECT_EQ(node_named(g, "six/block1").block, 1);
  EXPECT_EQ(node_named(g, "mul_1").inputs[1], node_named(g, "six/block1").outputs[0]);
}

TEST(Fold, ArraysAreMadeInTheBlockThatReadsThem) {
  Builder b(op_set());
  const ValueId x = b.parameter("x", {1}, {});
  const ValueId c = b.apply(
      "constant", {},
      {{"shape", Shape{1}}, {"dtype", std::string("float32")}, {"data", std::string("0000c03f")}},
      "array");
  ValueId y = b.apply("mul", {x, c});
  b.cut();
  y = b.apply("sum", {b.apply("mul", {y, c})});
  b.fetch("y", y);
  b.differentiate(y);
  const Graph g = fold_and_clean(b.finish());
  for (const Node& n : g.nodes) {
    for (const ValueId v : n.inputs) {
      const Node& from = g.producer(v);
      if (from.op == "constant") {
        EXPECT_EQ(from.block, n.block) << n.name;
      }
    }
  }
  EXPECT_EQ(node_named(g, "array/block1").attrs, node_named(g, "array").attrs);
}

TEST(Rewrite, NamesADroppedNodeThatIsStillRead) {
  const Graph g = mlp().finish();
  GraphRewriter out(g);
  EXPECT_THAT([&] { out.copy(node_named(g, "relu").outputs[0]); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("a pass removed 'fc1/linear'")));
}

}  // namespace
}  // namespace hetu
