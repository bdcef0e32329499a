#include "ops/layers.h"

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

ValueId embedding(Builder& b, ValueId ids, std::int64_t rows, std::int64_t width,
                  const std::string& name, const Initializer& init) {
  const Scope scope(b, name);
  return b.apply("embedding", {b.parameter("weight", {rows, width}, init), ids});
}

ValueId softmax_cross_entropy(Builder& b, ValueId logits, ValueId labels, std::int64_t ignore,
                              const std::string& name) {
  const Scope scope(b, name);
  const std::int64_t classes = width_of(b, logits, "softmax_cross_entropy", name);
  // Leading axes become rows; the batch stays a factor of axis 0.
  std::int64_t rows = 1;
  for (const std::int64_t dim : b.type(labels).shape) rows *= dim;
  if (b.type(logits).shape.size() != 2) {
    logits = b.apply("reshape", {logits}, {{"shape", Shape{rows, classes}}});
  }
  if (b.type(labels).shape.size() != 1) {
    labels = b.apply("reshape", {labels}, {{"shape", Shape{rows}}});
  }
  const Attrs attrs = {{"ignore", ignore}};
  const ValueId sum = b.apply("softmax_cross_entropy", {logits, labels}, attrs);
  const ValueId count = b.apply("step_sum", {b.apply("count_labels", {labels}, attrs)});
  return b.apply("div_scalar", {sum, count}, {}, "mean");
}

}  // namespace hetu::ops
