#include "ops/losses.h"

#include <algorithm>

#include "base/error.h"

namespace hetu::ops {
namespace {

std::int64_t elements_of_a_sample(const Shape& shape) {
  std::int64_t n = 1;
  for (std::size_t axis = 1; axis < shape.size(); ++axis) n *= shape[axis];
  return n;
}

// Returns the smallest placeholder that has a row per sample. The stage that counts samples must
// receive this field.
ValueId smallest_field(const Builder& b, const std::string& name) {
  std::vector<ValueId> fed;
  for (const ValueId v : b.graph().placeholders) {
    const Shape& shape = b.type(v).shape;
    if (!shape.empty() && shape[0] == kBatch) fed.push_back(v);
  }
  require(!fed.empty(),
          "step_mean '{}': no placeholder of this graph has the batch on its first axis, so the "
          "number of samples of a step is unknown",
          name);
  return *std::min_element(fed.begin(), fed.end(), [&b](ValueId one, ValueId other) {
    return elements_of_a_sample(b.type(one).shape) < elements_of_a_sample(b.type(other).shape);
  });
}

ValueId scaled(Builder& b, ValueId x, double factor) {
  return b.apply("scale", {x}, {{"factor", factor}});
}

// Refuses predictions [B] with targets [B, 1] and the like: broadcasting would compare each sample
// with every other one.
void check_pair(const Builder& b, const char* loss, ValueId x, ValueId target) {
  const TensorType one = b.type(x), other = b.type(target);
  const auto has_batch = [](const Shape& s) { return !s.empty() && s[0] < 0; };
  require(
      !has_batch(one.shape) || !has_batch(other.shape) || one.shape.size() == other.shape.size(),
      "{}: predictions {}, targets {}; give them one shape, for example by a reshape", loss,
      to_string(one), to_string(other));
}

ValueId apart(Builder& b, const char* loss, ValueId x, ValueId target) {
  check_pair(b, loss, x, target);
  return b.apply("abs", {b.apply("sub", {x, target})});
}

}  // namespace

ValueId step_mean(Builder& b, ValueId x, const std::string& name) {
  const TensorType type = b.type(x);
  require(!type.shape.empty() && type.shape[0] < 0,
          "step_mean '{}': {} has no batch on its first axis; use reduce_mean", name,
          to_string(type));
  const ValueId field = smallest_field(b, name);
  const Scope scope(b, name);
  const ValueId count = b.apply("step_sum", {b.apply("count_samples", {field})});
  ValueId total = b.apply("sum", {x});
  const std::int64_t each = -type.shape[0] * elements_of_a_sample(type.shape);
  if (each != 1) total = scaled(b, total, 1.0 / static_cast<double>(each));
  return b.apply("div_scalar", {total, count}, {}, "mean");
}

ValueId mean_squared_error(Builder& b, ValueId x, ValueId target, const std::string& name) {
  check_pair(b, "mean_squared_error", x, target);
  const ValueId difference = b.apply("sub", {x, target});
  return step_mean(b, b.apply("power", {difference}, {{"exponent", 2.0}}), name);
}

ValueId mean_absolute_error(Builder& b, ValueId x, ValueId target, const std::string& name) {
  return step_mean(b, apart(b, "mean_absolute_error", x, target), name);
}

ValueId mean_huber(Builder& b, ValueId x, ValueId target, double delta, const std::string& name) {
  require(delta > 0, "mean_huber '{}': delta must be above 0, got {}", name, delta);
  const ValueId far = apart(b, "mean_huber", x, target);
  // With near = min(far, delta), near * (far - near / 2) covers both cases. Two branches would
  // square a large number in the branch that isn't taken, and overflow.
  const ValueId near = b.apply("clip", {far}, {{"low", 0.0}, {"high", delta}});
  const ValueId rest = b.apply("sub", {far, scaled(b, near, 0.5)});
  return step_mean(b, b.apply("mul", {near, rest}), name);
}

ValueId mean_binary_cross_entropy(Builder& b, ValueId logits, ValueId target,
                                  const std::string& name) {
  check_pair(b, "mean_binary_cross_entropy", logits, target);
  const ValueId soft = b.apply("softplus", {logits});
  return step_mean(b, b.apply("sub", {soft, b.apply("mul", {logits, target})}), name);
}

ValueId mean_kl_divergence(Builder& b, ValueId log_p, ValueId target, const std::string& name) {
  const TensorType type = b.type(log_p);
  require(
      type.shape.size() >= 2 && b.type(target).shape == type.shape,
      "mean_kl_divergence '{}': both inputs must have the same shape [batch, ...], got {} and {}",
      name, to_string(type), to_string(b.type(target)));
  const auto number = [&b](double value) {
    return b.apply("fill", {}, {{"shape", Shape{}}, {"value", value}});
  };
  // 0 log(0) is 0. Taking the logarithm of 1 there avoids a NaN in the branch that isn't taken.
  const ValueId positive =
      b.apply("where", {b.apply("equal", {target, number(0)}), number(1), target});
  const ValueId apart = b.apply("sub", {b.apply("log", {positive}), log_p});
  std::vector<std::int64_t> axes;
  for (std::int64_t axis = 1; axis < std::ssize(type.shape); ++axis) axes.push_back(axis);
  return step_mean(b, b.apply("reduce_sum", {b.apply("mul", {target, apart})}, {{"axes", axes}}),
                   name);
}

ValueId softmax_cross_entropy(Builder& b, ValueId logits, ValueId labels,
                              const CrossEntropyOptions& options, const std::string& name) {
  const Scope scope(b, name);
  const TensorType type = b.type(logits);
  require(!type.shape.empty() && type.shape.back() >= 0,
          "softmax_cross_entropy '{}': logits must have a static last axis, got {}", name,
          to_string(type));
  // Leading axes become rows. The batch remains a factor of axis 0.
  std::int64_t rows = 1;
  for (const std::int64_t dim : b.type(labels).shape) rows *= dim;
  if (type.shape.size() != 2) {
    logits = b.apply("reshape", {logits}, {{"shape", Shape{rows, type.shape.back()}}});
  }
  if (b.type(labels).shape.size() != 1) {
    labels = b.apply("reshape", {labels}, {{"shape", Shape{rows}}});
  }
  std::vector<ValueId> of_loss = {logits, labels}, of_count = {labels};
  if (options.weight != kNone) {
    of_loss.push_back(options.weight);
    of_count.push_back(options.weight);
  }
  Attrs ignore;
  if (options.ignore) ignore.set("ignore", *options.ignore);
  Attrs attrs = ignore;
  attrs.set("smoothing", options.smoothing);
  const ValueId sum = b.apply("softmax_cross_entropy", of_loss, attrs);
  const ValueId count = b.apply("step_sum", {b.apply("count_labels", of_count, ignore)});
  return b.apply("div_scalar", {sum, count}, {}, "mean");
}

}  // namespace hetu::ops
