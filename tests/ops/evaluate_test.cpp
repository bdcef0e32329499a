// Evaluates a whole graph with the reference kernels. Its gradients must agree with finite
// differences of its loss.
#include "ops/evaluate.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/passes/fuse_norm.h"
#include "ops/registry.h"
#include "tests/executor/conv_model.h"

namespace hetu {
namespace {

constexpr int kRows = 4;

NamedTensors leaves_of(const Graph& g) {
  const testing_model::Images batch = testing_model::images(kRows, 0);
  NamedTensors out = {{"image", {batch.images.begin(), batch.images.end()}},
                      {"label", {batch.labels.begin(), batch.labels.end()}}};
  std::mt19937_64 random(9);
  std::normal_distribution<double> normal;
  const auto draw = [&](const std::string& name, ValueId v, double mean) {
    std::vector<double>& to = out[name];
    for (std::int64_t i = 0; i < element_count(g.values[v].type.shape); ++i)
      to.push_back(mean + 0.3 * normal(random));
  };
  for (const Parameter& p : g.parameters) draw(p.name, p.value, 0);
  for (const StateBuffer& b : g.buffers) draw(b.name, b.value, 1);
  return out;
}

TEST(Evaluate, GradientsAgreeWithDifferences) {
  const Graph g = testing_model::residual_model();
  NamedTensors leaves = leaves_of(g);
  const Evaluation at = evaluate(g, kRows, leaves, DType::Float64);
  EXPECT_EQ(at.buffers.size(), g.buffers.size());
  constexpr double kStep = 1e-6;
  for (const Parameter& p : g.parameters) {
    double& x = leaves.at(p.name).back();
    const double was = x;
    const auto loss = [&](double value) {
      x = value;
      return evaluate(g, kRows, leaves, DType::Float64).fetches.at("loss");
    };
    const double slope = (loss(was + kStep) - loss(was - kStep)) / (2 * kStep);
    x = was;
    EXPECT_NEAR(at.gradients.at(p.name).back(), slope, 1e-7) << p.name;
  }
  const Evaluation single = evaluate(g, kRows, leaves, DType::Float32);
  EXPECT_NEAR(single.fetches.at("loss"), at.fetches.at("loss"), 1e-5);
}

TEST(Evaluate, FusedNormsGiveTheSameBits) {
  const Graph g = testing_model::residual_model();
  const NamedTensors leaves = leaves_of(g);
  const Evaluation apart = evaluate(g, kRows, leaves, DType::Float32);
  const Evaluation fused = evaluate(fuse_norm(g), kRows, leaves, DType::Float32);
  EXPECT_EQ(fused.fetches, apart.fetches);
  EXPECT_EQ(fused.gradients, apart.gradients);
  EXPECT_EQ(fused.buffers, apart.buffers);
}

TEST(Evaluate, ReadsFetchedIntegersAsIntegers) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Int32, {kBatch, 3});
  b.fetch("first", b.apply("flip", {x}, {{"axis", std::int64_t{1}}}));
  const Graph g = b.finish();
  for (const DType floats : {DType::Float32, DType::Float64})
    EXPECT_EQ(evaluate(g, 2, {{"x", {1, 2, 7, 4, 5, 6}}}, floats).fetches.at("first"), 7);
}

TEST(Evaluate, NamesALeafThatDoesNotFit) {
  const Graph g = testing_model::residual_model();
  NamedTensors leaves = leaves_of(g);
  leaves.at("fc.bias").pop_back();
  EXPECT_THAT([&] { evaluate(g, kRows, leaves, DType::Float64); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("'fc.bias' is float64[5], got 4")));
  leaves.erase("fc.bias");
  EXPECT_THAT([&] { evaluate(g, kRows, leaves, DType::Float64); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("no values for the parameter")));
}

}  // namespace
}  // namespace hetu
