// Tests types, names and blocks of a builder, and every error. An error names the node, the value
// that was found and the expected value.
#include "graph/builder.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "base/nearest.h"
#include "tests/graph/models.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// A builder with x float32[B, 4], ids int32[B], w float32[3, 4].
struct Fixture {
  Builder b{op_set()};
  ValueId x = b.placeholder("x", DType::Float32, {kBatch, 4});
  ValueId ids = b.placeholder("ids", DType::Int32, {kBatch});
  ValueId w = b.parameter("w", {3, 4}, {});
};

template <class F>
void expect_error(F act, const std::string& text) {
  EXPECT_THAT(
      [&] {
        Fixture f;
        act(f);
      },
      ThrowsMessage<Error>(HasSubstr(text)));
}

TEST(Builder, InfersTypesAtOnce) {
  Fixture f;
  const ValueId y = f.b.apply("linear", {f.x, f.w});
  EXPECT_EQ(to_string(f.b.type(y)), "float32[B, 3]");
  EXPECT_EQ(tensor_bytes(f.b.type(y), 8), 8 * 3 * 4);
  const ValueId flat = f.b.apply("reshape", {y}, {{"shape", Shape{-3}}});
  EXPECT_EQ(to_string(f.b.type(flat)), "float32[3B]");
}

TEST(Builder, MakesNamesUniqueAndScoped) {
  Fixture f;
  {
    const Scope outer(f.b, "layer");
    const Scope inner(f.b, "fc");
    f.b.apply("relu", {f.x}, {}, "act");
    f.b.apply("relu", {f.x}, {}, "act_1");
    f.b.apply("relu", {f.x}, {}, "act");
    f.b.parameter("weight", {1}, {});
  }
  f.b.apply("relu", {f.x});
  f.b.apply("relu", {f.x});
  std::vector<std::string> names;
  for (const Node& n : f.b.graph().nodes) names.push_back(n.name);
  EXPECT_THAT(names, testing::ElementsAre("x", "ids", "w", "layer/fc/act", "layer/fc/act_1",
                                          "layer/fc/act_2", "layer/fc/weight", "relu", "relu_1"));
}

TEST(Builder, CutsMakeNoEmptyBlocks) {
  Fixture f;
  f.b.cut();
  const ValueId a = f.b.apply("relu", {f.x});
  f.b.cut();
  f.b.cut();
  const ValueId p = f.b.parameter("p", {4}, {});
  const ValueId c = f.b.apply("relu", {a});
  f.b.cut();
  const Graph g = f.b.finish();
  EXPECT_EQ(g.blocks, 2);
  EXPECT_EQ(g.producer(a).block, 0);
  EXPECT_EQ(g.producer(p).block, 1);
  EXPECT_EQ(g.producer(c).block, 1);
}

TEST(Builder, ThePlaceholderOfAFieldIsOneValue) {
  Fixture f;
  const Scope scope(f.b, "inner");
  EXPECT_EQ(f.b.placeholder("x", DType::Float32, {kBatch, 4}), f.x);
  expect_error(
      [](Fixture& g) {
        g.b.placeholder("x", DType::Int32, {kBatch, 4});
      },
      "placeholder 'x': requested as int32[B, 4], but it already exists as float32[B, 4]");
}

TEST(Builder, IsEmptyAfterFinish) {
  Fixture f;
  EXPECT_EQ(f.b.finish().nodes.size(), 3U);
  EXPECT_TRUE(f.b.graph().nodes.empty());
  f.b.parameter("w", {1}, {});
}

