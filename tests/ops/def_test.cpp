// Every operator record must keep the rules of ops/def/README.md. The operator grid tests the
// numbers.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "graph/builder.h"
#include "ops/registry.h"

namespace hetu {
namespace {

class EveryOp : public testing::TestWithParam<std::string> {
 protected:
  const OpDef& def() const { return op_set().find(GetParam()); }
};

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const OpDef& def : op_set().all()) out.push_back(def.name);
  return out;
}

// Binds a symbolic batch of a sample to 2, as the operator grid does.
std::vector<Shape> bound(const Sample& sample) {
  std::vector<Shape> shapes = sample.shapes;
  for (Shape& shape : shapes) shape = bind_batch(shape, 2);
  return shapes;
}

std::vector<TensorType> types_of(const Sample& sample, const std::vector<Shape>& shapes) {
  std::vector<TensorType> types;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    types.push_back({sample.dtypes.empty() ? DType::Float32 : sample.dtypes.at(i), shapes[i]});
  }
  return types;
}

TEST_P(EveryOp, IsDescribed) {
  const OpDef& d = def();
  ASSERT_FALSE(d.doc.empty());
  EXPECT_EQ(d.doc.back(), '.');
  constexpr int kMostWords = 50;  // of a sentence, with its formula
  for (std::size_t at = 0, end = 0; at < d.doc.size(); at = end + 2) {
    end = std::min(d.doc.find(". ", at), d.doc.size());
    const std::string sentence = d.doc.substr(at, end - at);
    EXPECT_LT(std::count(sentence.begin(), sentence.end(), ' '), kMostWords) << sentence;
  }
  std::set<std::string> inputs(d.inputs.begin(), d.inputs.end());
  inputs.insert(d.optional_inputs.begin(), d.optional_inputs.end());
  EXPECT_EQ(inputs.size(), d.inputs.size() + d.optional_inputs.size()) << "inputs named twice";
  EXPECT_GE(d.outputs.size(), 1U);
  std::set<std::string> attrs;
  for (const AttrSpec& spec : d.attrs) {
    EXPECT_FALSE(spec.doc.empty()) << spec.name;
    EXPECT_TRUE(attrs.insert(spec.name).second) << spec.name;
  }
}

TEST_P(EveryOp, SamplesInfer) {
  ASSERT_FALSE(def().samples.empty());
  std::int64_t largest = 0;
  for (const Sample& sample : def().samples) {
    Attrs attrs = sample.attrs;
    const std::vector<TensorType> outputs =
        infer_types(def(), "sample", types_of(sample, bound(sample)), attrs);
    Attrs again = attrs;
    EXPECT_EQ(infer_types(def(), "sample", types_of(sample, bound(sample)), again), outputs);
    EXPECT_EQ(attrs, again) << "filling in defaults twice changes them";
    if (def().flops != nullptr) {
      EXPECT_GE(def().flops({def(), "sample", types_of(sample, bound(sample)), attrs}), 0);
    }
    for (const TensorType& type : outputs) {
      largest = std::max(largest, element_count(type.shape));
    }
  }
  EXPECT_GT(largest, 0) << "all samples are empty";
}

// Checks that the gradient rule gives a gradient of the right type for each float input.
TEST_P(EveryOp, GradientsHaveTheTypesOfTheInputs) {
  if (def().grad == nullptr) return;
  for (const Sample& sample : def().samples) {
    Builder b(op_set());
    std::vector<ValueId> inputs;
    std::size_t floats = 0;
    for (const TensorType& type : types_of(sample, bound(sample))) {
      const std::string name = "in" + std::to_string(inputs.size());
      // The divisor of div_scalar, the shape input of expand and the class weights have no
      // gradient.
      const bool fixed =
          (name == "in1" && (def().name == "div_scalar" || def().name == "expand")) ||
          (name == "in2" && def().name == "softmax_cross_entropy");
      const auto& replaces = def().replaces;
      const bool buffer = std::any_of(replaces.begin(), replaces.end(), [&](const auto& pair) {
        return pair.first == static_cast<int>(inputs.size());
      });
      if (buffer) {
        inputs.push_back(b.buffer(name, type.shape, {}));
      } else if (type.dtype == DType::Float32 && !fixed) {
        inputs.push_back(b.parameter(name, type.shape, {}));
        ++floats;
      } else {
        inputs.push_back(b.placeholder(name, type.dtype, type.shape));
      }
    }
    const std::vector<ValueId> outputs = b.apply_all(def().name, inputs, sample.attrs);
    if (floats == 0 || b.type(outputs[0]).dtype != DType::Float32) continue;
    const ValueId loss = b.apply("sum", {outputs[0]});
    b.fetch("loss", loss);
    b.differentiate(loss);
    const Graph g = b.finish();
    check_types(op_set(), g);
    EXPECT_EQ(g.gradients.size(), floats);
  }
}

