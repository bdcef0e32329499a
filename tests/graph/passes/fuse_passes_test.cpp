// Tests which nodes the fusing passes join, and which they leave.
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "graph/passes/fuse_activation.h"
#include "graph/passes/fuse_attention.h"
#include "graph/passes/fuse_bias_grad.h"
#include "graph/passes/fuse_fork.h"
#include "graph/passes/fuse_residual.h"
#include "tests/graph/kept.h"
#include "tests/graph/models.h"

namespace hetu {
namespace {

TEST(FuseAttention, TakesWhatOnlyTheGradientReads) {
  const Graph before = trained(transformer());
  const std::map<std::string, int> was = count_ops(before);
  ASSERT_EQ(was.at("attention"), 2);
  std::map<std::string, int> is = count_ops(fuse_attention(before));
  EXPECT_EQ(is["attention"] + is["attention_grad"], 0);
  EXPECT_EQ(is["fused_attention"], 2);
  EXPECT_EQ(is["fused_attention_grad"], was.at("attention_grad"));
  EXPECT_EQ(count_ops(fuse_attention(transformer().finish())).count("attention"), 0U);
}

// Returns a model of one attention with a float mask of the given shape. With `fetched`, its
// weights are fetched.
Graph masked_attention(const Shape& mask, bool wants_mask, bool fetched) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {2, 3, 4});
  const ValueId q = ops::linear(b, x, 4, "q");
  const ValueId added =
      wants_mask ? b.parameter("mask", mask, {}) : b.placeholder("mask", DType::Float32, mask);
  const std::vector<ValueId> made =
      b.apply_all("attention", {q, x, x, added}, {{"heads", std::int64_t{2}}});
  if (fetched) b.fetch("weights", made[1]);
  b.differentiate(b.apply("sum", {made[0]}));
  return b.finish();
}

TEST(FuseAttention, LeavesWeightsThatAreReadAndMasksAsLargeAsThem) {
  const auto fuses = [](const Graph& g) {
    return count_ops(fuse_attention(g)).count("fused_attention") == 1;
  };
  EXPECT_TRUE(fuses(masked_attention({3, 3}, false, false)));
  EXPECT_FALSE(fuses(masked_attention({3, 3}, false, true))) << "weights are fetched";
  EXPECT_FALSE(fuses(masked_attention({3, 3}, true, false))) << "the mask's gradient reads them";
  EXPECT_FALSE(fuses(masked_attention({2, 2, 3, 3}, false, false))) << "a mask as large";
}

TEST(FuseActivation, TakesLayersThatNothingReadsBefore) {
  std::map<std::string, int> is = count_ops(fuse_activation(trained(transformer())));
  EXPECT_EQ(is["linear_gelu"], 2);
  EXPECT_EQ(is["gelu"], 0);
  EXPECT_EQ(is["gelu_grad"], 2) << "reads what the layer made";
  is = count_ops(fuse_activation(trained(mlp())));
  EXPECT_EQ(is["linear_relu"], 1);
  // A fetched value must be computed. gelu keeps its input in any case.
  const auto fuses = [](const char* activation, bool cut) {
    Builder b(op_set());
    const ValueId x = ops::linear(b, b.placeholder("x", DType::Float32, {kBatch, 8}), 4, "fc");
    b.fetch("x", x);
    if (cut) b.cut();
    b.fetch("sum", b.apply("sum", {b.apply(activation, {x})}));
    return count_ops(fuse_activation(b.finish())).count("linear") == 0;
  };
  EXPECT_FALSE(fuses("relu", false));
  EXPECT_TRUE(fuses("gelu", false));
  EXPECT_FALSE(fuses("gelu", true)) << "across a cut";
}

TEST(FuseResidual, TakesSumsOfDropoutAndASkip) {
  std::map<std::string, int> is = count_ops(fuse_residual(trained(transformer())));
  EXPECT_EQ(is["dropout_add_layer_norm"], 4);
  EXPECT_EQ(is["dropout_add_layer_norm_grad"], 4);
  EXPECT_EQ(is["layer_norm"], 1) << "of the embeddings";
  EXPECT_EQ(is["dropout"] + is["dropout_grad"], 0);
  // The cases are: 0, unchanged; 1, dropout's result is fetched; 2, the sum is read before the
  // norm; 3, the sum is read after the norm; 4, the norm lies behind a cut.
  const auto fuses = [](int what) {
    Builder b(op_set());
    const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 8});
    const ValueId dropped = b.apply("dropout", {x}, {{"p", 0.5}});
    const ValueId sum = b.apply("add", {dropped, x});
    if (what == 1) b.fetch("dropped", dropped);
    if (what == 2) b.fetch("before", b.apply("sum", {sum}));
    if (what == 4) b.cut();
    ValueId y = ops::layer_norm(b, sum, "norm");
    if (what == 3) y = b.apply("add", {y, sum});
    b.fetch("sum", b.apply("sum", {y}));
    return count_ops(fuse_residual(b.finish())).count("dropout") == 0;
  };
  EXPECT_TRUE(fuses(0));
  EXPECT_FALSE(fuses(1));
  EXPECT_FALSE(fuses(2));
  EXPECT_TRUE(fuses(3));
  EXPECT_FALSE(fuses(4));
}

