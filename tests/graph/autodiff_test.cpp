#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "base/error.h"
#include "tests/graph/crossings.h"
#include "tests/graph/models.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Recomputes the definition of phases. InputGrad nodes are the ancestors of the gradient of an
// activation. The gradient nodes of an activation's producer read the activation's gradient.
// Therefore, if the gradient nodes of another forward node read a gradient node, that node and all
// its ancestors are I. A W node feeds only W nodes that derive from the same block.
TEST(Autodiff, PhasesAndBlocksFollowTheForwardNodes) {
  const Graph g = trained(transformer());
  check_types(op_set(), g);
  std::map<std::string, const Node*> forward;
  for (const Node& n : g.nodes) {
    if (n.phase == Phase::Forward || n.phase == Phase::Count) forward[n.name] = &n;
  }
  std::size_t gradients = 0;
  for (const Node& n : g.nodes) {
    if (n.phase != Phase::InputGrad && n.phase != Phase::WeightGrad) continue;
    ++gradients;
    const std::size_t at = n.name.rfind("/grad/");
    ASSERT_NE(at, std::string::npos) << n.name;
    ASSERT_TRUE(forward.count(n.name.substr(0, at))) << n.name;
    EXPECT_EQ(n.block, forward[n.name.substr(0, at)]->block) << n.name;
  }
  EXPECT_GT(gradients, 40U);
  const std::set<std::string> weight_ops = {"linear_weight_grad", "sum_rows",
                                            "layer_norm_gamma_grad", "embedding_grad"};
  for (const Node& n : g.nodes) {
    const bool weight = weight_ops.count(n.op) > 0;
    EXPECT_EQ(n.phase == Phase::WeightGrad, weight) << n.name << " " << n.op;
  }
}

TEST(Autodiff, GradientNodesStandInReverseModelOrder) {
  const Graph g = trained(transformer());
  std::map<std::string, int> position;
  int last = 1 << 30;
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& n = g.nodes[i];
    if (n.phase == Phase::Forward || n.phase == Phase::Count) {
      position[n.name] = static_cast<int>(i);
      continue;
    }
    const int from = position.at(n.name.substr(0, n.name.rfind("/grad/")));
    EXPECT_LE(from, last) << n.name;
    last = from;
  }
}

// Runs the node list restricted to a phase and a range of blocks, stage by stage, as workers do.
// Every input must have been computed before.
TEST(Autodiff, EveryStageCanRunAPhaseInNodeOrder) {
  const Graph g = trained(transformer());
  for (int cut = 0; cut <= g.blocks; ++cut) {
    std::vector<bool> made(g.values.size(), false);
    const auto run = [&](Phase phase, int first, int end) {
      for (const Node& n : g.nodes) {
        if (is_leaf(n)) {
          made[n.outputs[0]] = true;
        } else if (n.phase == phase && n.block >= first && n.block < end) {
          for (const ValueId v : n.inputs) EXPECT_TRUE(made[v]) << n.name << " with cut " << cut;
          for (const ValueId v : n.outputs) made[v] = true;
        }
      }
    };
    run(Phase::Count, 0, g.blocks);
    run(Phase::Forward, 0, cut);
    run(Phase::Forward, cut, g.blocks);
    run(Phase::InputGrad, cut, g.blocks);
    run(Phase::InputGrad, 0, cut);
    run(Phase::WeightGrad, 0, cut);  // W of different stages may run in any order
    run(Phase::WeightGrad, cut, g.blocks);
    EXPECT_TRUE(std::all_of(made.begin(), made.end(), [](bool m) { return m; })) << "cut " << cut;
  }
}

TEST(Autodiff, ATiedParameterHasTwoUsesInModelOrder) {
  const Graph g = trained(transformer());
  const std::vector<GradientUse> uses = uses_of(g, "words/weight");
  ASSERT_EQ(uses.size(), 2U);
  EXPECT_EQ(uses[0].block, 0);
  EXPECT_EQ(g.producer(uses[0].gradient).name, "words/grad/embedding_grad");
  EXPECT_EQ(uses[1].block, 3);
  EXPECT_EQ(g.producer(uses[1].gradient).name, "decoder/grad/linear_weight_grad");
  for (const Parameter& p : g.parameters) {
    EXPECT_EQ(uses_of(g, p.name).size(), p.name == "words/weight" ? 2U : 1U) << p.name;
  }
}

