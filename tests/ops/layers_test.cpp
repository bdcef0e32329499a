// Layers of C++ programs: the parameters they make, and what must hold of what they compute.
#include "ops/layers.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "graph/base/error.h"
#include "ops/evaluate.h"
#include "ops/registry.h"

namespace hetu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::int64_t kTokens = 4, kWidth = 6;

std::vector<std::string> names(const Graph& g) {
  std::vector<std::string> out;
  for (const Parameter& p : g.parameters) out.push_back(p.name);
  return out;
}

// Drawn values for all parameters; 1 for buffers.
NamedTensors drawn(const Graph& g, unsigned seed) {
  NamedTensors out;
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 0.5);
  for (const Parameter& p : g.parameters) {
    for (std::int64_t i = 0; i < element_count(g.values[p.value].type.shape); ++i)
      out[p.name].push_back(normal(random));
  }
  for (const StateBuffer& b : g.buffers)
    out[b.name].assign(static_cast<std::size_t>(element_count(g.values[b.value].type.shape)), 1);
  return out;
}

// A graph whose loss is the sum of what `layer` makes of x, times r: the gradient of r is its
// value.
template <class Layer>
Graph graph_of(const Shape& shape, const Shape& out, const Layer& layer) {
  Builder b(op_set());
  const ValueId x = b.parameter("x", shape, {});
  const ValueId r = b.parameter("r", out, {});
  b.differentiate(b.apply("sum", {b.apply("mul", {layer(b, x), r})}));
  return b.finish();
}

ops::TransformerOptions options() {
  ops::TransformerOptions o;
  o.attention.heads = 2;
  o.attention.causal = true;
  o.wide = 8;
  o.dropout = 0;
  return o;
}

TEST(Layers, ATransformerLayerHasPyTorchsParameters) {
  const Shape shape = {2, kTokens, kWidth};
  const Graph g = graph_of(shape, shape, [](Builder& b, ValueId x) {
    return ops::transformer_layer(b, x, "layer", options());
  });
  EXPECT_THAT(names(g),
              ElementsAre("x", "r", "layer/self_attn/in_proj_weight",
                          "layer/self_attn/in_proj_bias", "layer/self_attn/out_proj/weight",
                          "layer/self_attn/out_proj/bias", "layer/norm1/weight", "layer/norm1/bias",
                          "layer/linear1/weight", "layer/linear1/bias", "layer/linear2/weight",
                          "layer/linear2/bias", "layer/norm2/weight", "layer/norm2/bias"));
  for (const Parameter& p : g.parameters) {
    const bool matrix = g.values[p.value].type.shape.size() > 1;
    if (p.name.size() > 1) EXPECT_EQ(p.decay, matrix) << p.name;
  }
}

TEST(Layers, ACausalLayerSeesNoLaterToken) {
  for (const bool norm_first : {false, true}) {
    for (std::int64_t token = 0; token < kTokens; ++token) {
      SCOPED_TRACE(testing::Message() << "token " << token << ", norm first " << norm_first);
      const Graph g = graph_of({1, kTokens, kWidth}, {1, kWidth}, [&](Builder& b, ValueId x) {
        ops::TransformerOptions o = options();
        o.norm_first = norm_first;
        return b.apply("select", {ops::transformer_layer(b, x, "layer", o)},
                       {{"axis", std::int64_t{1}}, {"index", token}});
      });
      const std::vector<double> slopes =
          evaluate(g, 1, drawn(g, 3), DType::Float64).gradients.at("x");
      for (std::int64_t other = 0; other < kTokens; ++other) {
        double most = 0;
        for (std::int64_t i = 0; i < kWidth; ++i)
          most = std::max(most, std::abs(slopes[static_cast<std::size_t>(other * kWidth + i)]));
        EXPECT_EQ(most > 1e-6, other <= token) << "of token " << other;
      }
    }
  }
}

