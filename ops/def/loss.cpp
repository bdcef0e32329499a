// Losses, and the counts by which they are divided.
#include <cstdint>
#include <limits>

#include "ops/def/rules.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

// Less than every int32, so no label equals it: by default no label is ignored.
constexpr std::int64_t kIgnoreNothing = std::int64_t{std::numeric_limits<std::int32_t>::min()} - 1;
const AttrSpec kIgnore = {
    "ignore", kIgnoreNothing, false,
    "rows with this label do not count; the default is outside int32, so every row counts"};

// Attributes for samples whose labels may be -1.
const Attrs kIgnoreMinusOne = {{"ignore", std::int64_t{-1}}};

const AttrSpec kSmoothing = {
    "smoothing", 0.0, false,
    "share of the target, in [0, 1], that is spread evenly over all classes"};

// Checks the smoothing, in [0, 1], and the class weights [C] if input i exists.
void check_classes(const InferArgs& a, std::size_t i) {
  const double smoothing = a.attrs.real("smoothing");
  check(smoothing >= 0 && smoothing <= 1, a, "smoothing must be in [0, 1], got {}", smoothing);
  if (a.inputs.size() <= i) return;
  check_dtype(a, i, DType::Float32);
  check_shape(a, i, {a.inputs[0].shape[1]}, "(one weight per class)");
}

// Appends the node's class weights to `inputs`, if it has any.
Values with_weight(const GradArgs& g, Values inputs) {
  if (g.inputs.size() > 2) {
    require(!g.wanted[2],
            "softmax_cross_entropy '{}': weight depends on a parameter, but it has no gradient; "
            "use a constant per class",
            g.node.name);
    inputs.push_back(g.inputs[2]);
  }
  return inputs;
}

// Checks that logits are [N, C] and that labels are int32 [N].
void check_logits_and_labels(const InferArgs& a) {
  check_dtype(a, 0, DType::Float32);
  check(a.inputs[0].shape.size() == 2, a, "logits must be [rows, classes], got {}",
        to_string(a.inputs[0]));
  check_dtype(a, 1, DType::Int32);
  check_shape(a, 1, rows(a.inputs[0].shape), to_fit(a, 0));
}

OpDef softmax_cross_entropy() {
  return {
      .name = "softmax_cross_entropy",
      .doc =
          "The sum (not the mean) of -log softmax(logits)[label] over rows whose label is not "
          "ignored, added in row order in float64. If weights [classes] are given, each row counts "
          "with the weight of its label. lse is log sum exp of each row.",
      .inputs = {"logits", "labels"},
      .optional_inputs = {"weight"},
      .outputs = {"loss", "lse"},
      .attrs = {kIgnore, kSmoothing},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_logits_and_labels(a);
        check_classes(a, 2);
        return {float32({}), float32(rows(a.inputs[0].shape))};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        Values dx(g.inputs.size(), kNone);
        const Values inputs = with_weight(g, {g.inputs[0], g.inputs[1], g.outputs[1], only_dy(g)});
        dx[0] = if_wanted(g.wanted[0], b, "softmax_cross_entropy_grad", inputs, g.node.attrs);
        return dx;
      },
      .flops = [](const InferArgs& a) { return 10 * elements(a.inputs[0]); },
      .samples = {{.shapes = {{2, 3}, {2}}, .dtypes = {DType::Float32, DType::Int32}},
                  {.shapes = {{7, 5}, {7}},
                   .attrs = kIgnoreMinusOne,
                   .dtypes = {DType::Float32, DType::Int32},
                   .integers_below = 5,
                   .negative_integers = true},
                  {.shapes = {{1, 1}, {1}},
                   .dtypes = {DType::Float32, DType::Int32},
                   .integers_below = 1},
                  {.shapes = {{0, 3}, {0}}, .dtypes = {DType::Float32, DType::Int32}},
                  {.shapes = {{7, 5}, {7}, {5}},
                   .attrs = {{"smoothing", 0.2}, {"ignore", std::int64_t{-1}}},
                   .dtypes = {DType::Float32, DType::Int32, DType::Float32},
                   .integers_below = 5,
                   .negative_integers = true},
                  {.shapes = {{4, 3}, {4}},
                   .attrs = {{"smoothing", 1.0}},
                   .dtypes = {DType::Float32, DType::Int32}},
                  {.shapes = {{4, 3}, {4}, {3}},
                   .dtypes = {DType::Float32, DType::Int32, DType::Float32}}},
  };
}

