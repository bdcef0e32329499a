// Tests the layers for C++ programs: the parameters that they create, and properties of their
// results.
#include "ops/layers.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "base/error.h"
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

// Returns random values for all parameters, and 1 for buffers.
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

// Returns a graph whose loss is the sum of layer(x) * r. The gradient of r is the layer's value.
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

// Computes the attention of x to memory, and the derivatives of one token of the result.
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

TEST(Layers, ASmallTransposedConvolutionIsOneOfTheTurnedWeight) {
  const Shape x = {2, 3, 2, 2}, y = {2, 4, 2, 2};
  const Graph conv =
      graph_of(x, y, [](Builder& b, ValueId v) { return ops::conv2d(b, v, 4, 1, "conv"); });
  const Graph back = graph_of(
      x, y, [](Builder& b, ValueId v) { return ops::conv_transpose2d(b, v, 4, 1, "conv"); });
  const NamedTensors leaves = drawn(conv, 6);
  NamedTensors turned = leaves;  // transposes [4, 3] to [3, 4]
  for (std::size_t o = 0; o < 4; ++o)
    for (std::size_t i = 0; i < 3; ++i)
      turned["conv/weight"][i * 4 + o] = leaves.at("conv/weight")[o * 3 + i];
  const auto one = evaluate(conv, 1, leaves, DType::Float64).gradients.at("r");
  const auto two = evaluate(back, 1, turned, DType::Float64).gradients.at("r");
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], two[i], 1e-12);
  const auto wide = [](Builder& b, ValueId v) {
    ops::ConvTranspose2dOptions o;
    o.conv.stride = 2;
    o.output_padding = 1;
    return ops::conv_transpose2d(b, v, 4, 3, "conv", o);
  };
  EXPECT_NO_THROW(graph_of(x, {2, 4, 6, 6}, wide)) << "(2 - 1) * 2 + 3 + 1";
}

TEST(Layers, AGroupNormIsOfEachGroupAlone) {
  const std::size_t channels = 4, places = 6;
  for (const std::int64_t groups : {1, 2, 4}) {
    const Graph g = graph_of({2, 4, 2, 3}, {2, 4, 2, 3}, [&](Builder& b, ValueId x) {
      return groups == 4 ? ops::instance_norm(b, x, "norm", 1e-5, true)
                         : ops::group_norm(b, x, groups, "norm");
    });
    EXPECT_THAT(names(g), testing::UnorderedElementsAre("x", "r", "norm/weight", "norm/bias"));
    const NamedTensors leaves = drawn(g, 12);
    const auto y = evaluate(g, 1, leaves, DType::Float64).gradients.at("r");
    const std::vector<double>& x = leaves.at("x");
    const std::size_t each = channels / static_cast<std::size_t>(groups) * places;
    for (std::size_t i = 0; i < x.size(); ++i) {
      double mean = 0, square = 0;
      for (std::size_t j = i / each * each; j < i / each * each + each; ++j) {
        mean += x[j] / static_cast<double>(each);
        square += x[j] * x[j] / static_cast<double>(each);
      }
      const std::size_t c = i / places % channels;
      const double normed = (x[i] - mean) / std::sqrt(square - mean * mean + 1e-5);
      EXPECT_NEAR(y[i], normed * leaves.at("norm/weight")[c] + leaves.at("norm/bias")[c], 1e-9);
    }
  }
}