TEST(Builder, ErrorsOfItsOwn) {
  expect_error([](Fixture& f) { f.b.apply("relo", {f.x}); },
               "unknown operator 'relo'; did you mean 'relu'?");
  expect_error([](Fixture& f) { f.b.apply("zzzzzzzzzzz", {f.x}); },
               "unknown operator 'zzzzzzzzzzz'");
  expect_error([](Fixture& f) { f.b.apply("relu", {77}); },
               "relu 'relu': input 0 is not a value of this graph");
  expect_error(
      [](Fixture& f) {
        f.b.apply("relu", {f.x, f.x}, {}, "act");
      },
      "relu 'act': expected 1 inputs (x), got 2");
  expect_error([](Fixture& f) { f.b.apply("linear", {f.x}); },
               "linear 'linear': expected 2 to 3 inputs (x, w, [b]), got 1");
  expect_error([](Fixture& f) { f.b.apply("scale", {f.x}); },
               "scale 'scale': attribute 'factor' (the constant) is missing; it must be a number");
  expect_error(
      [](Fixture& f) {
        f.b.apply("scale", {f.x}, {{"facto", 1.0}});
      },
      "scale 'scale': has no attribute 'facto'; did you mean 'factor'?");
  expect_error(
      [](Fixture& f) {
        f.b.apply("scale", {f.x}, {{"by", 1.0}});
      },
      "scale 'scale': has no attribute 'by'; it has: factor");
  expect_error(
      [](Fixture& f) {
        f.b.apply("relu", {f.x}, {{"by", 1.0}});
      },
      "relu 'relu': has no attribute 'by'; it has none");
  expect_error(
      [](Fixture& f) {
        f.b.apply("scale", {f.x}, {{"factor", std::string("2")}});
      },
      "scale 'scale': attribute 'factor' is a string, expected a number");
  expect_error([](Fixture& f) { f.b.parameter("w", {1}, {}); }, "parameter 'w': the name is taken");
  expect_error([](Fixture& f) { f.b.parameter("v", {kBatch}, {}); },
               "parameter 'v': shape [B] must not depend on the batch");
  expect_error([](Fixture& f) { f.b.placeholder("w", DType::Float32, {}); },
               "placeholder 'w': the name is taken");
  expect_error(
      [](Fixture& f) {
        f.b.placeholder("y", DType::Float32, {3, kBatch});
      },
      "placeholder 'y': float32[3, B] has the batch on axis 1");
  expect_error(
      [](Fixture& f) { f.b.fetch("w", f.w); },
      "fetch 'w': 'w' is a parameter, which cannot be fetched; fetch a value that operators");
  expect_error(
      [](Fixture& f) {
        f.b.fetch("c", f.b.apply("greater", {f.w, f.w}));
      },
      "fetch 'c': 'greater' is bool[3, 4]; a fetch must have the batch as its first axis, or be");
  expect_error([](Fixture& f) { f.b.pop_scope(); }, "pop_scope without a push_scope");
  expect_error(
      [](Fixture& f) {
        const ValueId s = f.b.apply("sum", {f.x}, {}, "total");
        f.b.fetch("s", s);
        f.b.fetch("s", s);
      },
      "fetch 's': the name is taken by 'total'");
}

// Sizes beyond any machine are refused where they are given, before anything computes with them.
TEST(Builder, BoundsSizesAndStarts) {
  const std::int64_t huge = std::int64_t{1} << 61;
  const auto refuses = [](const char* what, const auto& make) {
    Builder b(op_set());
    const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 4, 4, 4});
    EXPECT_THAT([&] { make(b, x); }, ThrowsMessage<Error>(HasSubstr(what)));
  };
  const char* size = "more than 2^44 elements, the most that a tensor may have";
  refuses(size, [&](Builder& b, ValueId) { b.placeholder("y", DType::Float32, {kBatch, huge}); });
  refuses(size, [&](Builder& b, ValueId) { b.parameter("w", {1LL << 40, 1LL << 40}, {}); });
  refuses(size, [&](Builder& b, ValueId) { b.parameter("w", {0, huge}, {}); });
  refuses(size, [&](Builder& b, ValueId) { b.buffer("b", {huge, huge}, {}); });
  refuses("must be from -2^44 to 2^44", [&](Builder& b, ValueId x) {
    b.apply("reshape", {x}, {{"shape", Shape{huge, 2}}});
  });
  refuses("must be from -2^44 to 2^44", [&](Builder& b, ValueId x) {
    const ValueId w = b.parameter("w", {4, 4, 3, 3}, {});
    b.apply("conv2d", {x, w}, {{"dilation", huge}});
  });
  refuses("does not have as many elements", [&](Builder& b, ValueId x) {
    b.apply("reshape", {x}, {{"shape", Shape{1LL << 40, 1LL << 40}}});
  });
  for (const double start : {double{INFINITY}, double{NAN}, 1e300}) {
    refuses("its initial value must be a finite float32 number", [&](Builder& b, ValueId) {
      b.parameter("w", {2}, {Initializer::Kind::Normal, 0, start});
    });
    refuses("its initial value must be a finite float32 number", [&](Builder& b, ValueId) {
      b.buffer("b", {2}, {Initializer::Kind::Constant, start, 0});
    });
  }
}