// Attention of x to memory, and the slopes of one token of the result.
TEST(Layers, ADecoderSeesNoLaterTokenAndAllOfMemoryThatIsNotHidden) {
  constexpr std::int64_t kOthers = 3;
  for (const bool norm_first : {false, true}) {
    for (std::int64_t token = 0; token < kTokens; ++token) {
      SCOPED_TRACE(testing::Message() << "token " << token << ", norm first " << norm_first);
      const Graph g = graph_of({1, kTokens, kWidth}, {1, kWidth}, [&](Builder& b, ValueId x) {
        ops::TransformerOptions o = options();
        o.norm_first = norm_first;
        const ValueId memory = b.parameter("memory", {1, kOthers, kWidth}, {});
        const ValueId mask = b.placeholder("mask", DType::Int32, {1, kOthers});
        return b.apply("select", {ops::decoder_layer(b, x, memory, "layer", o, mask)},
                       {{"axis", std::int64_t{1}}, {"index", token}});
      });
      NamedTensors leaves = drawn(g, 8);
      leaves["mask"] = {1, 1, 0};
      const auto found = evaluate(g, 1, leaves, DType::Float64).gradients;
      const auto most = [&](const std::string& of, std::int64_t at) {
        double largest = 0;
        for (std::int64_t i = 0; i < kWidth; ++i)
          largest =
              std::max(largest, std::abs(found.at(of)[static_cast<std::size_t>(at * kWidth + i)]));
        return largest;
      };
      for (std::int64_t other = 0; other < kTokens; ++other)
        EXPECT_EQ(most("x", other) > 1e-6, other <= token) << "of token " << other;
      for (std::int64_t other = 0; other < kOthers; ++other)
        EXPECT_EQ(most("memory", other) > 1e-6, other < 2) << "of memory " << other;
    }
  }
}

TEST(Layers, ADecoderLayerHasPyTorchsParameters) {
  const Shape shape = {2, kTokens, kWidth};
  const Graph g = graph_of(shape, shape, [&](Builder& b, ValueId x) {
    return ops::decoder_layer(b, x, b.parameter("memory", shape, {}), "layer", options());
  });
  std::vector<std::string> wanted = {"x", "r", "memory"};
  for (const char* name :
       {"self_attn/in_proj_weight", "self_attn/in_proj_bias", "self_attn/out_proj/weight",
        "self_attn/out_proj/bias", "norm1/weight", "norm1/bias", "multihead_attn/in_proj_weight",
        "multihead_attn/in_proj_bias", "multihead_attn/out_proj/weight",
        "multihead_attn/out_proj/bias", "norm2/weight", "norm2/bias", "linear1/weight",
        "linear1/bias", "linear2/weight", "linear2/bias", "norm3/weight", "norm3/bias"})
    wanted.push_back(std::string("layer/") + name);
  EXPECT_THAT(names(g), testing::UnorderedElementsAreArray(wanted));
}

TEST(Layers, AttentionToACopyIsSelfAttention) {
  const Shape shape = {2, kTokens, kWidth};
  for (const bool bias : {true, false}) {
    const auto made = [&](bool copied) {
      return graph_of(shape, shape, [&](Builder& b, ValueId x) {
        const ops::AttentionOptions o = {.heads = 3, .causal = true, .bias = bias};
        const ValueId memory = copied ? b.apply("scale", {x}, {{"factor", 1.0}}) : x;
        return ops::attention(b, x, memory, "attention", o);
      });
    };
    const Graph one = made(false), two = made(true);
    const NamedTensors leaves = drawn(one, 9);
    const auto a = evaluate(one, 1, leaves, DType::Float64).gradients;
    const auto c = evaluate(two, 1, leaves, DType::Float64).gradients;
    for (const auto& [name, slopes] : a)
      for (std::size_t i = 0; i < slopes.size(); ++i)
        EXPECT_NEAR(c.at(name)[i], slopes[i], 1e-12) << name;
  }
}

TEST(Layers, PartsThatGiveNothingLeaveWhatTheyAreAddedTo) {
  const Shape shape = {2, kTokens, kWidth};
  const Graph g = graph_of(shape, shape, [](Builder& b, ValueId x) {
    ops::TransformerOptions o = options();
    o.norm_first = true;
    o.activation = "gelu";
    return ops::transformer_layer(b, x, "layer", o);
  });
  NamedTensors leaves = drawn(g, 4);
  for (const char* name :
       {"self_attn/out_proj/weight", "self_attn/out_proj/bias", "linear2/weight", "linear2/bias"}) {
    for (double& w : leaves.at(std::string("layer/") + name)) w = 0;
  }
  EXPECT_EQ(evaluate(g, 1, leaves, DType::Float64).gradients.at("r"), leaves.at("x"));
}

