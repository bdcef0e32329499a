// Tests the mixed-precision pass: which values become bfloat16, which stay float32, and where
// values are rounded.
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
  return n.op == "cast" && is_narrow(g.values[n.outputs[0]].type.dtype);
}

class MixedPrecision : public testing::TestWithParam<DType> {
 protected:
  static Graph narrowed(const Graph& graph) { return mixed_precision(graph, op_set(), GetParam()); }
};

TEST_P(MixedPrecision, ComputesByTheRecords) {
  for (const Graph& before : models()) {
    const Graph g = narrowed(before);
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
      EXPECT_FALSE(has(n.inputs, GetParam(), true, true)) << n.name;
      EXPECT_FALSE(has(n.outputs, GetParam(), true, false)) << n.name;
      if (def.narrow.rule == NarrowArgs::Rule::Product) {
        ++products;
        EXPECT_FALSE(has(n.inputs, DType::Float32, false, true)) << n.name;
      }
      if (def.narrow.rule == NarrowArgs::Rule::None) {
        EXPECT_FALSE(has(n.inputs, GetParam(), false, true)) << n.name;
        EXPECT_FALSE(has(n.outputs, GetParam(), false, false)) << n.name;
      }
    }
    EXPECT_GE(products, 5);
  }
}

// Weights, their gradients, state, the loss and reported values keep their dtype. The names that
// random numbers and checkpoints use are unchanged.
TEST_P(MixedPrecision, LeavesWhatIsSeenFromOutside) {
  for (const Graph& before : models()) {
    const Graph g = narrowed(before);
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

// Each value is rounded once, where it is computed, so a value that crosses a cut or waits for the
// backward takes two bytes per element. Parameters are rounded where they are read.
TEST_P(MixedPrecision, RoundsOnceWhereAValueIsMade) {
  for (const Graph& before : models()) {
    const Graph g = narrowed(before);
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

// The residual stream of a transformer is narrow, so boundaries between its layers take half the
// bytes.
TEST_P(MixedPrecision, LayersHandOnTwoBytes) {
  const Graph before = trained(transformer());
  const Graph g = narrowed(before);
  int crossing = 0;
  for (const Node& n : g.nodes) {
    for (const ValueId v : n.inputs) {
      const Node& from = g.producer(v);
      if (is_leaf(from) || from.block == n.block || from.phase != Phase::Forward) continue;
      if (!is_floating(g.values[v].type.dtype) || from.op == "step_sum") continue;
      ++crossing;
      EXPECT_EQ(g.values[v].type.dtype, GetParam()) << from.name << " read by " << n.name;
    }
  }
  EXPECT_GT(crossing, 0);
}

TEST_P(MixedPrecision, LeavesWhatIsNarrowAlready) {
  for (const Graph& before : models()) {
    const Graph g = narrowed(before);
    EXPECT_EQ(print_graph(narrowed(g)), print_graph(g));
  }
}

TEST_P(MixedPrecision, OperatorsSayWhatTheyTake) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 4});
  const ValueId narrow = b.apply("cast", {x}, {{"dtype", std::string(dtype_name(GetParam()))}});
  EXPECT_EQ(b.type(b.apply("gelu", {narrow})).dtype, GetParam());
  const auto message = [&](const char* op, const std::vector<ValueId>& inputs) {
    try {
      b.apply(op, inputs, {}, "n");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("taken");
  };
  EXPECT_EQ(message("add", {narrow, x}),
            fmt::format("add 'n': input 1 is float32[B, 4], but it must be {0} because other "
                        "inputs are {0}; use cast",
                        dtype_name(GetParam())));
  EXPECT_EQ(message("softmax", {narrow}),
            fmt::format("softmax 'n': x is {}[B, 4], expected float32", dtype_name(GetParam())));
  const char* other = GetParam() == DType::Float16 ? "bfloat16" : "float16";
  const ValueId foreign = b.apply("cast", {x}, {{"dtype", std::string(other)}});
  EXPECT_EQ(message("add", {narrow, foreign}),
            fmt::format("add 'n': input 1 is {0}[B, 4], but it must be {1} because other inputs "
                        "are {1}; use cast",
                        other, dtype_name(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Narrow, MixedPrecision, testing::Values(DType::BFloat16, DType::Float16),
                         [](const auto& dtype) { return std::string(dtype_name(dtype.param)); });

}  // namespace
}  // namespace hetu
