#include "ops/layers.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"

namespace hetu::ops {
namespace {

constexpr Initializer kZeros{Initializer::Kind::Constant, 0.0, 0.0};
constexpr Initializer kOnes{Initializer::Kind::Constant, 1.0, 0.0};

// Returns the size of the last axis. `layer` and `name` are for the message.
std::int64_t width_of(const Builder& b, ValueId x, const char* layer, const std::string& name) {
  const TensorType& type = b.type(x);
  require(!type.shape.empty() && type.shape.back() >= 0,
          "{} '{}': x must have a static last axis, got {}", layer, name, to_string(type));
  return type.shape.back();
}

// Returns the number of channels of images [N, C, H, W].
std::int64_t channels_of(const Builder& b, ValueId x, const char* layer, const std::string& name) {
  const TensorType& type = b.type(x);
  require(type.shape.size() == 4, "{} '{}': x must be images [N, C, H, W], got {}", layer, name,
          to_string(type));
  return type.shape[1];
}

// Returns x + dropout(part(x)), with a layer norm before `part` or after the sum. `number` is the
// index of this residual part in its Transformer layer.
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

ValueId filled(Builder& b, const Shape& shape, double value) {
  return b.apply("fill", {}, {{"shape", shape}, {"value", value}});
}

// Builds one direction of one recurrent layer. The names of its parameters end in `suffix`.
ValueId recurrent_direction(Builder& b, ValueId x, std::int64_t width, const char* op, bool bias,
                            const std::string& suffix) {
  const bool is_lstm = std::string(op) == "lstm";
  const std::int64_t gates = (is_lstm ? 4 : 3) * width;
  const double most = 1 / std::sqrt(static_cast<double>(width));
  const Initializer weight{Initializer::Kind::Uniform, -most, most};
  const auto parameter = [&](const char* kind, const Shape& shape) {
    return b.parameter(kind + suffix, shape, weight, /*decay=*/shape.size() > 1);
  };
  const Shape shape = b.type(x).shape;
  const ValueId in = parameter("weight_ih_l", {gates, shape[2]});
  const ValueId again = parameter("weight_hh_l", {gates, width});
  const ValueId bias_in = bias ? parameter("bias_ih_l", {gates}) : kNone;
  const ValueId bias_again = bias ? parameter("bias_hh_l", {gates}) : kNone;
  const ValueId zero =
      b.apply("broadcast_to", {filled(b, {}, 0)}, {{"shape", Shape{shape[0], width}}});
  if (is_lstm) {  // the operator takes the sum of both biases
    const ValueId added = bias ? b.apply("linear", {x, in, b.apply("add", {bias_in, bias_again})})
                               : b.apply("linear", {x, in});
    return b.apply("lstm", {added, again, zero, zero});
  }
  const ValueId added = bias ? b.apply("linear", {x, in, bias_in}) : b.apply("linear", {x, in});
  return b.apply("gru", {added, again, bias ? bias_again : filled(b, {gates}, 0), zero});
}

ValueId recurrent(Builder& b, ValueId x, std::int64_t width, const char* op,
                  const std::string& name, const RecurrentOptions& options) {
  const TensorType& type = b.type(x);
  require(type.shape.size() == 3 && type.shape[1] >= 0 && type.shape[2] >= 0,
          "{} '{}': x must be [batch, positions, in], got {}", op, name, to_string(type));
  require(width >= 1 && options.layers >= 1, "{} '{}': width {} and layers {} must be at least 1",
          op, name, width, options.layers);
  const Scope scope(b, name);
  const Attrs places = {{"axis", std::int64_t{1}}};
  for (std::int64_t layer = 0; layer < options.layers; ++layer) {
    if (layer > 0) x = dropout(b, x, options.dropout, "dropout");
    const std::string number = std::to_string(layer);
    const ValueId y = recurrent_direction(b, x, width, op, options.bias, number);
    if (!options.bidirectional) {
      x = y;
      continue;
    }
    const ValueId back = recurrent_direction(b, b.apply("flip", {x}, places), width, op,
                                             options.bias, number + "_reverse");
    x = b.apply("concat", {y, b.apply("flip", {back}, places)}, {{"axis", std::int64_t{2}}});
  }
  return x;
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

ValueId conv_transpose2d(Builder& b, ValueId x, std::int64_t channels, std::int64_t kernel,
                         const std::string& name, const ConvTranspose2dOptions& options) {
  const std::int64_t in = channels_of(b, x, "conv_transpose2d", name);
  const Conv2dOptions& conv = options.conv;
  const Scope scope(b, name);
  require(conv.groups >= 1 && in % conv.groups == 0 && channels % conv.groups == 0,
          "conv_transpose2d '{}': groups must divide the {} channels of x and the {} of y, got {}",
          name, in, channels, conv.groups);
  std::vector<ValueId> inputs = {
      x, b.parameter("weight", {in, channels / conv.groups, kernel, kernel}, conv.weight)};
  if (conv.bias) inputs.push_back(b.parameter("bias", {channels}, kZeros, /*decay=*/false));
  return b.apply("conv_transpose2d", inputs,
                 {{"stride", conv.stride},
                  {"padding", conv.padding},
                  {"output_padding", options.output_padding},
                  {"dilation", conv.dilation},
                  {"groups", conv.groups}});
}

ValueId group_norm(Builder& b, ValueId x, std::int64_t groups, const std::string& name, double eps,
                   bool affine) {
  const TensorType& type = b.type(x);
  const Shape shape = type.shape;
  require(shape.size() >= 2 && shape[1] >= 1 && groups >= 1 && shape[1] % groups == 0,
          "group_norm '{}': groups must divide the channels, axis 1, of x {}, got {}", name,
          to_string(type), groups);
  const Scope scope(b, name);
  std::int64_t each = shape[1] / groups;
  for (std::size_t i = 2; i < shape.size(); ++i) each *= shape[i];
  const ValueId rows = b.apply("reshape", {x}, {{"shape", Shape{shape[0] * groups, each}}});
  const ValueId normed =
      b.apply("layer_norm", {rows, filled(b, {each}, 1), filled(b, {each}, 0)}, {{"eps", eps}});
  const ValueId y = b.apply("reshape", {normed}, {{"shape", shape}});
  if (!affine) return y;
  Shape along(shape.size() - 1, 1);
  along[0] = shape[1];
  const auto channels = [&](const char* which, const Initializer& start) {
    const ValueId value = b.parameter(which, {shape[1]}, start, /*decay=*/false);
    return b.apply("reshape", {value}, {{"shape", along}});
  };
  const ValueId scaled = b.apply("mul", {y, channels("weight", kOnes)});
  return b.apply("add", {scaled, channels("bias", kZeros)});
}

ValueId instance_norm(Builder& b, ValueId x, const std::string& name, double eps, bool affine) {
  const TensorType& type = b.type(x);
  require(type.shape.size() >= 3,
          "instance_norm '{}': x must be [N, C, ...] with at least one more axis, got {}", name,
          to_string(type));
  return group_norm(b, x, type.shape[1], name, eps, affine);
}

ValueId lstm(Builder& b, ValueId x, std::int64_t width, const std::string& name,
             const RecurrentOptions& options) {
  return recurrent(b, x, width, "lstm", name, options);
}

ValueId gru(Builder& b, ValueId x, std::int64_t width, const std::string& name,
            const RecurrentOptions& options) {
  return recurrent(b, x, width, "gru", name, options);
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
  if (x == memory) {  // one product for query, key and value
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
