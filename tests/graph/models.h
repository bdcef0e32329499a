// Small graphs for the tests of graph/.
#pragma once
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/builder.h"
#include "ops/layers.h"
#include "ops/registry.h"

namespace hetu {

/// Returns the node with the given name. Throws Internal if there is none.
inline const Node& node_named(const Graph& g, const std::string& name) {
  for (const Node& n : g.nodes) {
    if (n.name == name) return n;
  }
  throw Error(Code::Internal, "no node '" + name + "' in\n" + print_graph(g));
}

/// Returns the uses of a parameter, in order.
inline std::vector<GradientUse> uses_of(const Graph& g, const std::string& parameter) {
  std::vector<GradientUse> uses;
  for (const GradientUse& u : g.gradients) {
    if (g.parameters[u.parameter].name == parameter) uses.push_back(u);
  }
  return uses;
}

/// Returns x [B, 8] -> fc1 (16) -> relu | cut | fc2 (5) -> mean cross entropy.
inline Builder mlp() {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 8});
  const ValueId labels = b.placeholder("labels", DType::Int32, {kBatch});
  const ValueId h = b.apply("relu", {ops::linear(b, x, 16, "fc1")});
  b.cut();
  const ValueId loss = ops::softmax_cross_entropy(b, ops::linear(b, h, 5, "fc2"), labels);
  b.fetch("loss", loss);
  return b;
}

/// Returns the value that b.fetch("loss", ..) named.
inline ValueId loss_of(const Builder& b) { return b.graph().fetches.at(0).second; }

inline ValueId encoder_layer(Builder& b, ValueId x, ValueId mask, const std::string& name) {
  const Scope scope(b, name);
  std::vector<ValueId> inputs;
  for (const char* part : {"query", "key", "value"}) inputs.push_back(ops::linear(b, x, 12, part));
  inputs.push_back(mask);
  ValueId a = b.apply("attention", inputs, {{"heads", std::int64_t{3}}, {"dropout", 0.1}});
  a = b.apply("dropout", {ops::linear(b, a, 12, "output")}, {{"p", 0.1}});
  const ValueId h = ops::layer_norm(b, b.apply("add", {a, x}), "attention_norm");
  ValueId f = b.apply("gelu", {ops::linear(b, h, 20, "up")});
  f = b.apply("dropout", {ops::linear(b, f, 12, "down")}, {{"p", 0.1}});
  return ops::layer_norm(b, b.apply("add", {f, h}), "norm");
}

/// Returns a small BERT: embeddings | layer0 | layer1 | a decoder tied to the word embedding. It
/// has a masked-token loss and a loss of the first token.
inline Builder transformer() {
  Builder b(op_set());
  const Shape tokens = {kBatch, 6};
  const ValueId ids = b.placeholder("input_ids", DType::Int32, tokens);
  const ValueId mask = b.placeholder("input_mask", DType::Int32, tokens);
  const ValueId labels = b.placeholder("masked_labels", DType::Int32, tokens);
  const ValueId next = b.placeholder("next_sentence", DType::Int32, {kBatch});
  const ValueId table = b.parameter("words/weight", {11, 12}, ops::kNormal002);
  ValueId x = b.apply("embedding", {table, ids}, {}, "words");
  x = ops::layer_norm(b, x, "embedding_norm");
  for (int layer = 0; layer < 2; ++layer) {
    b.cut();
    x = encoder_layer(b, x, mask, "layer" + std::to_string(layer));
  }
  b.cut();
  const ValueId first =
      b.apply("select", {x}, {{"axis", std::int64_t{1}}, {"index", std::int64_t{0}}}, "first");
  const ValueId pooled = b.apply("tanh", {ops::linear(b, first, 12, "pooler")});
  const ValueId bias = b.parameter("decoder/bias", {11}, {}, false);
  const ValueId logits = b.apply("linear", {x, table, bias}, {}, "decoder");
  const ValueId mlm = ops::softmax_cross_entropy(b, logits, labels, {.ignore = -1}, "mlm_loss");
  const ValueId nsp =
      ops::softmax_cross_entropy(b, ops::linear(b, pooled, 2, "nsp"), next, {}, "nsp_loss");
  b.fetch("loss", b.apply("add", {mlm, nsp}, {}, "loss"));
  b.fetch("mlm_loss", mlm);
  b.fetch("nsp_loss", nsp);
  return b;
}

/// Returns the finished graph with its gradients.
inline Graph trained(Builder b) {
  b.differentiate(loss_of(b));
  return b.finish();
}

}  // namespace hetu