// Returns a graph in which the layers "one", "two" and "three" and a relu read x. x is the tanh of
// a layer, or of a parameter if `weights` is set. The cut lies behind x, or behind the first layer.
enum class Cut : std::uint8_t { Nowhere, BehindX, BehindOne };
Graph forked(Cut cut, bool weights = false) {
  Builder b(op_set());
  const ValueId in = weights ? b.parameter("p", {3, 4}, {})
                             : ops::linear(b, b.placeholder("x", DType::Float32, {3, 4}), 4, "in");
  const ValueId x = b.apply("tanh", {in});
  if (cut == Cut::BehindX) b.cut();
  ValueId y = ops::linear(b, x, 4, "one");
  if (cut == Cut::BehindOne) b.cut();
  for (const char* name : {"two", "three"}) y = b.apply("add", {y, ops::linear(b, x, 4, name)});
  b.differentiate(b.apply("sum", {b.apply("add", {y, b.apply("relu", {x})})}));
  return b.finish();
}

TEST(FuseFork, TakesProductsAlongASum) {
  const Graph before = forked(Cut::Nowhere), after = fuse_fork(before);
  expect_kept(before, after);
  std::map<std::string, int> is = count_ops(after);
  EXPECT_EQ(is["linear_input_grad"], 1) << "of two products one";
  EXPECT_EQ(is["linear_input_grad_add"], 2);
  EXPECT_EQ(is["add"], count_ops(before)["add"] - 2);
  // The sum is ((one + two) + three) + relu's gradient. The product of "one" is computed last.
  const Node &sum = node_named(after, "tanh/grad/add"),
             &next = node_named(after, "tanh/grad/add_1");
  const auto weight = [&](const Node& n) { return after.producer(n.inputs[1]).name; };
  EXPECT_EQ(weight(sum), "one/weight");
  EXPECT_EQ(weight(after.producer(sum.inputs[2])), "two/weight");
  EXPECT_EQ(weight(next), "three/weight");
  EXPECT_EQ(next.inputs[2], sum.outputs[0]);
  EXPECT_EQ(node_named(after, "tanh/grad/add_2").op, "add");
}

// The fused sums lie in the block of the products. Their result crosses to the block of x.
TEST(FuseFork, TakesProductsOfALaterBlock) {
  const Graph before = forked(Cut::BehindX), after = fuse_fork(before);
  expect_kept(before, after);
  for (const char* name : {"tanh/grad/add", "tanh/grad/add_1"}) {
    EXPECT_EQ(node_named(before, name).block, 0);
    EXPECT_EQ(node_named(after, name).block, 1);
    EXPECT_EQ(node_named(after, name).op, "linear_input_grad_add");
  }
  EXPECT_EQ(node_named(after, "tanh/grad/add_2").block, 0);
}

// Each block computes x + f(x). The sum of gradients goes on to the block before, and no pass may
// join it to the block behind.
TEST(FuseFork, LeavesSumsOfSkipsWhereTheyWere) {
  Builder b(op_set());
  ValueId x = ops::linear(b, b.placeholder("x", DType::Float32, {3, 4}), 4, "in");
  for (const char* name : {"one", "two", "three"}) {
    b.cut();
    x = b.apply("add", {x, b.apply("tanh", {ops::linear(b, x, 4, name)})});
  }
  b.differentiate(b.apply("sum", {x}));
  const Graph before = b.finish(), after = fuse_fork(before);
  expect_kept(before, after);
  EXPECT_EQ(count_ops(after)["linear_input_grad_add"], 1) << "that of 'in', of block 0";
  EXPECT_EQ(node_named(after, "in/linear/grad/add").block, 1);
}