TEST(Builder, ErrorsOfTheRecords) {
  const auto apply = [](const std::string& op, std::vector<std::pair<DType, Shape>> types,
                        Attrs attrs, const std::string& text) {
    expect_error(
        [&](Fixture& f) {
          std::vector<ValueId> inputs;
          inputs.reserve(types.size());
          for (const auto& [dtype, shape] : types) {
            inputs.push_back(f.b.placeholder("in" + std::to_string(inputs.size()), dtype, shape));
          }
          f.b.apply_all(op, inputs, attrs, "node");
        },
        op + " 'node': " + text);
  };
  const DType f32 = DType::Float32;
  const DType i32 = DType::Int32;
  const std::int64_t one = 1;
  const Shape bsh = {kBatch, 5, 6};
  apply("add", {{f32, {2, 3}}, {f32, {3, 2}}}, {},
        "a float32[2, 3] and b float32[3, 2] do not broadcast: 3 and 2 on axis 1 from the last; "
        "they must be equal, or one of them 1");
  apply("mul", {{f32, {kBatch, 3}}, {f32, {5, 3}}}, {},
        "a float32[B, 3] and b float32[5, 3] do not broadcast: B and 5 on axis 2 from the last; "
        "they must be equal, or one of them 1");
  apply("add", {{f32, {kBatch, 3}}, {f32, {2, 1, 3}}}, {},
        "the result float32[2, B, 3] would have the batch on axis 1; it must stay on axis 0");
  apply("concat", {{f32, {2, 3}}}, {}, "expected 2 or more inputs (a, b, ...), got 1");
  apply("concat", {{f32, {2, 3}}, {f32, {2, 1}}, {f32, {3, 1}}}, {},
        "input 2 must be float32[2, 3] like the first input, except on axis -1; got float32[3, 1]");
  apply("concat", {{f32, {kBatch, 3}}, {f32, {kBatch, 3}}}, {{"axis", std::int64_t{0}}},
        "axis 0 of a float32[B, 3] is the batch, which this operator cannot change");
  apply("slice", {{f32, {2, 3}}},
        {{"first", std::int64_t{1}}, {"size", std::int64_t{2}}, {"step", std::int64_t{2}}},
        "positions 1 to 4 are not all on axis -1 of x float32[2, 3]");
  apply("top_k", {{f32, {2, 3}}}, {{"k", std::int64_t{4}}}, "k must be 1 to 3 for x float32[2, 3]");
  apply("reduce_mean", {{f32, {kBatch, 3}}}, {{"axes", Shape{0}}},
        "axis 0 of x float32[B, 3] is the batch, which is split into micro-batches; only sums over "
        "it are possible (hetu.step_mean computes a mean over the step)");
  apply("reduce_sum", {{f32, {2, 3}}}, {{"axes", Shape{1, -1}}},
        "axes [1, -1] name an axis of x float32[2, 3] twice");
  apply("reduce_max", {{f32, {2, 0}}}, {{"axes", Shape{1}}},
        "axis 1 of x float32[2, 0] has no elements");
  apply("where", {{i32, {2}}, {f32, {2}}, {f32, {2}}}, {}, "condition is int32[2], expected bool");
  apply("less", {{i32, {2}}, {f32, {2}}}, {},
        "a and b must have one dtype, float32 or int32, got int32[2] and float32[2]; use cast");
  apply("relu", {{i32, {2}}}, {}, "x is int32[2], expected float32");
  apply("fill", {}, {{"shape", Shape{kBatch}}, {"value", 0.0}},
        "shape [B] must not depend on the batch");
  apply("div_scalar", {{f32, {2}}, {f32, {1}}}, {}, "s must be [] (a scalar), got float32[1]");
  apply("cast", {{DType::Int64, {2}}}, {{"dtype", std::string("float32")}},
        "cast converts between float32, int32 and bool, and between bfloat16 or float16 and "
        "float32, not "
        "from int64[2] to "
        "float32");
  apply("linear", {{f32, {kBatch, 4}}, {f32, {3, 5}}}, {},
        "w must be [out, 4] to fit x float32[B, 4], got float32[3, 5]");
  apply("linear", {{f32, {kBatch, 4}}, {f32, {3, 4}}, {f32, {4}}}, {},
        "b must be [3] to fit w float32[3, 4], got float32[4]");
  apply("linear_input_grad", {{f32, {kBatch, 3}}, {f32, {4, 3}}}, {}, "w must be [3, in]");
  apply("linear_weight_grad", {{f32, {kBatch, 3}}, {f32, {2, 3}}}, {},
        "dy must have the rows of x float32[B, 3], got float32[2, 3]");
  apply("matmul", {{f32, {2, 3}}, {f32, {4, 5}}}, {},
        "columns of a must equal rows of b (after transposition), got float32[2, 3] and float32[4, "
        "5]");
  apply("matmul", {{f32, {2, 3, 4}}, {f32, {5, 4, 3}}}, {},
        "a and b must have equal leading dimensions");
  apply("matmul", {{f32, {2, 3}}, {f32, {3, 5}}}, {{"transpose_a", std::int64_t{2}}},
        "transpose_a must be 0 or 1, got 2");
  apply("matmul", {{f32, {4, 3}}, {f32, {kBatch, 3}}}, {{"transpose_b", one}},
        "the result float32[4, B] would have the batch on axis 1");
  apply("reshape", {{f32, {kBatch, 4}}}, {{"shape", Shape{kBatch, 5}}},
        "[B, 5] does not have as many elements as x float32[B, 4]");
  apply("reshape", {{f32, {kBatch, 4}}}, {{"shape", Shape{4}}},
        "[4] does not have as many elements");
  apply("transpose", {{f32, {2, 3}}}, {{"perm", Shape{0, 0}}},
        "perm must be a permutation of the 2 axes of x float32[2, 3], got [0, 0]");
  apply("transpose", {{f32, {kBatch, 3}}}, {{"perm", Shape{1, 0}}},
        "the result float32[3, B] would have the batch on axis 1; it must stay on axis 0; the "
        "inputs are float32[B, 3]");
  apply("select", {{f32, {kBatch, 3}}}, {{"axis", std::int64_t{0}}, {"index", one}},
        "axis must be a static axis of x float32[B, 3], got 0");
  apply("select", {{f32, {kBatch, 3}}}, {{"axis", one}, {"index", std::int64_t{3}}},
        "index must be in [0, 3) on axis 1 of x float32[B, 3], got 3");
  apply("embedding", {{f32, {5, 3}}, {f32, {2}}}, {},
        "ids must be int32, got float32[2]; give the data object whole numbers, as in "
        "ids.astype(\"int32\")");
  apply("embedding", {{f32, {5}}, {i32, {2}}}, {}, "table must be [rows, width], got float32[5]");
  apply("layer_norm", {{f32, {2, 3}}, {f32, {2}}, {f32, {3}}}, {},
        "gamma must be [3] to fit x float32[2, 3], got float32[2]");
  apply("dropout", {{f32, {2, 3}}}, {{"p", one}}, "p must be in [0, 1), got 1");
  apply("dropout", {{f32, {}}}, {{"p", 0.1}}, "x must have at least 1 dimensions, got float32[]");
  apply("softmax", {{f32, {}}}, {}, "x must have at least 1 dimensions");
  apply("attention", {{f32, bsh}, {f32, bsh}, {f32, bsh}, {i32, {kBatch, 5}}},
        {{"heads", std::int64_t{4}}}, "heads must divide the width 6 of q float32[B, 5, 6], got 4");
  apply("attention", {{f32, bsh}, {f32, bsh}, {f32, bsh}, {i32, {kBatch, 6}}}, {{"heads", one}},
        "mask must be [B, 5] to fit q float32[B, 5, 6], got int32[B, 6]");
  apply("attention", {{f32, bsh}, {f32, bsh}, {f32, bsh}, {DType::Bool, {5, 6}}}, {{"heads", one}},
        "a bool mask must be [5, 5] or [B, 5, 5] to fit q float32[B, 5, 6], or [B, 1, 5, 5] with 1 "
        "for "
        "the batch or heads; got bool[5, 6]");
  apply("softmax_cross_entropy", {{f32, {-5, 7}}, {i32, {kBatch}}}, {},
        "labels must be [5B] to fit logits float32[5B, 7], got int32[B]");
  apply("softmax_cross_entropy", {{f32, {kBatch, 5, 7}}, {i32, {-5}}}, {},
        "logits must be [rows, classes], got float32[B, 5, 7]");
  apply("step_sum", {{f32, {1}}}, {}, "x must be [] (a scalar), got float32[1]");
}