TEST(Autodiff, ContributionsAreAddedInAscendingOrderOfConsumerInTheProducersBlock) {
  Builder b(op_set());
  const ValueId p = b.parameter("p", {3}, {});
  const ValueId x =
      b.apply("expand", {b.apply("sum", {p}), b.placeholder("x", DType::Float32, {kBatch, 3})}, {},
              "spread");
  ValueId sum = b.apply("relu", {x}, {}, "first");
  b.cut();
  sum = b.apply("add", {sum, b.apply("tanh", {x}, {}, "second")});
  b.cut();
  sum = b.apply("add", {sum, b.apply("gelu", {x}, {}, "third")});
  b.fetch("loss", b.apply("sum", {sum}, {}, "loss"));
  const Graph g = trained(std::move(b));
  const Node outer = node_named(g, "spread/grad/add_1");
  const Node inner = node_named(g, "spread/grad/add");
  EXPECT_EQ(outer.block, 0);
  EXPECT_EQ(outer.phase, Phase::InputGrad);
  EXPECT_EQ(g.producer(inner.inputs[0]).name, "first/grad/relu_grad");
  EXPECT_EQ(g.producer(inner.inputs[1]).name, "second/grad/tanh_grad");
  EXPECT_EQ(outer.inputs[0], inner.outputs[0]);
  EXPECT_EQ(g.producer(outer.inputs[1]).name, "third/grad/gelu_grad");
  EXPECT_EQ(g.producer(outer.inputs[1]).block, 2);
}

// The gradient of y, computed by block 2, is also the gradient of x, which block 0 has computed.
TEST(Autodiff, AGradientThatIsPassedOnToAnEarlierBlockIsCopied) {
  Builder b(op_set());
  const ValueId x = ops::linear(b, b.placeholder("x", DType::Float32, {kBatch, 3}), 3, "in");
  b.cut();
  const ValueId y = b.apply("add", {x, b.apply("tanh", {x}, {}, "f")}, {}, "y");
  b.cut();
  b.fetch("loss", b.apply("sum", {ops::linear(b, y, 3, "out")}, {}, "loss"));
  const Graph g = trained(std::move(b));
  const Node& copy = node_named(g, "y/grad/reshape");
  EXPECT_EQ(copy.block, 1);
  EXPECT_EQ(copy.phase, Phase::InputGrad);
  EXPECT_EQ(g.producer(copy.inputs[0]).name, "out/linear/grad/linear_input_grad");
  EXPECT_EQ(node_named(g, "in/linear/grad/add").inputs[1], copy.outputs[0]);
  EXPECT_EQ(node_named(g, "f/grad/tanh_grad").inputs[1], copy.inputs[0]) << "not in its own block";
  expect_crossings_of_forward(g);
}

// Builds blocks with sums of some of the last three values and functions of them.
TEST(Autodiff, GradientsCrossWhereActivationsDid) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
    Builder b(op_set());
    std::vector<ValueId> all = {
        ops::linear(b, b.placeholder("x", DType::Float32, {kBatch, 3}), 3, "in")};
    const auto recent = [&] { return all[all.size() - 1 - pick(std::min<int>(3, all.size()))]; };
    for (int i = 0; i < 12; ++i) {
      if (pick(2) == 0) b.cut();
      const ValueId x = all.back(), y = pick(2) == 0 ? recent() : b.apply("tanh", {recent()});
      all.push_back(pick(4) == 0 ? b.apply("tanh", {x}) : b.apply("add", {x, y}));
    }
    b.fetch("loss", b.apply("sum", {ops::linear(b, all.back(), 3, "out")}, {}, "loss"));
    const Graph g = trained(std::move(b));
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, print_graph(g)));
    expect_crossings_of_forward(g);
  }
}

TEST(Autodiff, WhatIsMadeOfParametersAloneCountsAsParameter) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 4});
  const ValueId p = b.parameter("p", {4, 4}, {});
  const ValueId t =
      b.apply("transpose", {b.apply("scale", {p}, {{"factor", 2.0}})}, {{"perm", Shape{1, 0}}});
  const ValueId y = b.apply("matmul", {b.apply("matmul", {x, t}), t});
  b.fetch("loss", b.apply("sum", {y}, {}, "loss"));
  const Graph g = trained(std::move(b));
  EXPECT_EQ(node_named(g, "transpose/grad/add").phase, Phase::WeightGrad);
  EXPECT_EQ(node_named(g, "transpose/grad/transpose").phase, Phase::WeightGrad);
  EXPECT_EQ(node_named(g, "scale/grad/scale").phase, Phase::WeightGrad);
  ASSERT_EQ(uses_of(g, "p").size(), 1U);
  EXPECT_EQ(g.producer(uses_of(g, "p")[0].gradient).name, "scale/grad/scale");
}

