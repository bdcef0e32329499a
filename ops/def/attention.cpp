// Multi-head attention as a single operator, so that a back end may fuse it.
#include "ops/def/broadcast.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

// The sizes of q [batch, queries, width] and of k and v [batch, keys, kv_heads * width / heads].
struct AttentionSizes {
  std::int64_t queries, keys, heads, kv_heads, columns;
  AttentionSizes(const Shape& q, const Shape& k, const Attrs& attrs)
      : queries(q[1]),
        keys(k[1]),
        heads(attrs.integer("heads")),
        kv_heads(attrs.integer("kv_heads") > 0 ? attrs.integer("kv_heads") : heads),
        columns(q[2] / heads) {}
};

AttentionSizes attention_sizes(const InferArgs& a) {
  return {a.inputs[0].shape, a.inputs[1].shape, a.attrs};
}

std::vector<AttrSpec> attention_specs() {
  return {
      {"heads", std::int64_t{1}, true, "number of heads; divides the width"},
      {"dropout", 0.0, false, "dropout probability of the weights, in [0, 1)"},
      {"kv_heads", std::int64_t{0}, false,
       "number of heads of k and v, each shared by heads / kv_heads heads of q; 0: as many as "
       "heads"},
      {"causal", std::int64_t{0}, false, "1: a query attends to no key after its own position"},
      {"window", std::int64_t{0}, false,
       "a query attends only to keys less than this many positions away; 0: to all keys"},
  };
}

// Checks that input 0 is [batch, queries, width] and input 1 is [batch, keys, width of kv_heads
// heads], and checks the attributes.
void check_sizes(const InferArgs& a) {
  const Shape &q = a.inputs[0].shape, &k = a.inputs[1].shape;
  const std::string &queries = input_name(a, 0), &keys = input_name(a, 1);
  check(q.size() == 3 && q[1] >= 0 && q[2] >= 0, a, "{} must be [batch, tokens, width], got {}",
        queries, to_string(a.inputs[0]));
  const std::int64_t heads = a.attrs.integer("heads"), kv_heads = a.attrs.integer("kv_heads");
  check(heads > 0 && q[2] % heads == 0, a, "heads must divide the width {} of {} {}, got {}", q[2],
        queries, to_string(a.inputs[0]), heads);
  check(kv_heads >= 0 && (kv_heads == 0 || heads % kv_heads == 0), a,
        "kv_heads must divide the {} heads, got {}", heads, kv_heads);
  const std::int64_t width = q[2] / heads * (kv_heads > 0 ? kv_heads : heads);
  check(k.size() == 3 && k[0] == q[0] && k[1] >= 0 && k[2] == width, a,
        "{} must be {} with any number of tokens {}, got {}", keys,
        to_string(Shape{q[0], q[1], width}), to_fit(a, 0), to_string(a.inputs[1]));
  const double p = a.attrs.real("dropout");
  check(p >= 0 && p < 1, a, "dropout must be in [0, 1), got {}", p);
  const std::int64_t causal = a.attrs.integer("causal"), window = a.attrs.integer("window");
  check(causal == 0 || causal == 1, a, "causal must be 0 or 1, got {}", causal);
  check(window >= 0, a, "window must be >= 0, got {}", window);
}

void check_qkv(const InferArgs& a) {
  for (std::size_t i = 0; i < 3; ++i) check_dtype(a, i, DType::Float32);
  check_sizes(a);
  check_shape(a, 2, a.inputs[1].shape, to_fit(a, 1));
}

