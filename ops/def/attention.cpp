// Multi-head attention as one operator, so that a back end may fuse it.
#include "ops/def/rules.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

const AttrSpec kHeads = {"heads", std::int64_t{1}, true, "divides the width"};
const AttrSpec kDropout = {"dropout", 0.0, false, "probability of a 0 in the weights, in [0, 1)"};

// q, k and v: float32 [batch, tokens, width] of one shape.
void want_qkv(const InferArgs& a) {
  for (std::size_t i = 0; i < 3; ++i) want_dtype(a, i, DType::Float32);
  const Shape& q = a.inputs[0].shape;
  want(q.size() == 3 && q[1] >= 0 && q[2] >= 0, a, "q must be [batch, tokens, width], got {}",
       to_string(a.inputs[0]));
  want_shape(a, 1, q, to_fit(a, 0));
  want_shape(a, 2, q, to_fit(a, 0));
  const std::int64_t heads = a.attrs.integer("heads");
  want(heads > 0 && q[2] % heads == 0, a, "heads must divide the width {} of q {}, got {}", q[2],
       to_string(a.inputs[0]), heads);
  const double p = a.attrs.real("dropout");
  want(p >= 0 && p < 1, a, "dropout must be in [0, 1), got {}", p);
}

// Which key a query sees: padding of each sample, or a matrix for all samples or for each.
void want_mask(const InferArgs& a) {
  const Shape& q = a.inputs[0].shape;
  if (a.inputs[3].dtype != DType::Bool) {
    want(a.inputs[3].dtype == DType::Int32, a, "mask is {}, wanted int32 or bool",
         to_string(a.inputs[3]));
    want_shape(a, 3, rows(q), to_fit(a, 0));
    return;
  }
  const Shape one = {q[1], q[1]}, each = {q[0], q[1], q[1]};
  want(a.inputs[3].shape == one || a.inputs[3].shape == each, a,
       "a bool mask must be {} or {} {}, got {}", to_string(one), to_string(each), to_fit(a, 0),
       to_string(a.inputs[3]));
}

Shape probs_shape(const InferArgs& a) {
  const Shape& q = a.inputs[0].shape;
  return {q[0], a.attrs.integer("heads"), q[1], q[1]};
}

// One product of [tokens, width] with [width, tokens] costs 2 * tokens^2 * width per sample.
std::int64_t product_flops(const InferArgs& a) {
  return 2 * elements(a.inputs[0]) * a.inputs[0].shape[1];
}

Attrs attention_attrs(std::int64_t heads, double dropout) {
  return {{"heads", heads}, {"dropout", dropout}};
}

OpDef attention_op() {
  const DType f = DType::Float32;
  const std::vector<DType> dtypes = {f, f, f, DType::Int32}, bools = {f, f, f, DType::Bool};
  return {
      .name = "attention",
      .doc =
          "softmax(q k^T / sqrt(width / heads) + (mask - 1) * 10000) v per head, with dropout on "
          "the weights; probs are the weights before dropout, mask is int32, 1 for tokens and 0 "
          "for "
          "padding, or bool, [tokens, tokens] or one per sample, true where a query sees a key: "
          "what is unseen has weight 0, and a query that sees nothing gives 0.",
      .inputs = {"q", "k", "v", "mask"},
      .outputs = {"y", "probs"},
      .attrs = {kHeads, kDropout},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        want_qkv(a);
        want_mask(a);
        return {a.inputs[0], float32(probs_shape(a))};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        Attrs attrs = g.node.attrs;
        attrs.set("key", g.node.name);
        Values dx =
            b.apply_all("attention_grad",
                        {g.inputs[0], g.inputs[1], g.inputs[2], g.outputs[1], only_dy(g)}, attrs);
        for (std::size_t i = 0; i < 3; ++i) dx[i] = g.wanted[i] ? dx[i] : kNone;
        dx.push_back(kNone);
        return dx;
      },
      .flops = [](const InferArgs& a) { return 2 * product_flops(a); },
      .samples = {{.shapes = {{kBatch, 3, 4}, {kBatch, 3, 4}, {kBatch, 3, 4}, {kBatch, 3}},
                   .attrs = attention_attrs(2, 0.0),
                   .dtypes = dtypes,
                   .integers_below = 2},
                  {.shapes = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1}},
                   .attrs = attention_attrs(1, 0.0),
                   .dtypes = dtypes,
                   .integers_below = 2},
                  {.shapes = {{kBatch, 5, 6}, {kBatch, 5, 6}, {kBatch, 5, 6}, {kBatch, 5}},
                   .attrs = attention_attrs(3, 0.25),
                   .dtypes = dtypes,
                   .integers_below = 2},
                  {.shapes = {{kBatch, 5, 6}, {kBatch, 5, 6}, {kBatch, 5, 6}, {5, 5}},
                   .attrs = attention_attrs(3, 0.0),
                   .dtypes = bools,
                   .integers_below = 2},
                  {.shapes = {{kBatch, 3, 4}, {kBatch, 3, 4}, {kBatch, 3, 4}, {kBatch, 3, 3}},
                   .attrs = attention_attrs(2, 0.25),
                   .dtypes = bools,
                   .integers_below = 2}},
  };
}

OpDef attention_grad() {
  const auto keyed = [](std::int64_t heads, double dropout) {
    Attrs attrs = attention_attrs(heads, dropout);
    attrs.set("key", std::string("layer/attention"));
    return attrs;
  };
  return {
      .name = "attention_grad",
      .doc =
          "The gradients of attention with respect to q, k and v, under the mask of dropout that "
          "the node called key has drawn.",
      .inputs = {"q", "k", "v", "probs", "dy"},
      .outputs = {"dq", "dk", "dv"},
      .attrs = {kHeads, kDropout, {"key", std::string(), true, "name of the attention node"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        want_float(a);
        want_qkv(a);
        want_shape(a, 3, probs_shape(a), to_fit(a, 0));
        want_shape(a, 4, a.inputs[0].shape, to_fit(a, 0));
        return {a.inputs[0], a.inputs[1], a.inputs[2]};
      },
      .flops = [](const InferArgs& a) { return 4 * product_flops(a); },
      .samples =
          {{.shapes =
                {{kBatch, 3, 4}, {kBatch, 3, 4}, {kBatch, 3, 4}, {kBatch, 2, 3, 3}, {kBatch, 3, 4}},
            .attrs = keyed(2, 0.0)},
           {.shapes = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1}},
            .attrs = keyed(1, 0.0)},
           {.shapes =
                {{kBatch, 5, 6}, {kBatch, 5, 6}, {kBatch, 5, 6}, {kBatch, 3, 5, 5}, {kBatch, 5, 6}},
            .attrs = keyed(3, 0.25)}},
  };
}

}  // namespace

std::vector<OpDef> attention() { return {attention_op(), attention_grad()}; }

}  // namespace hetu::def