// A weight gradient never crosses a block boundary, so such a value counts as an activation.
TEST(Autodiff, AParameterDerivedValueReadInALaterBlockCountsAsActivation) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 4});
  const ValueId p = b.parameter("p", {4, 4}, {});
  const ValueId t = b.apply("transpose", {p}, {{"perm", Shape{1, 0}}});
  ValueId y = b.apply("matmul", {x, t}, {}, "first");
  b.cut();
  y = b.apply("matmul", {y, t}, {}, "second");
  b.fetch("loss", b.apply("sum", {y}, {}, "loss"));
  const Graph g = trained(std::move(b));
  EXPECT_EQ(node_named(g, "transpose/grad/add").phase, Phase::InputGrad);
  EXPECT_EQ(node_named(g, "transpose/grad/transpose").phase, Phase::WeightGrad);
}

TEST(Autodiff, TheGradientOfAUseIsAWValueOfItsBlock) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {2, 3});
  const ValueId p = b.parameter("p", {2, 3}, {});
  const ValueId q = b.parameter("q", {2, 3}, {});
  // The test covers three cases: add passes dy on, one node reads p twice, and dy comes from a
  // later block.
  ValueId y =
      b.apply("add", {b.apply("mul", {p, p}, {}, "square"), b.apply("add", {x, p})}, {}, "y");
  y = b.apply("relu", {b.apply("add", {y, q}, {}, "plus_q")});
  b.cut();
  b.fetch("loss", b.apply("sum", {b.apply("relu", {y})}, {}, "loss"));
  const Graph g = trained(std::move(b));
  const std::vector<GradientUse> uses = uses_of(g, "p");
  ASSERT_EQ(uses.size(), 2U);
  EXPECT_EQ(g.producer(uses[0].gradient).name, "square/grad/add");
  EXPECT_EQ(g.producer(uses[1].gradient).op, "reshape");
  EXPECT_EQ(g.producer(uses_of(g, "q")[0].gradient).name, "plus_q/grad/reshape");
}

// The gradient rule returns one node for both an activation and a parameter. The node is I, and the
// parameter's use gets a copy.
TEST(Autodiff, AGradientNodeSharedByAnActivationAndAParameterIsInputGrad) {
  std::vector<OpDef> defs = op_set().all();
  OpDef mean = op_set().find("add");
  mean.name = "mean_of_two";
  mean.grad = [](Builder& b, const GradArgs& g) -> std::vector<ValueId> {
    const ValueId half = b.apply("scale", {g.dy[0]}, {{"factor", 0.5}});
    return {half, half};
  };
  defs.push_back(mean);
  const OpSet ops(std::move(defs));
  Builder b(ops);
  const ValueId p = b.parameter("p", {3}, {});
  const ValueId q = b.parameter("q", {3}, {});
  const ValueId x = b.apply("mul", {b.placeholder("x", DType::Float32, {3}), p});
  b.fetch("loss", b.apply("sum", {b.apply("mean_of_two", {x, q})}));
  const Graph g = trained(std::move(b));
  EXPECT_EQ(node_named(g, "mean_of_two/grad/scale").phase, Phase::InputGrad);
  EXPECT_EQ(g.producer(uses_of(g, "q")[0].gradient).name, "mean_of_two/grad/reshape");
}

TEST(Autodiff, NothingIsComputedForInputsWithoutParameters) {
  const Graph g = trained(mlp());
  for (const Node& n : g.nodes) {
    EXPECT_NE(n.name, "fc1/linear/grad/linear_input_grad");
    EXPECT_TRUE(n.phase != Phase::InputGrad || n.op != "count_labels");
  }
  EXPECT_EQ(node_named(g, "fc1/linear/grad/linear_weight_grad").block, 0);
  EXPECT_EQ(node_named(g, "fc2/linear/grad/linear_input_grad").phase, Phase::InputGrad);
}

TEST(Autodiff, CountPhaseHoldsTheAncestorsOfStepSums) {
  const Graph g = trained(mlp());
  EXPECT_EQ(node_named(g, "loss/count_labels").phase, Phase::Count);
  EXPECT_EQ(node_named(g, "loss/step_sum").phase, Phase::Count);
  EXPECT_EQ(node_named(g, "labels").phase, Phase::Forward);
  EXPECT_EQ(node_named(g, "loss/mean").phase, Phase::Forward);
}

