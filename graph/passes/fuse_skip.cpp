#include "graph/passes/fuse_skip.h"

#include <utility>
#include <vector>

#include "graph/passes/rewrite.h"

namespace hetu {
namespace {

class SkipFuser {
 public:
  explicit SkipFuser(const Graph& graph)
      : graph_(graph),
        out_(graph),
        readers_(readers_of(graph)),
        joins_(graph.nodes.size()),
        gone_(graph.nodes.size(), false) {}

  Graph run() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) find(static_cast<NodeId>(id));
    return out_.write_each([this](NodeId id) {
      if (joins_[id].norm_grad != kNone)
        join(id);
      else if (!gone_[id])
        out_.copy(id);
    });
  }

 private:
  // The nodes that a relu_grad absorbs.
  struct Joined {
    NodeId sum = kNone, norm_grad = kNone;
  };

  const Node& node(NodeId id) const { return graph_.nodes[id]; }
  const TensorType& type(ValueId v) const { return graph_.values[v].type; }
  static bool are_beside(const Node& a, const Node& b) {
    return a.block == b.block && a.phase == b.phase;
  }

  // Finds the nodes that a relu_grad absorbs: the sum before it, and the first batch_norm_grad
  // after it that belongs to the fused norm of the same relu. The joined node takes the position of
  // the relu_grad, because the skip connection reads its value from there on.
  void find(NodeId id) {
    const Node& cut = node(id);
    if (cut.op != "relu_grad") return;
    const Node& norm = graph_.producer(cut.inputs[0]);
    const NodeId sum = graph_.values[cut.inputs[1]].producer;
    const Node& add = node(sum);
    const bool fits = norm.op == "batch_norm_add_relu" && norm.outputs[0] == cut.inputs[0] &&
                      add.op == "add" && are_beside(add, cut) &&
                      readers_[cut.inputs[1]].size() == 1 &&
                      type(add.inputs[0]) == type(add.inputs[1]);
    if (!fits) return;
    for (const NodeId reader : readers_[cut.outputs[0]]) {
      if (reader == kNone) continue;
      const Node& grad = node(reader);
      const bool is_its = grad.op == "batch_norm_grad" && are_beside(grad, cut) &&
                          grad.inputs[2] == norm.outputs[1] && grad.inputs[4] == cut.outputs[0];
      if (!is_its) continue;
      joins_[id] = {sum, reader};
      gone_[sum] = gone_[reader] = true;
      return;
    }
  }

  void join(NodeId id) {
    const Node &cut = node(id), &grad = node(joins_[id].norm_grad), &add = node(joins_[id].sum);
    Node joined = grad;
    joined.op = "batch_norm_add_relu_grad";
    joined.inputs.pop_back();
    joined.inputs.insert(joined.inputs.end(), {cut.inputs[0], add.inputs[0], add.inputs[1]});
    for (ValueId& v : joined.inputs) v = out_.mapped(v);
    std::vector<TensorType> types;
    for (const ValueId v : grad.outputs) types.push_back(type(v));
    types.push_back(type(cut.outputs[0]));
    const std::vector<ValueId> made = out_.put(std::move(joined), types);
    for (std::size_t i = 0; i < grad.outputs.size(); ++i) out_.replace(grad.outputs[i], made[i]);
    out_.replace(cut.outputs[0], made.back());
  }

  const Graph& graph_;
  GraphRewriter out_;
  const std::vector<std::vector<NodeId>> readers_;
  std::vector<Joined> joins_;  ///< per relu_grad
  std::vector<bool> gone_;     ///< adds and gradients of norms that a relu_grad absorbs
};

}  // namespace

Graph fuse_skip(const Graph& graph) { return SkipFuser(graph).run(); }

}  // namespace hetu