OpDef softmax_cross_entropy_grad() {
  const std::vector<DType> dtypes = {DType::Float32, DType::Int32, DType::Float32, DType::Float32,
                                     DType::Float32};
  return {
      .name = "softmax_cross_entropy_grad",
      .doc =
          "dloss * (exp(logits - lse) * sum(target) - target) per row, where target is the "
          "smoothed and weighted target of the label; 0 for ignored rows.",
      .inputs = {"logits", "labels", "lse", "dloss"},
      .optional_inputs = {"weight"},
      .outputs = {"dlogits"},
      .attrs = {kIgnore, kSmoothing},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_logits_and_labels(a);
        check_classes(a, 4);
        check_dtype(a, 2, DType::Float32);
        check_shape(a, 2, rows(a.inputs[0].shape), to_fit(a, 0));
        check_dtype(a, 3, DType::Float32);
        check_shape(a, 3, {}, "(a scalar)");
        return {a.inputs[0]};
      },
      .flops = [](const InferArgs& a) { return 10 * elements(a.inputs[0]); },
      .samples = {{.shapes = {{2, 3}, {2}, {2}, {}}, .dtypes = dtypes},
                  {.shapes = {{7, 5}, {7}, {7}, {}},
                   .attrs = kIgnoreMinusOne,
                   .dtypes = dtypes,
                   .integers_below = 5,
                   .negative_integers = true},
                  {.shapes = {{1, 1}, {1}, {1}, {}}, .dtypes = dtypes, .integers_below = 1},
                  {.shapes = {{0, 3}, {0}, {0}, {}}, .dtypes = dtypes},
                  {.shapes = {{7, 5}, {7}, {7}, {}, {5}},
                   .attrs = {{"smoothing", 0.2}, {"ignore", std::int64_t{-1}}},
                   .dtypes = dtypes,
                   .integers_below = 5,
                   .negative_integers = true},
                  {.shapes = {{4, 3}, {4}, {4}, {}},
                   .attrs = {{"smoothing", 0.5}},
                   .dtypes = dtypes}},
      .overwrites = 0,
  };
}

// Checks that logits are [N] and that labels are int32 [N].
void check_logit_and_label(const InferArgs& a) {
  check_dtype(a, 0, DType::Float32);
  check(a.inputs[0].shape.size() == 1, a, "logits must be [rows], got {}", to_string(a.inputs[0]));
  check_dtype(a, 1, DType::Int32);
  check_shape(a, 1, a.inputs[0].shape, to_fit(a, 0));
}

OpDef sigmoid_cross_entropy() {
  const std::vector<DType> dtypes = {DType::Float32, DType::Int32};
  return {
      .name = "sigmoid_cross_entropy",
      .doc =
          "The sum (not the mean) of log(1 + exp(logit)) - label * logit over rows whose label, 0 "
          "or 1, is not ignored, added in row order in float64.",
      .inputs = {"logits", "labels"},
      .outputs = {"loss"},
      .attrs = {kIgnore},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_logit_and_label(a);
        return {float32({})};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {if_wanted(g.wanted[0], b, "sigmoid_cross_entropy_grad",
                          {g.inputs[0], g.inputs[1], g.dy[0]}, g.node.attrs),
                kNone};
      },
      .flops = [](const InferArgs& a) { return 10 * elements(a.inputs[0]); },
      .samples = {{.shapes = {{2}, {2}}, .dtypes = dtypes, .integers_below = 2},
                  {.shapes = {{17}, {17}},
                   .attrs = kIgnoreMinusOne,
                   .dtypes = dtypes,
                   .integers_below = 2,
                   .negative_integers = true},
                  {.shapes = {{1}, {1}}, .dtypes = dtypes, .integers_below = 2},
                  {.shapes = {{0}, {0}}, .dtypes = dtypes}},
  };
}

OpDef sigmoid_cross_entropy_grad() {
  const std::vector<DType> dtypes = {DType::Float32, DType::Int32, DType::Float32};
  return {
      .name = "sigmoid_cross_entropy_grad",
      .doc = "dloss * (1 / (1 + exp(-logit)) - label) per row, 0 for ignored rows.",
      .inputs = {"logits", "labels", "dloss"},
      .outputs = {"dlogits"},
      .attrs = {kIgnore},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_logit_and_label(a);
        check_dtype(a, 2, DType::Float32);
        check_shape(a, 2, {}, "(a scalar)");
        return {a.inputs[0]};
      },
      .flops = [](const InferArgs& a) { return 10 * elements(a.inputs[0]); },
      .samples = {{.shapes = {{2}, {2}, {}}, .dtypes = dtypes, .integers_below = 2},
                  {.shapes = {{17}, {17}, {}},
                   .attrs = kIgnoreMinusOne,
                   .dtypes = dtypes,
                   .integers_below = 2,
                   .negative_integers = true},
                  {.shapes = {{1}, {1}, {}}, .dtypes = dtypes, .integers_below = 2},
                  {.shapes = {{0}, {0}, {}}, .dtypes = dtypes}},
  };
}