// A symbolic batch on axis 0 must give the same type as a bound batch.
TEST_P(EveryOp, InfersWithASymbolicBatch) {
  const std::map<std::string, std::set<std::size_t>> batched = {
      {"linear", {0}},
      {"linear_input_grad", {0}},
      {"linear_input_grad_add", {0, 2}},
      {"linear_weight_grad", {0, 1}},
      {"linear_weight_bias_grad", {0, 1}},
      {"kronecker_factor", {0}},
      {"conv2d_factor", {0}},
      {"div_scalar", {0}},
      {"expand", {1}},
      {"embedding", {1}},
      {"embedding_grad", {0, 1}},
      {"layer_norm", {0}},
      {"linear_relu", {0}},
      {"linear_gelu", {0}},
      {"linear_gelu_tanh", {0}},
      {"dropout_add_layer_norm", {0, 1}},
      {"dropout_add_layer_norm_grad", {0, 2, 3, 4}},
      {"layer_norm_input_grad", {0, 2, 3, 4}},
      {"softmax_cross_entropy", {0, 1}},
      {"softmax_cross_entropy_grad", {0, 1, 2}},
      {"count_labels", {0}},
      {"conv2d", {0}},
      {"conv2d_input_grad", {0}},
      {"batch_norm", {0}},
      {"batch_norm_grad", {0, 4}},
      {"batch_norm_relu", {0}},
      {"batch_norm_add_relu", {0, 5}},
      {"batch_norm_relu_grad", {0, 5}},
      {"batch_norm_add_relu_grad", {0, 4, 5, 6}},
  };
  // Their samples move axis 0, or specify a whole shape.
  const std::set<std::string> fixed = {"fill",   "constant",    "reshape",  "transpose",   "matmul",
                                       "select", "select_grad", "step_sum", "broadcast_to"};
  if (fixed.count(def().name) > 0) return;
  // They work on the last axis, so a sample of one axis has no batch axis.
  const std::set<std::string> by_last = {"concat", "slice", "slice_grad", "sum_last", "top_k"};
  const auto at = batched.find(def().name);
  for (const Sample& sample : def().samples) {
    std::vector<Shape> shapes = bound(sample);
    std::int64_t batch = 1;
    if (def().name == "positions" && shapes[0].size() == 1) continue;  // it counts its only axis
    if (by_last.count(def().name) > 0 && shapes[0].size() == 1) continue;
    if (std::any_of(sample.shapes.begin(), sample.shapes.end(), is_symbolic)) {
      batch = 2;  // the sample marks which inputs have the batch axis
      shapes = sample.shapes;
    } else {
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        if (shapes[i].empty() || (at != batched.end() && at->second.count(i) == 0)) continue;
        batch = shapes[i][0];
        shapes[i][0] = kBatch;
      }
    }
    Attrs attrs = sample.attrs;
    const std::vector<TensorType> wanted =
        infer_types(def(), "bound", types_of(sample, bound(sample)), attrs);
    std::vector<TensorType> found = infer_types(def(), "symbolic", types_of(sample, shapes), attrs);
    for (TensorType& type : found) type.shape = bind_batch(type.shape, batch);
    EXPECT_EQ(found, wanted);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryOp, testing::ValuesIn(names()),
                         [](const auto& op) { return op.param; });

TEST(OpSet, HoldsTheOperatorsOfBert) {
  EXPECT_GE(op_set().all().size(), 38U);
  for (const char* name : {"linear", "attention", "layer_norm", "embedding", "dropout", "gelu",
                           "softmax_cross_entropy", "count_labels", "step_sum"}) {
    EXPECT_TRUE(op_set().has(name)) << name;
  }
  EXPECT_FALSE(op_set().has("linea"));
}

TEST(OpSet, RefusesTwiceTheSameName) {
  const OpDef relu = op_set().find("relu");
  EXPECT_THAT(
      [&] {
        OpSet({relu, relu});
      },
      testing::ThrowsMessage<Error>("operator 'relu' is defined twice"));
  OpDef nameless = relu;
  nameless.infer = nullptr;
  EXPECT_THROW(OpSet({nameless}), Error);
}

TEST(OpSet, CountsFlopsPerSample) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 128, 768});
  const ValueId w = b.parameter("w", {3072, 768}, {});
  const ValueId y = b.apply("linear", {x, w});
  b.apply("relu", {y});
  b.fetch("loss", b.apply("sum", {y}));
  b.differentiate(b.graph().fetches[0].second);
  const Graph g = b.finish();
  std::map<std::string, std::int64_t> flops;
  for (const Node& n : g.nodes) flops[n.op] = node_flops(op_set(), g, n);
  const std::int64_t product = std::int64_t{2} * 128 * 768 * 3072;
  EXPECT_EQ(flops["linear"], product);
  EXPECT_EQ(flops["linear_weight_grad"], product);
  EXPECT_EQ(flops["relu"], 128 * 3072);
  EXPECT_EQ(flops["parameter"], 0);
}

TEST(OpSet, CheckTypesFindsAGraphOfOtherRecords) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 4});
  b.apply("relu", {x}, {}, "act");
  Graph g = b.finish();
  g.values[1].type.shape = {kBatch, 5};
  EXPECT_THAT(
      [&] { check_types(op_set(), g); },
      testing::ThrowsMessage<Error>(
          "relu 'act': output 0 is float32[B, 5], but its operator computes float32[B, 4]"));
}

}  // namespace
}  // namespace hetu