// Computes one direction of one layer directly from the equations: y [places, width] from x
// [places, in].
std::vector<double> run_recurrent(const NamedTensors& w, const std::string& end,
                                  const std::vector<double>& x, std::size_t in, bool is_lstm,
                                  bool reverse) {
  const std::size_t gates = is_lstm ? 4 : 3, width = w.at("r/weight_hh_l" + end).size();
  const std::size_t units = static_cast<std::size_t>(std::sqrt(static_cast<double>(width / gates)));
  const std::size_t places = x.size() / in;
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  std::vector<double> h(units), c(units), y(places * units);
  for (std::size_t p = 0; p < places; ++p) {
    const std::size_t at = reverse ? places - 1 - p : p;
    std::vector<double> a(gates * units), s(gates * units);
    for (std::size_t g = 0; g < gates * units; ++g) {
      a[g] = w.at("r/bias_ih_l" + end)[g];
      s[g] = w.at("r/bias_hh_l" + end)[g];
      for (std::size_t i = 0; i < in; ++i)
        a[g] += w.at("r/weight_ih_l" + end)[g * in + i] * x[at * in + i];
      for (std::size_t i = 0; i < units; ++i)
        s[g] += w.at("r/weight_hh_l" + end)[g * units + i] * h[i];
    }
    for (std::size_t u = 0; u < units; ++u) {
      const auto gate = [&](std::size_t k) { return a[k * units + u] + s[k * units + u]; };
      if (is_lstm) {
        c[u] = sigmoid(gate(1)) * c[u] + sigmoid(gate(0)) * std::tanh(gate(2));
        h[u] = sigmoid(gate(3)) * std::tanh(c[u]);
      } else {
        const double n = std::tanh(a[2 * units + u] + sigmoid(gate(0)) * s[2 * units + u]);
        h[u] = (1 - sigmoid(gate(1))) * n + sigmoid(gate(1)) * h[u];
      }
      y[at * units + u] = h[u];
    }
  }
  return y;
}

TEST(Layers, RecurrentOnesAreTheirEquations) {
  constexpr std::size_t kPlaces = 5, kIn = 3, kUnits = 2;
  for (const bool is_lstm : {true, false}) {
    const Graph g =
        graph_of({1, kPlaces, kIn}, {1, kPlaces, 2 * kUnits}, [&](Builder& b, ValueId x) {
          const ops::RecurrentOptions o = {.layers = 2, .bidirectional = true};
          return is_lstm ? ops::lstm(b, x, kUnits, "r", o) : ops::gru(b, x, kUnits, "r", o);
        });
    std::vector<std::string> wanted = {"x", "r"};
    for (const char* end : {"0", "0_reverse", "1", "1_reverse"})
      for (const char* kind : {"weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l"})
        wanted.push_back("r/" + std::string(kind) + end);
    EXPECT_THAT(names(g), testing::UnorderedElementsAreArray(wanted));
    const NamedTensors leaves = drawn(g, 13);
    std::vector<double> x = leaves.at("x");
    std::size_t in = kIn;
    for (const char* layer : {"0", "1"}) {
      const auto front = run_recurrent(leaves, layer, x, in, is_lstm, false);
      const auto back =
          run_recurrent(leaves, std::string(layer) + "_reverse", x, in, is_lstm, true);
      x.clear();
      in = 2 * kUnits;
      for (std::size_t p = 0; p < kPlaces; ++p) {
        x.insert(x.end(), &front[p * kUnits], &front[p * kUnits] + kUnits);
        x.insert(x.end(), &back[p * kUnits], &back[p * kUnits] + kUnits);
      }
    }
    const auto found = evaluate(g, 1, leaves, DType::Float64).gradients.at("r");
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(found[i], x[i], 1e-12) << is_lstm;
  }
}

TEST(Layers, ASmallConvolutionIsLinearInEachPlace) {
  const Graph conv = graph_of({2, 3, 2, 2}, {2, 5, 2, 2}, [](Builder& b, ValueId x) {
    return ops::conv2d(b, x, 5, 1, "conv");
  });
  const Graph rows =
      graph_of({8, 3}, {8, 5}, [](Builder& b, ValueId x) { return ops::linear(b, x, 5, "conv"); });
  const NamedTensors leaves = drawn(conv, 5);
  NamedTensors turned = leaves;  // reorders [N, C, H, W] to [N H W, C]
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