TEST(Autodiff, WhatTheModelReadsTooIsCountedTwice) {
  Builder b(op_set());
  const ValueId labels = b.placeholder("labels", DType::Int32, {kBatch, 3});
  const ValueId flat = b.apply("reshape", {labels}, {{"shape", Shape{-3}}}, "flat");
  const ValueId count = b.apply("count_labels", {flat}, {}, "count");
  const ValueId total = b.apply("step_sum", {count}, {}, "total");
  b.fetch("count", count);
  b.fetch("share", b.apply("div_scalar", {count, total}, {}, "share"));
  const Graph g = b.finish();
  check_types(op_set(), g);
  EXPECT_EQ(node_named(g, "flat").phase, Phase::Forward);
  EXPECT_EQ(node_named(g, "flat/count").phase, Phase::Count);
  EXPECT_EQ(node_named(g, "count/count").phase, Phase::Count);
  EXPECT_EQ(node_named(g, "total").inputs[0], node_named(g, "count/count").outputs[0]);
  EXPECT_EQ(node_named(g, "share").inputs[0], node_named(g, "count").outputs[0]);
}

TEST(Autodiff, Errors) {
  const auto with = [](const std::function<void(Builder&, ValueId)>& act) {
    return [act] {
      Builder b(op_set());
      act(b, b.parameter("p", {2, 3}, {}));
    };
  };
  EXPECT_THAT(with([](Builder& b, ValueId p) { b.differentiate(b.apply("relu", {p})); }),
              ThrowsMessage<Error>(
                  "differentiate: the loss must be a float32 scalar, but 'relu' is float32[2, 3]"));
  EXPECT_THAT(
      with([](Builder& b, ValueId) {
        const ValueId x = b.placeholder("x", DType::Float32, {kBatch});
        b.differentiate(b.apply("sum", {x}));
      }),
      ThrowsMessage<Error>("differentiate: the loss 'sum' is not computed from any parameter"));
  EXPECT_THAT(with([](Builder& b, ValueId p) {
                b.parameter("lost", {2}, {});
                b.differentiate(b.apply("sum", {p}));
              }),
              ThrowsMessage<Error>(HasSubstr("the loss 'sum' does not depend on 'lost'")));
  EXPECT_THAT(
      with([](Builder& b, ValueId p) {
        b.differentiate(b.apply("sum", {b.apply("sum_rows", {p}, {}, "rows")}));
      }),
      ThrowsMessage<Error>(HasSubstr(
          "'rows' lies between a parameter and the loss, but operator sum_rows has no gradient")));
  EXPECT_THAT(
      with([](Builder& b, ValueId p) {
        const ValueId s = b.apply("sum", {p});
        b.differentiate(b.apply("sum", {b.apply("div_scalar", {p, s}, {}, "mean")}));
      }),
      ThrowsMessage<Error>(HasSubstr("div_scalar 'mean' has no gradient with respect to s")));
  EXPECT_THAT(with([](Builder& b, ValueId p) {
                const ValueId one = b.parameter("one", {3}, {});
                const ValueId mean = b.apply_all("layer_norm", {p, one, one}, {}, "norm")[1];
                b.differentiate(b.apply("sum", {mean}));
              }),
              ThrowsMessage<Error>(HasSubstr("output 1 of layer_norm 'norm' has no gradient")));
  EXPECT_THAT(with([](Builder& b, ValueId p) {
                const ValueId s = b.apply("sum", {p}, {}, "total");
                b.fetch("n", b.apply("step_sum", {s}, {}, "count"));
                b.finish();
              }),
              ThrowsMessage<Error>(HasSubstr("step_sum 'count': depends on 'p' (parameter)")));
  EXPECT_THAT(with([](Builder& b, ValueId p) {
                const ValueId s = b.apply("sum", {p});
                b.differentiate(s);
                b.differentiate(s);
              }),
              ThrowsMessage<Error>(HasSubstr("already been differentiated, with the loss 'sum'")));
  EXPECT_THAT(with([](Builder& b, ValueId p) {
                b.differentiate(b.apply("sum", {p}));
                b.apply("relu", {p});
              }),
              ThrowsMessage<Error>(HasSubstr("relu 'relu': cannot be added after differentiate")));
}

}  // namespace
}  // namespace hetu
