#include "ops/layers.h"

#include <fmt/format.h>

#include "graph/base/error.h"

namespace hetu::ops {
namespace {

constexpr Initializer kZeros{Initializer::Kind::Constant, 0.0, 0.0};
constexpr Initializer kOnes{Initializer::Kind::Constant, 1.0, 0.0};

// Size of the last axis; the layer's name is for the message.
std::int64_t width_of(const Builder& b, ValueId x, const char* layer, const std::string& name) {
  const TensorType& type = b.type(x);
  require(!type.shape.empty() && type.shape.back() >= 0,
          "{} '{}': x must have a static last axis, got {}", layer, name, to_string(type));
  return type.shape.back();
}

// Planes of images.
std::int64_t channels_of(const Builder& b, ValueId x, const char* layer, const std::string& name) {
  const TensorType& type = b.type(x);
  require(type.shape.size() == 4, "{} '{}': x must be images [N, C, H, W], got {}", layer, name,
          to_string(type));
  return type.shape[1];
}

// x and what a part makes of it, normed before or after: the `number`th of a Transformer layer.
template <class Part>
ValueId added(Builder& b, ValueId x, int number, const TransformerOptions& options,
              const Part& part) {
  const auto norm = [&](ValueId v) {
    return layer_norm(b, v, fmt::format("norm{}", number), options.eps);
  };
  const ValueId made = part(options.norm_first ? norm(x) : x);
  const ValueId dropped = dropout(b, made, options.dropout, fmt::format("dropout{}", number));
  const ValueId sum = b.apply("add", {x, dropped});
  return options.norm_first ? sum : norm(sum);
}

ValueId added_feed_forward(Builder& b, ValueId x, int number, const TransformerOptions& options) {
  const std::int64_t width = width_of(b, x, "transformer_layer", "linear2");
  const LinearOptions weights = {true, kKaimingUniform};
  return added(b, x, number, options, [&](ValueId in) {
    const ValueId wide = linear(b, in, options.wide, "linear1", weights);
    const ValueId shown =
        dropout(b, b.apply(options.activation, {wide}), options.dropout, "dropout");
    return linear(b, shown, width, "linear2", weights);
  });
}

}  // namespace

ValueId linear(Builder& b, ValueId x, std::int64_t width, const std::string& name,
               const LinearOptions& options) {
  const std::int64_t in = width_of(b, x, "linear", name);
  const Scope scope(b, name);
  std::vector<ValueId> inputs = {x, b.parameter("weight", {width, in}, options.weight)};
  if (options.bias) inputs.push_back(b.parameter("bias", {width}, kZeros, /*decay=*/false));
  return b.apply("linear", inputs);
}

ValueId layer_norm(Builder& b, ValueId x, const std::string& name, double eps) {
  const std::int64_t width = width_of(b, x, "layer_norm", name);
  const Scope scope(b, name);
  const ValueId gamma = b.parameter("weight", {width}, kOnes, /*decay=*/false);
  const ValueId beta = b.parameter("bias", {width}, kZeros, /*decay=*/false);
  return b.apply("layer_norm", {x, gamma, beta}, {{"eps", eps}});
}

ValueId rms_norm(Builder& b, ValueId x, const std::string& name, double eps) {
  const std::int64_t width = width_of(b, x, "rms_norm", name);
  const Scope scope(b, name);
  const ValueId weight = b.parameter("weight", {width}, kOnes, /*decay=*/false);
  const ValueId square = b.apply("power", {x}, {{"exponent", 2.0}});
  const ValueId mean =
      b.apply("reduce_mean", {square}, {{"axes", Shape{-1}}, {"keep", std::int64_t{1}}});
  const ValueId small = b.apply("fill", {}, {{"shape", Shape{}}, {"value", eps}});
  const ValueId scale =
      b.apply("power", {b.apply("add", {mean, small})}, {{"exponent", -0.5}}, "rsqrt");
  return b.apply("mul", {b.apply("mul", {x, scale}), weight});
}

ValueId dropout(Builder& b, ValueId x, double p, const std::string& name) {
  return p == 0 ? x : b.apply("dropout", {x}, {{"p", p}}, name);
}

ValueId conv2d(Builder& b, ValueId x, std::int64_t channels, std::int64_t kernel,
               const std::string& name, const Conv2dOptions& options) {
  const std::int64_t in = channels_of(b, x, "conv2d", name);
  const Scope scope(b, name);
  require(options.groups >= 1 && in % options.groups == 0,
          "conv2d '{}': groups must divide the {} channels of x, got {}", name, in, options.groups);
  std::vector<ValueId> inputs = {
      x, b.parameter("weight", {channels, in / options.groups, kernel, kernel}, options.weight)};
  if (options.bias) inputs.push_back(b.parameter("bias", {channels}, kZeros, /*decay=*/false));
  return b.apply("conv2d", inputs,
                 {{"stride", options.stride},
                  {"padding", options.padding},
                  {"dilation", options.dilation},
                  {"groups", options.groups}});
}

ValueId batch_norm(Builder& b, ValueId x, const std::string& name, double momentum, double eps) {
  const std::int64_t channels = channels_of(b, x, "batch_norm", name);
  const Scope scope(b, name);
  const ValueId gamma = b.parameter("weight", {channels}, kOnes, /*decay=*/false);
  const ValueId beta = b.parameter("bias", {channels}, kZeros, /*decay=*/false);
  const ValueId mean = b.buffer("running_mean", {channels}, kZeros);
  const ValueId variance = b.buffer("running_var", {channels}, kOnes);
  b.apply("count_up", {b.buffer("num_batches_tracked", {}, kZeros)}, {}, "count");
  return b.apply("batch_norm", {x, gamma, beta, mean, variance},
                 {{"momentum", momentum}, {"epsilon", eps}});
}

ValueId attention(Builder& b, ValueId x, ValueId memory, const std::string& name,
                  const AttentionOptions& options) {
  const std::int64_t width = width_of(b, x, "attention", name);
  const Scope scope(b, name);
  const ValueId weight = b.parameter("in_proj_weight", {3 * width, width}, kXavierUniform);
  const ValueId bias =
      options.bias ? b.parameter("in_proj_bias", {3 * width}, kZeros, /*decay=*/false) : kNone;
  const auto part = [&](ValueId of, std::int64_t axis, std::int64_t number) {
    return b.apply("slice", {of}, {{"axis", axis}, {"first", number * width}, {"size", width}});
  };
  const auto projected = [&](ValueId in, ValueId w, ValueId added) {
    return b.apply("linear", added == kNone ? std::vector{in, w} : std::vector{in, w, added}, {},
                   "in_proj");
  };
  std::vector<ValueId> inputs;
  if (x == memory) {  // all three at once
    const ValueId all = projected(x, weight, bias);
    for (const std::int64_t number : {0, 1, 2}) inputs.push_back(part(all, -1, number));
  } else {
    for (const std::int64_t number : {0, 1, 2}) {
      inputs.push_back(projected(number == 0 ? x : memory, part(weight, 0, number),
                                 bias == kNone ? kNone : part(bias, 0, number)));
    }
  }
  if (options.mask != kNone) inputs.push_back(options.mask);
  const ValueId context = b.apply("attention", inputs,
                                  {{"heads", options.heads},
                                   {"dropout", options.dropout},
                                   {"causal", std::int64_t{options.causal}}});
  return linear(b, context, width, "out_proj", {options.bias, kKaimingUniform});
}

ValueId self_attention(Builder& b, ValueId x, const std::string& name,
                       const AttentionOptions& options) {
  return attention(b, x, x, name, options);
}

ValueId transformer_layer(Builder& b, ValueId x, const std::string& name,
                          const TransformerOptions& options) {
  const Scope scope(b, name);
  const auto attend = [&](ValueId in) {
    return self_attention(b, in, "self_attn", options.attention);
  };
  return added_feed_forward(b, added(b, x, 1, options, attend), 2, options);
}

ValueId decoder_layer(Builder& b, ValueId x, ValueId memory, const std::string& name,
                      const TransformerOptions& options, ValueId memory_mask) {
  const Scope scope(b, name);
  const auto attend = [&](ValueId in) {
    return self_attention(b, in, "self_attn", options.attention);
  };
  const auto look = [&](ValueId in) {
    AttentionOptions of_memory = options.attention;
    of_memory.causal = false;
    of_memory.mask = memory_mask;
    return attention(b, in, memory, "multihead_attn", of_memory);
  };
  x = added(b, added(b, x, 1, options, attend), 2, options, look);
  return added_feed_forward(b, x, 3, options);
}

ValueId embedding(Builder& b, ValueId ids, std::int64_t rows, std::int64_t width,
                  const std::string& name, const Initializer& init) {
  const Scope scope(b, name);
  return b.apply("embedding", {b.parameter("weight", {rows, width}, init), ids});
}

}  // namespace hetu::ops
