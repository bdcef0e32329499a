#include "graph/passes/fuse_attention.h"

#include <utility>
#include <vector>

#include "graph/passes/rewrite.h"

namespace hetu {
namespace {

class AttentionFuser {
 public:
  explicit AttentionFuser(const Graph& graph)
      : graph_(graph), out_(graph), is_fused_(graph.nodes.size(), false) {
    std::vector<bool> is_read(graph.values.size(), false);
    for (const auto& fetch : graph.fetches) is_read[fetch.second] = true;
    for (const Node& n : graph.nodes)
      for (std::size_t i = 0; i < n.inputs.size(); ++i)
        if (n.op != "attention_grad" || i != kProbs) is_read[n.inputs[i]] = true;
    for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
      const Node& n = graph.nodes[id];
      is_fused_[id] = n.op == "attention" && !is_read[n.outputs[1]] && !has_large_mask(n);
    }
  }

  Graph run() {
    return out_.write_each([this](NodeId id) { copy(id); });
  }

 private:
  // index of the attention weights among the inputs of attention_grad
  static constexpr std::size_t kProbs = 3;

  // Returns true if the mask is as large as the weights. Backward would have to keep the mask, so
  // nothing would be saved.
  bool has_large_mask(const Node& n) const {
    return n.inputs.size() > 3 &&
           graph_.values[n.inputs[3]].type.shape == graph_.values[n.outputs[1]].type.shape;
  }

  void copy(NodeId id) {
    const Node& n = graph_.nodes[id];
    if (is_fused_[id]) {
      forward(id);
    } else if (n.op == "attention_grad" && is_fused_[graph_.values[n.inputs[kProbs]].producer]) {
      backward(id);
    } else {
      out_.copy(id);
    }
  }

  void forward(NodeId id) {
    Node fused = graph_.nodes[id];
    const ValueId probs = fused.outputs[1];
    fused.op = "fused_attention";
    for (ValueId& v : fused.inputs) v = out_.mapped(v);
    out_.copy_as(id, std::move(fused));
    TensorType stats = graph_.values[probs].type;
    stats.shape.back() = 2;
    out_.set_type(out_.mapped(probs), std::move(stats));
  }

  void backward(NodeId id) {
    Node fused = graph_.nodes[id];
    const Node& attention = graph_.producer(fused.inputs[kProbs]);
    fused.op = "fused_attention_grad";
    if (attention.inputs.size() > 3) fused.inputs.push_back(attention.inputs[3]);
    for (ValueId& v : fused.inputs) v = out_.mapped(v);
    out_.copy_as(id, std::move(fused));
  }

  const Graph& graph_;
  GraphRewriter out_;
  std::vector<bool> is_fused_;  ///< per node: an attention node that is rewritten
};

}  // namespace

Graph fuse_attention(const Graph& graph) { return AttentionFuser(graph).run(); }

}  // namespace hetu