TEST(FuseFork, LeavesWhatIsReadElsewhere) {
  const auto joins = [](const Graph& g) {
    return count_ops(fuse_fork(g))["linear_input_grad_add"];
  };
  EXPECT_EQ(joins(forked(Cut::BehindOne)), 0) << "the other gradient is of another block";
  EXPECT_EQ(joins(forked(Cut::Nowhere, true)), 0) << "gradients of parameters alone";
  const auto product = [](const Graph& g, const char* layer) {
    return node_named(g, std::string(layer) + "/linear/grad/linear_input_grad").outputs[0];
  };
  Graph fetched = forked(Cut::Nowhere);
  fetched.fetches.push_back({"three", product(fetched, "three")});
  EXPECT_EQ(joins(fetched), 1) << "the other is fetched";
  Graph twice = forked(Cut::Nowhere);
  for (Node& n : twice.nodes)
    if (n.name == "tanh/grad/add_2") n.inputs[1] = product(twice, "three");
  EXPECT_EQ(joins(twice), 1) << "the other has two readers";
  Graph doubled = forked(Cut::Nowhere);
  for (Node& n : doubled.nodes)
    if (n.name == "tanh/grad/add") n.inputs[1] = n.inputs[0];
  EXPECT_EQ(joins(doubled), 1) << "added to itself";
}

// "one", "two" and "three" share the gradient of their sum. Each has its own bias sum.
TEST(FuseBiasGrad, TakesEachLayersOwnSum) {
  const Graph before = forked(Cut::BehindOne), after = fuse_bias_grad(before);
  expect_kept(before, after);
  std::map<std::string, int> is = count_ops(after);
  EXPECT_EQ(is["linear_weight_bias_grad"], 4);
  EXPECT_EQ(is["linear_weight_grad"] + is["sum_rows"], 0);
  EXPECT_EQ(after.nodes.size(), before.nodes.size() - 4);
  for (const GradientUse& u : after.gradients) {
    const std::string& parameter = after.parameters[u.parameter].name;
    const std::string layer = parameter.substr(0, parameter.find('/'));
    EXPECT_EQ(after.producer(u.gradient).name, layer + "/linear/grad/linear_weight_grad");
    EXPECT_EQ(after.values[u.gradient].output, parameter.ends_with("bias") ? 1 : 0);
  }
}

TEST(FuseBiasGrad, LeavesSumsOfWhatNoProductReadsBefore) {
  const auto joins = [](const Graph& g) {
    return count_ops(fuse_bias_grad(g))["linear_weight_bias_grad"];
  };
  const auto changed = [](const char* name, const auto& change) {
    Graph g = forked(Cut::BehindOne);
    for (std::size_t id = 0; id < g.nodes.size(); ++id)
      if (g.nodes[id].name == name) change(g, g.nodes[id]);
    return g;
  };
  const auto to_block_1 = [](Graph& g, Node& sum) {
    sum.block = 1;
    for (GradientUse& u : g.gradients)
      if (u.gradient == sum.outputs[0]) u.block = 1;
  };
  EXPECT_EQ(joins(changed("one/linear/grad/sum_rows", to_block_1)), 3) << "of another block";
  const auto of_other = [](Graph& g, Node& sum) {
    sum.inputs[0] = node_named(g, "tanh").outputs[0];
  };
  EXPECT_EQ(joins(changed("two/linear/grad/sum_rows", of_other)), 3) << "of another tensor";
  const auto without_sum = [](Graph& g, Node& sum) {
    const auto is_its = [&](const GradientUse& u) { return u.gradient == sum.outputs[0]; };
    g.gradients.erase(std::find_if(g.gradients.begin(), g.gradients.end(), is_its));
    sum.op = "tanh";  // no longer a bias gradient
  };
  Graph spare = changed("three/linear/grad/sum_rows", without_sum);
  const Graph after = fuse_bias_grad(spare);
  EXPECT_EQ(node_named(after, "three/linear/grad/linear_weight_grad").op, "linear_weight_grad")
      << "a sum goes to the last product before it, not to one without a bias";
  EXPECT_EQ(node_named(after, "two/linear/grad/linear_weight_grad").op, "linear_weight_bias_grad");
}

TEST(FuseBiasGrad, KeepsWhatElseReadsTheSum) {
  Graph before = forked(Cut::Nowhere);
  before.fetches.push_back({"db", node_named(before, "two/linear/grad/sum_rows").outputs[0]});
  const Graph after = fuse_bias_grad(before);
  expect_kept(before, after);
  const Value& fetched = after.values[after.fetches.back().second];
  EXPECT_EQ(after.nodes[fetched.producer].op, "linear_weight_bias_grad");
  EXPECT_EQ(fetched.output, 1);
}

}  // namespace
}  // namespace hetu
