// Mixed precision as a pass: what becomes bfloat16, what stays float32, and where values are
// rounded.
#include "graph/passes/mixed_precision.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "graph/passes/channels_last.h"
#include "graph/passes/fuse_norm.h"
#include "tests/executor/conv_model.h"
#include "tests/graph/models.h"

namespace hetu {
namespace {

std::vector<Graph> models() {
  return {trained(mlp()), trained(transformer()),
          channels_last(fuse_norm(testing_model::residual_model()), op_set())};
}

bool is_rounding(const Graph& g, const Node& n) {
  return n.op == "cast" && g.values[n.outputs[0]].type.dtype == DType::BFloat16;
}

TEST(MixedPrecision, ComputesByTheRecords) {
  for (const Graph& before : models()) {
    const Graph g = mixed_precision(before, op_set());
    int products = 0;
    for (const Node& n : g.nodes) {
      if (is_leaf(n) || n.op == "cast") continue;
      const OpDef& def = op_set().find(n.op);
      const auto has = [&](const std::vector<ValueId>& values, DType dtype, bool wide, bool input) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          const bool is_wide = input ? is_wide_input(def, i) : is_wide_output(def, i);
          if (is_wide == wide && g.values[values[i]].type.dtype == dtype) return true;
        }
        return false;
      };
      EXPECT_FALSE(has(n.inputs, DType::BFloat16, true, true)) << n.name;
      EXPECT_FALSE(has(n.outputs, DType::BFloat16, true, false)) << n.name;
      if (def.narrow.rule == NarrowArgs::Rule::Product) {
        ++products;
        EXPECT_FALSE(has(n.inputs, DType::Float32, false, true)) << n.name;
      }
      if (def.narrow.rule == NarrowArgs::Rule::None) {
        EXPECT_FALSE(has(n.inputs, DType::BFloat16, false, true)) << n.name;
        EXPECT_FALSE(has(n.outputs, DType::BFloat16, false, false)) << n.name;
      }
    }
    EXPECT_GE(products, 5);
  }
}

// Weights, their gradients, state, the loss and what is reported are what they were; so are the
// names that random numbers and checkpoints go by.
TEST(MixedPrecision, LeavesWhatIsSeenFromOutside) {
  for (const Graph& before : models()) {
    const Graph g = mixed_precision(before, op_set());
    ASSERT_EQ(g.parameters.size(), before.parameters.size());
    for (std::size_t i = 0; i < g.parameters.size(); ++i)
      EXPECT_EQ(g.parameters[i].name, before.parameters[i].name);
    ASSERT_EQ(g.gradients.size(), before.gradients.size());
    for (std::size_t i = 0; i < g.gradients.size(); ++i)
      EXPECT_EQ(g.producer(g.gradients[i].gradient).name,
                before.producer(before.gradients[i].gradient).name);
    ASSERT_EQ(g.fetches.size(), before.fetches.size());
    for (std::size_t i = 0; i < g.fetches.size(); ++i)
      EXPECT_EQ(g.values[g.fetches[i].second].type, before.values[before.fetches[i].second].type);
    std::set<std::string> names;
    for (const Node& n : g.nodes) names.insert(n.name);
    for (const Node& n : before.nodes) EXPECT_EQ(names.count(n.name), 1U) << n.name;
  }
}

// Of each value of a node there is one rounding, where it is made: what crosses a cut or waits for
// backward has two bytes an element. Parameters are rounded where they are read.
TEST(MixedPrecision, RoundsOnceWhereAValueIsMade) {
  for (const Graph& before : models()) {
    const Graph g = mixed_precision(before, op_set());
    std::set<ValueId> rounded;
    std::set<std::tuple<ValueId, int, Phase>> local;
    for (const Node& n : g.nodes) {
      if (!is_rounding(g, n)) continue;
      const Node& from = g.producer(n.inputs[0]);
      if (is_leaf(from)) {
        EXPECT_TRUE(local.insert({n.inputs[0], n.block, n.phase}).second) << n.name;
        for (const Node& reader : g.nodes)
          if (std::count(reader.inputs.begin(), reader.inputs.end(), n.outputs[0]) != 0) {
            EXPECT_EQ(std::pair(reader.block, reader.phase), std::pair(n.block, n.phase)) << n.name;
          }
      } else {
        EXPECT_TRUE(rounded.insert(n.inputs[0]).second) << n.name;
        EXPECT_EQ(std::pair(from.block, from.phase), std::pair(n.block, n.phase)) << n.name;
      }
    }
    EXPECT_FALSE(local.empty());
  }
}

// The residual stream of a transformer is bfloat16: boundaries of its layers are half as large.
TEST(MixedPrecision, LayersHandOnBFloat16) {
  const Graph before = trained(transformer());
  const Graph g = mixed_precision(before, op_set());
  int crossing = 0;
  for (const Node& n : g.nodes) {
    for (const ValueId v : n.inputs) {
      const Node& from = g.producer(v);
      if (is_leaf(from) || from.block == n.block || from.phase != Phase::Forward) continue;
      if (!is_floating(g.values[v].type.dtype) || from.op == "step_sum") continue;
      ++crossing;
      EXPECT_EQ(g.values[v].type.dtype, DType::BFloat16) << from.name << " read by " << n.name;
    }
  }
  EXPECT_GT(crossing, 0);
}

TEST(MixedPrecision, LeavesWhatIsBFloat16Already) {
  for (const Graph& before : models()) {
    const Graph g = mixed_precision(before, op_set());
    EXPECT_EQ(print_graph(mixed_precision(g, op_set())), print_graph(g));
  }
}

TEST(MixedPrecision, OperatorsSayWhatTheyTake) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 4});
  const ValueId narrow = b.apply("cast", {x}, {{"dtype", std::string("bfloat16")}});
  EXPECT_EQ(b.type(b.apply("gelu", {narrow})).dtype, DType::BFloat16);
  const auto message = [&](const char* op, const std::vector<ValueId>& inputs) {
    try {
      b.apply(op, inputs, {}, "n");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("taken");
  };
  EXPECT_EQ(message("add", {narrow, x}),
            "add 'n': input 1 is float32[B, 4], wanted bfloat16 beside bfloat16; use cast");
  EXPECT_EQ(message("softmax", {narrow}), "softmax 'n': x is bfloat16[B, 4], wanted float32");
}

}  // namespace
}  // namespace hetu