TEST(Layers, ASmallConvolutionIsLinearInEachPlace) {
  const Graph conv = graph_of({2, 3, 2, 2}, {2, 5, 2, 2}, [](Builder& b, ValueId x) {
    return ops::conv2d(b, x, 5, 1, "conv");
  });
  const Graph rows =
      graph_of({8, 3}, {8, 5}, [](Builder& b, ValueId x) { return ops::linear(b, x, 5, "conv"); });
  const NamedTensors leaves = drawn(conv, 5);
  NamedTensors turned = leaves;  // [N, C, H, W] as [N H W, C]
  for (std::size_t n = 0; n < 2; ++n)
    for (std::size_t c = 0; c < 3; ++c)
      for (std::size_t p = 0; p < 4; ++p)
        turned["x"][(n * 4 + p) * 3 + c] = leaves.at("x")[(n * 3 + c) * 4 + p];
  const std::vector<double> y = evaluate(conv, 1, leaves, DType::Float64).gradients.at("r");
  const std::vector<double> z = evaluate(rows, 1, turned, DType::Float64).gradients.at("r");
  for (std::size_t n = 0; n < 2; ++n)
    for (std::size_t c = 0; c < 5; ++c)
      for (std::size_t p = 0; p < 4; ++p)
        EXPECT_NEAR(y[(n * 5 + c) * 4 + p], z[(n * 4 + p) * 5 + c], 1e-12);
}

TEST(Layers, NormsForgetTheSizeOfWhatTheyNorm) {
  const auto rms = graph_of({3, kWidth}, {3, kWidth},
                            [](Builder& b, ValueId x) { return ops::rms_norm(b, x, "norm", 0); });
  const auto batch = graph_of({3, 2, 2, 2}, {3, 2, 2, 2}, [](Builder& b, ValueId x) {
    return ops::batch_norm(b, x, "norm", 0.1, 0);
  });
  for (const Graph* g : {&rms, &batch}) {
    NamedTensors leaves = drawn(*g, 6);
    const std::vector<double> at = evaluate(*g, 1, leaves, DType::Float64).gradients.at("r");
    for (double& x : leaves.at("x")) x *= 7;
    const Evaluation wide = evaluate(*g, 1, leaves, DType::Float64);
    for (std::size_t i = 0; i < at.size(); ++i) EXPECT_NEAR(wide.gradients.at("r")[i], at[i], 1e-9);
    if (g == &batch) EXPECT_EQ(wide.buffers.at("norm/num_batches_tracked")[0], 2);
  }
}

TEST(Layers, RmsNormMakesTheMeanSquareOne) {
  const Graph g = graph_of({3, kWidth}, {3, kWidth},
                           [](Builder& b, ValueId x) { return ops::rms_norm(b, x, "norm", 0); });
  const NamedTensors leaves = drawn(g, 7);
  const std::vector<double> y = evaluate(g, 1, leaves, DType::Float64).gradients.at("r");
  for (std::size_t row = 0; row < 3; ++row) {
    double square = 0;
    for (std::size_t i = 0; i < kWidth; ++i)
      square += std::pow(y[row * kWidth + i] / leaves.at("norm/weight")[i], 2) / kWidth;
    EXPECT_NEAR(square, 1, 1e-9);
  }
}

TEST(Layers, DropoutOfNothingIsNoOperator) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 3});
  EXPECT_EQ(ops::dropout(b, x, 0, "drop"), x);
  EXPECT_EQ(b.graph().producer(ops::dropout(b, x, 0.5, "drop")).name, "drop");
  EXPECT_THAT([&] { ops::conv2d(b, x, 4, 3, "conv"); },
              ThrowsMessage<Error>(HasSubstr("conv2d 'conv': x must be images [N, C, H, W], got")));
}

}  // namespace
}  // namespace hetu