TEST(Layers, MeanLossFlattensLeadingAxes) {
  Builder b(op_set());
  const ValueId logits = b.placeholder("logits", DType::Float32, {kBatch, 6, 11});
  const ValueId labels = b.placeholder("labels", DType::Int32, {kBatch, 6});
  EXPECT_EQ(b.type(ops::softmax_cross_entropy(b, logits, labels)), TensorType{});
  const Graph g = b.finish();
  EXPECT_EQ(g.values[node_named(g, "loss/softmax_cross_entropy").inputs[0]].type.shape,
            (Shape{-6, 11}));
  // Both the loss and the count read the reshaped labels.
  EXPECT_EQ(node_named(g, "loss/reshape_1/count").phase, Phase::Count);
}

TEST(Attrs, AreSortedAndTyped) {
  Attrs attrs = {{"b", 1.5}, {"a", std::int64_t{2}}};
  attrs.set("b", 2.5);
  EXPECT_EQ(attrs.items()[0].first, "a");
  EXPECT_EQ(attrs.real("b"), 2.5);
  EXPECT_EQ(attrs.real("a"), 2.0);
  EXPECT_THAT([&] { (void)attrs.integer("b"); },
              ThrowsMessage<Error>("attribute 'b' is a number, expected an integer"));
  EXPECT_THAT([&] { (void)attrs.text("c"); },
              ThrowsMessage<Error>("attribute 'c' is missing; the attributes are: a, b"));
}