// Checks the mask. int32 marks the padding of each sample, [batch, keys]. bool says which keys a
// query attends to, and float32 is added to the scores. Both are [queries, keys], [batch, queries,
// keys], or broadcast to [batch, heads, queries, keys] along the batch and the heads.
void check_mask(const InferArgs& a, std::size_t at = 3) {
  if (a.inputs.size() <= at) return;
  const AttentionSizes s = attention_sizes(a);
  const std::int64_t batch = a.inputs[0].shape[0];
  const TensorType& mask = a.inputs[at];
  if (mask.dtype == DType::Int32) {
    check_shape(a, at, {batch, s.keys}, to_fit(a, 0));
    return;
  }
  check(mask.dtype == DType::Bool || mask.dtype == DType::Float32, a,
        "mask is {}, expected int32, bool or float32", to_string(mask));
  const Shape one = {s.queries, s.keys}, each = {batch, s.queries, s.keys};
  const Shape full = {batch, s.heads, s.queries, s.keys};
  const bool four = mask.shape.size() == 4 && broadcasts_to(mask.shape, full) &&
                    Shape(mask.shape.begin() + 2, mask.shape.end()) == one;
  check(mask.shape == one || mask.shape == each || four, a,
        "a {} mask must be {} or {} {}, or {} with 1 for the batch or heads; got {}",
        dtype_name(mask.dtype), to_string(one), to_string(each), to_fit(a, 0), to_string(full),
        to_string(mask));
}

Shape probs_shape(const InferArgs& a) {
  const AttentionSizes s = attention_sizes(a);
  return {a.inputs[0].shape[0], s.heads, s.queries, s.keys};
}

// Returns the shape of the softmax statistics. Per row of scores: the maximum, and the inverse of
// the sum of exponentials.
Shape stats_shape(const InferArgs& a) {
  const AttentionSizes s = attention_sizes(a);
  return {a.inputs[0].shape[0], s.heads, s.queries, 2};
}

// Returns the cost of one product of [queries, width] with [width, keys]: 2 * queries * keys *
// width per sample.
std::int64_t product_flops(const InferArgs& a) {
  return 2 * elements(a.inputs[0]) * a.inputs[1].shape[1];
}

// Returns the gradient of a float mask, which was added to the scores: the gradient of the scores,
// summed over the axes along which the mask was broadcast.
ValueId mask_grad(Builder& b, const GradArgs& g, const Attrs& attrs) {
  const ValueId scores =
      b.apply("attention_scores_grad", {only_dy(g), g.inputs[2], g.outputs[1]}, attrs);
  const Shape mask = b.type(g.inputs[3]).shape;
  if (mask.size() != 3) return sum_to(b, scores, mask);
  const ValueId each = sum_to(b, scores, {mask[0], 1, mask[1], mask[2]});
  return b.apply("reshape", {each}, {{"shape", mask}});
}

Attrs attention_attrs(std::int64_t heads, double dropout, std::int64_t kv_heads = 0,
                      std::int64_t causal = 0, std::int64_t window = 0) {
  return {{"heads", heads},
          {"dropout", dropout},
          {"kv_heads", kv_heads},
          {"causal", causal},
          {"window", window}};
}

std::vector<Sample> attention_samples() {
  const DType f = DType::Float32;
  const auto sample = [f](std::vector<Shape> shapes, const Attrs& attrs, DType mask) {
    Sample s{.shapes = std::move(shapes), .attrs = attrs};
    s.dtypes = s.shapes.size() == 4 ? std::vector<DType>{f, f, f, mask} : std::vector<DType>{};
    s.integers_below = 2;
    return s;
  };
  const Shape small = {kBatch, 3, 4}, odd = {kBatch, 5, 6}, grouped = {kBatch, 5, 2};
  const DType i = DType::Int32, t = DType::Bool;
  return {sample({small, small, small, {kBatch, 3}}, attention_attrs(2, 0.0), i),
          sample({{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1}}, attention_attrs(1, 0.0), i),
          sample({odd, odd, odd, {kBatch, 5}}, attention_attrs(3, 0.25), i),
          sample({odd, odd, odd, {5, 5}}, attention_attrs(3, 0.0), t),
          sample({small, small, small, {kBatch, 3, 3}}, attention_attrs(2, 0.25), t),
          sample({odd, odd, odd}, attention_attrs(3, 0.0, 0, 1), t),
          sample({odd, grouped, grouped, {kBatch, 5, 5}}, attention_attrs(3, 0.25, 1, 1, 2), t),
          sample({odd, odd, odd, {kBatch, 1, 5, 5}}, attention_attrs(2, 0.0, 0, 0, 2), t),
          sample({small, {kBatch, 5, 4}, {kBatch, 5, 4}}, attention_attrs(2, 0.0, 0, 1), t),
          sample({odd, {kBatch, 3, 6}, {kBatch, 3, 6}}, attention_attrs(2, 0.0, 2, 1, 2), t),
          sample({odd, odd, odd, {5, 5}}, attention_attrs(3, 0.25), f),
          sample({odd, grouped, grouped, {1, 3, 5, 5}}, attention_attrs(3, 0.0, 1, 1), f),
          sample({small, small, small, {kBatch, 3, 3}}, attention_attrs(2, 0.0), f),
          sample({small, {kBatch, 2, 2}, {kBatch, 2, 2}, {kBatch, 2, 3, 2}},
                 attention_attrs(2, 0.25, 1), f)};
}