OpDef count_labels() {
  return {
      .name = "count_labels",
      .doc =
          "The number of labels that are not ignored, as a float32 scalar. If weights [classes] "
          "are given, each label counts with the weight of its class.",
      .inputs = {"labels"},
      .optional_inputs = {"weight"},
      .attrs = {kIgnore},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_dtype(a, 0, DType::Int32);
        if (a.inputs.size() > 1) {
          check_dtype(a, 1, DType::Float32);
          check_rank(a, 1, 1);
        }
        return {float32({})};
      },
      .flops = [](const InferArgs& a) { return elements(a.inputs[0]); },
      .samples = {{.shapes = {{7}},
                   .attrs = kIgnoreMinusOne,
                   .dtypes = {DType::Int32},
                   .negative_integers = true},
                  {.shapes = {{1}}, .dtypes = {DType::Int32}},
                  {.shapes = {{3, 5}},
                   .attrs = kIgnoreMinusOne,
                   .dtypes = {DType::Int32},
                   .negative_integers = true},
                  {.shapes = {{3, 5}, {4}},
                   .attrs = kIgnoreMinusOne,
                   .dtypes = {DType::Int32, DType::Float32},
                   .integers_below = 4,
                   .negative_integers = true},
                  {.shapes = {{0}}, .dtypes = {DType::Int32}}},
  };
}

OpDef top_k_hits() {
  return {
      .name = "top_k_hits",
      .doc =
          "The number of rows whose label is among the k highest logits, as a float32 scalar. Of "
          "equal logits the first counts as higher, and a NaN counts as the highest. Ignored rows, "
          "and rows whose label has a NaN logit, do not count.",
      .inputs = {"logits", "labels"},
      .attrs = {{"k", std::int64_t{1}, false, "1 for top-1 accuracy"}, kIgnore},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_logits_and_labels(a);
        check(a.attrs.integer("k") >= 1, a, "k must be >= 1, got {}", a.attrs.integer("k"));
        return {float32({})};
      },
      .flops = [](const InferArgs& a) { return elements(a.inputs[0]); },
      .samples = {{.shapes = {{2, 3}, {2}}, .dtypes = {DType::Float32, DType::Int32}},
                  {.shapes = {{37, 9}, {37}},
                   .attrs = {{"k", std::int64_t{5}}, {"ignore", std::int64_t{-1}}},
                   .dtypes = {DType::Float32, DType::Int32},
                   .integers_below = 9,
                   .negative_integers = true},
                  {.shapes = {{0, 3}, {0}}, .dtypes = {DType::Float32, DType::Int32}}},
  };
}

OpDef count_samples() {
  return {
      .name = "count_samples",
      .doc = "The number of samples in the micro-batch, as a float32 scalar; x is not read.",
      .inputs = {"x"},
      .infer = [](const InferArgs&) -> std::vector<TensorType> { return {float32({})}; },
      .flops = [](const InferArgs&) { return std::int64_t{0}; },
      .samples = {{.shapes = {{kBatch, 3}}},
                  {.shapes = {{kBatch}}, .dtypes = {DType::Int32}},
                  {.shapes = {{kBatch, 0}}}},
  };
}

OpDef step_sum() {
  return {
      .name = "step_sum",
      .doc =
          "The sum of a scalar over all micro-batches and pipelines of a step, known before the "
          "first forward. The scalar may depend on placeholders and constants only.",
      .inputs = {"x"},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_dtype(a, 0, DType::Float32);
        check_shape(a, 0, {}, "(a scalar)");
        return {a.inputs[0]};
      },
      .samples = {{.shapes = {{}}}},
  };
}

}  // namespace

std::vector<OpDef> loss() {
  return {softmax_cross_entropy(),
          softmax_cross_entropy_grad(),
          sigmoid_cross_entropy(),
          sigmoid_cross_entropy_grad(),
          count_labels(),
          count_samples(),
          top_k_hits(),
          step_sum()};
}

}  // namespace hetu::def