TEST(Nearest, SuggestsOnlyWhatIsNear) {
  EXPECT_EQ(nearest_name("sofmax", {"sum", "softmax", "relu"}), "softmax");
  EXPECT_EQ(nearest_name("conv", {"sum", "softmax"}), "");
  EXPECT_EQ(did_you_mean("rleu", {"relu"}), "; did you mean 'relu'?");
  EXPECT_EQ(did_you_mean("x", {}), "");
}

// Breaks each rule of check_graph in turn.
TEST(CheckGraph, FindsWhatIsBroken) {
  const Graph good = trained(transformer());
  const auto broken = [&](const std::function<void(Graph&)>& act) {
    return [&good, act] {
      Graph g = good;
      act(g);
      check_graph(g);
    };
  };
  const auto at = [](Graph& g, const std::string& name) -> Node& {
    return const_cast<Node&>(node_named(g, name));
  };
  const auto says = [](const char* text) { return ThrowsMessage<Error>(HasSubstr(text)); };
  EXPECT_NO_THROW(check_graph(good));
  EXPECT_THAT(broken([](Graph& g) { g.nodes[5].name = g.nodes[4].name; }),
              says("name occurs twice"));
  EXPECT_THAT(broken([](Graph& g) { g.nodes[5].block = 9; }), says("block out of range"));
  EXPECT_THAT(broken([&](Graph& g) { at(g, "words").inputs[0] = 999; }),
              says("node 'words' (embedding): input value does not exist"));
  EXPECT_THAT(broken([&](Graph& g) { at(g, "words").inputs[0] = g.loss; }),
              says("an input is made after its consumer"));
  EXPECT_THAT(broken([](Graph& g) { g.values[7].producer = 2; }),
              says("an output names another producer"));
  EXPECT_THAT(broken([](Graph& g) { g.values.pop_back(); }), says("does not exist"));
  EXPECT_THAT(broken([](Graph& g) { g.values.push_back({}); }),
              says("values are listed, but the nodes produce"));
  EXPECT_THAT(broken([](Graph& g) {
                g.values[0].type.shape = {3, kBatch};
              }),
              says("the batch is on an axis other than 0"));
  EXPECT_THAT(broken([&](Graph& g) { at(g, "words").block = 2; }),
              says("reads a forward value of a later block"));
  EXPECT_THAT(broken([&](Graph& g) { at(g, "words").phase = Phase::Count; }),
              says("a Count node reads a value that is not of phase Count"));
  EXPECT_THAT(broken([&](Graph& g) { at(g, "mlm_loss/step_sum").op = "scale"; }),
              says("reads a Count value that is not a step_sum"));
  EXPECT_THAT(broken([&](Graph& g) { at(g, "nsp/linear").phase = Phase::InputGrad; }),
              says("node 'nsp_loss/softmax_cross_entropy' (softmax_cross_entropy): a forward node "
                   "reads a gradient"));
  EXPECT_THAT(broken([&](Graph& g) { at(g, "decoder/grad/linear_input_grad").block = 1; }),
              says("reads a gradient of an earlier block"));
  EXPECT_THAT(
      broken([&](Graph& g) { at(g, "decoder/grad/linear_input_grad").phase = Phase::WeightGrad; }),
      says("reads a value of phase WeightGrad"));
  EXPECT_THAT(
      broken([&](Graph& g) { at(g, "words/grad/embedding_grad").phase = Phase::InputGrad; }),
      says("must be computed in phase WeightGrad"));
  EXPECT_THAT(broken([](Graph& g) { g.gradients[0].use = 1; }),
              says("the uses of a parameter must be numbered"));
  EXPECT_THAT(broken([](Graph& g) { std::swap(g.gradients[2], g.gradients[3]); }),
              says("gradient uses are not sorted"));
  EXPECT_THAT(broken([](Graph& g) { g.gradients[0].gradient = g.gradients[4].gradient; }),
              says("the gradient of a parameter must be computed in phase WeightGrad, in the block "
                   "of its use"));
  EXPECT_THAT(broken([](Graph& g) { g.parameters.pop_back(); }), says("parameter nodes"));
  EXPECT_THAT(broken([](Graph& g) { std::swap(g.parameters[0], g.parameters[1]); }),
              says("not listed in model order"));
  EXPECT_THAT(broken([](Graph& g) { g.placeholders.pop_back(); }), says("list of placeholders"));
  EXPECT_THAT(broken([](Graph& g) { g.loss = 3; }), says("the loss must be a float32 scalar"));
  EXPECT_THAT(broken([](Graph& g) { g.fetches.push_back(g.fetches[0]); }),
              says("fetch 'loss' occurs twice"));
}

}  // namespace
}  // namespace hetu