OpDef attention_op() {
  return {
      .name = "attention",
      .doc =
          "softmax(q k^T / sqrt(width / heads) + mask) v per head, with dropout on the weights; "
          "probs holds the weights before dropout. The last query has the position of the last "
          "key. mask is float32 (added to the scores), or bool (true where a query may attend to a "
          "key), of shape [queries, keys], [batch, queries, keys] or [batch or 1, heads or 1, "
          "queries, keys]; or int32 [batch, keys] with 1 for tokens and 0 for padding, which adds "
          "-10000. Keys that a query may not attend to have weight 0. A query without any key "
          "gives 0.",
      .inputs = {"q", "k", "v"},
      .optional_inputs = {"mask"},
      .outputs = {"y", "probs"},
      .attrs = attention_specs(),
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_qkv(a);
        check_mask(a);
        return {a.inputs[0], float32(probs_shape(a))};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        Attrs attrs = g.node.attrs;
        attrs.set("key", g.node.name);
        Values dx(3, kNone);
        if (g.wanted[0] || g.wanted[1] || g.wanted[2]) {
          dx = b.apply_all(
              "attention_grad",
              {g.inputs[0], g.inputs[1], g.inputs[2], g.outputs[1], only_dy(g), g.outputs[0]},
              attrs);
        }
        for (std::size_t i = 0; i < 3; ++i) dx[i] = g.wanted[i] ? dx[i] : kNone;
        if (g.inputs.size() == 4) dx.push_back(g.wanted[3] ? mask_grad(b, g, attrs) : kNone);
        return dx;
      },
      .flops = [](const InferArgs& a) { return 2 * product_flops(a); },
      .samples = attention_samples(),
  };
}

Attrs keyed(Attrs attrs) {
  attrs.set("key", std::string("layer/attention"));
  return attrs;
}

std::vector<AttrSpec> gradient_specs() {
  std::vector<AttrSpec> specs = attention_specs();
  specs.push_back({"key", std::string(), true, "name of the attention node"});
  return specs;
}

OpDef attention_grad() {
  const Shape small = {kBatch, 3, 4}, odd = {kBatch, 5, 6}, grouped = {kBatch, 5, 2};
  return {
      .name = "attention_grad",
      .doc =
          "The gradients of attention with respect to q, k and v, with the dropout mask of the "
          "node named by key. The sum over a row of probs times their gradients is computed as "
          "sum(dy * y) of its head.",
      .inputs = {"q", "k", "v", "probs", "dy", "y"},
      .outputs = {"dq", "dk", "dv"},
      .attrs = gradient_specs(),
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check_qkv(a);
        check_shape(a, 3, probs_shape(a), to_fit(a, 0));
        for (std::size_t i = 4; i < 6; ++i) check_shape(a, i, a.inputs[0].shape, to_fit(a, 0));
        return {a.inputs[0], a.inputs[1], a.inputs[2]};
      },
      .flops = [](const InferArgs& a) { return 4 * product_flops(a); },
      .samples = {{.shapes = {small, small, small, {kBatch, 2, 3, 3}, small, small},
                   .attrs = keyed(attention_attrs(2, 0.0))},
                  {.shapes = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
                   .attrs = keyed(attention_attrs(1, 0.0))},
                  {.shapes = {odd, odd, odd, {kBatch, 3, 5, 5}, odd, odd},
                   .attrs = keyed(attention_attrs(3, 0.25))},
                  {.shapes = {odd, grouped, grouped, {kBatch, 3, 5, 5}, odd, odd},
                   .attrs = keyed(attention_attrs(3, 0.25, 1, 1, 3))}},
  };
}

OpDef fused_attention() {
  OpDef def = attention_op();
  def.name = "fused_attention";
  def.doc =
      "attention that keeps two numbers per row instead of probs, from which the gradient "
      "recomputes probs: the highest score, and the inverse of the sum of exp(score - highest "
      "score). Both are 0 for a query without any key. Created by the fusion pass.";
  def.outputs = {"y", "stats"};
  def.infer = [](const InferArgs& a) -> std::vector<TensorType> {
    check_qkv(a);
    check_mask(a);
    return {a.inputs[0], float32(stats_shape(a))};
  };
  def.grad = nullptr;
  return def;
}

OpDef fused_attention_grad() {
  const DType f = DType::Float32;
  const Shape small = {kBatch, 3, 4}, odd = {kBatch, 5, 6}, grouped = {kBatch, 5, 2};
  const auto sample = [f](std::vector<Shape> shapes, const Attrs& attrs, DType mask) {
    Sample s{.shapes = std::move(shapes), .attrs = keyed(attrs)};
    s.dtypes = {f, f, f, f, f, f, mask};
    s.dtypes.resize(s.shapes.size());
    s.integers_below = 2;
    return s;
  };
  return {
      .name = "fused_attention_grad",
      .doc = "The gradients of fused_attention with respect to q, k and v, as in attention_grad.",
      .inputs = {"q", "k", "v", "stats", "dy", "y"},
      .optional_inputs = {"mask"},
      .outputs = {"dq", "dk", "dv"},
      .attrs = gradient_specs(),
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_qkv(a);
        for (std::size_t i = 3; i < 6; ++i) check_dtype(a, i, DType::Float32);
        check_shape(a, 3, stats_shape(a), to_fit(a, 0));
        for (std::size_t i = 4; i < 6; ++i) check_shape(a, i, a.inputs[0].shape, to_fit(a, 0));
        check_mask(a, 6);
        return {a.inputs[0], a.inputs[1], a.inputs[2]};
      },
      .flops = [](const InferArgs& a) { return 5 * product_flops(a); },
      .samples = {sample({small, small, small, {kBatch, 2, 3, 2}, small, small, {kBatch, 3}},
                         attention_attrs(2, 0.0), DType::Int32),
                  sample({odd, odd, odd, {kBatch, 3, 5, 2}, odd, odd, {kBatch, 5, 5}},
                         attention_attrs(3, 0.25), DType::Bool),
                  sample({odd, grouped, grouped, {kBatch, 3, 5, 2}, odd, odd, {1, 3, 5, 5}},
                         attention_attrs(3, 0.25, 1, 1, 3), f),
                  sample({odd, grouped, grouped, {kBatch, 3, 5, 2}, odd, odd},
                         attention_attrs(3, 0.25, 1, 1, 3), f)},
  };
}

OpDef attention_scores_grad() {
  const Shape small = {kBatch, 3, 4}, odd = {kBatch, 5, 6}, grouped = {kBatch, 5, 2};
  return {
      .name = "attention_scores_grad",
      .doc =
          "The gradient of attention with respect to the mask that is added to its scores: probs * "
          "(dprobs - sum(probs * dprobs)) per row.",
      .inputs = {"dy", "v", "probs"},
      .outputs = {"dscores"},
      .attrs = gradient_specs(),
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check_sizes(a);
        check_shape(a, 2, probs_shape(a), to_fit(a, 0));
        return {a.inputs[2]};
      },
      .flops = product_flops,
      .samples = {{.shapes = {small, small, {kBatch, 2, 3, 3}},
                   .attrs = keyed(attention_attrs(2, 0.0))},
                  {.shapes = {odd, grouped, {kBatch, 3, 5, 5}},
                   .attrs = keyed(attention_attrs(3, 0.25, 1, 1, 3))}},
  };
}

}  // namespace

std::vector<OpDef> attention() {
  return {product_of(attention_op(), {3}), product_of(attention_grad()),
          product_of(attention_scores_grad()), product_of(fused_attention(), {3}, {1}),
          product_of(fused_attention_grad(), {3, 6})};
}

}  // namespace hetu::def
