#include "graph/passes/fuse_residual.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "graph/passes/rewrite.h"

namespace hetu {
namespace {

class ResidualFuser {
 public:
  explicit ResidualFuser(const Graph& graph)
      : graph_(graph),
        out_(graph),
        readers_(readers_of(graph)),
        joined_(graph.nodes.size()),
        gone_(graph.nodes.size(), false) {}

  Graph run() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      find_forward(static_cast<NodeId>(id));
      find_backward(static_cast<NodeId>(id));
    }
    return out_.write_each([this](NodeId id) { copy(id); });
  }

 private:
  // The nodes and values that a layer norm, or its gradient, absorbs.
  struct Joined {
    NodeId dropout = kNone;  // the dropout or the dropout_grad
    ValueId given = kNone;   // the input of the dropout
    ValueId skip = kNone;    // the other side of the sum
  };

  const Node& node(NodeId id) const { return graph_.nodes[id]; }
  bool is_beside(const Node& n, const Node& other) const {
    return n.block == other.block && n.phase == other.phase;
  }

  // Finds the add and the dropout that a layer norm absorbs. The joined node takes the norm's
  // position, so other readers of the sum must come later.
  void find_forward(NodeId id) {
    const Node& norm = node(id);
    if (norm.op != "layer_norm") return;
    const ValueId sum = norm.inputs[0];
    const NodeId add = graph_.values[sum].producer;
    const Node& from = node(add);
    if (from.op != "add" || !is_beside(from, norm) || gone_[add]) return;
    const TensorType& type = graph_.values[sum].type;
    const bool late = std::all_of(readers_[sum].begin(), readers_[sum].end(),
                                  [id](NodeId r) { return r == kNone || r >= id; });
    // Dropout's random numbers depend on the sample, so the rows must be parts of whole samples.
    if (!late || type.shape.size() < 2 || !is_symbolic(type.shape)) return;
    for (const int side : {0, 1}) {
      const ValueId dropped = from.inputs[side], skip = from.inputs[1 - side];
      const NodeId dropout = graph_.values[dropped].producer;
      const bool fits = node(dropout).op == "dropout" && is_beside(node(dropout), norm) &&
                        readers_[dropped].size() == 1 && !gone_[dropout] &&
                        graph_.values[dropped].type == type && graph_.values[skip].type == type;
      if (!fits) continue;
      joined_[id] = {dropout, node(dropout).inputs[0], skip};
      gone_[add] = gone_[dropout] = true;
      return;
    }
  }

  void find_backward(NodeId id) {
    const Node& grad = node(id);
    if (grad.op != "layer_norm_input_grad") return;
    const NodeId norm = graph_.values[grad.inputs[2]].producer;
    if (node(norm).op != "layer_norm" || joined_[norm].dropout == kNone) return;
    for (const NodeId reader : readers_[grad.outputs[0]]) {
      if (reader == kNone || node(reader).op != "dropout_grad" || !is_beside(node(reader), grad) ||
          node(reader).attrs.text("key") != node(joined_[norm].dropout).name)
        continue;
      joined_[id].dropout = reader;
      gone_[reader] = true;
      return;
    }
  }

  void copy(NodeId id) {
    if (gone_[id]) return;
    if (joined_[id].dropout == kNone)
      out_.copy(id);
    else if (node(id).op == "layer_norm")
      forward(id);
    else
      backward(id);
  }

  void forward(NodeId id) {
    const Joined& with = joined_[id];
    Node joined = node(id);
    const ValueId sum = joined.inputs[0];
    std::vector<ValueId> made = joined.outputs;
    made.push_back(sum);
    joined.op = "dropout_add_layer_norm";
    joined.inputs = {with.given, with.skip, joined.inputs[1], joined.inputs[2]};
    joined.attrs.set("key", node(with.dropout).name);
    put(std::move(joined), with.dropout, made);
  }

  void backward(NodeId id) {
    const Node& dropout = node(joined_[id].dropout);
    Node joined = node(id);
    joined.op = "dropout_add_layer_norm_grad";
    joined.attrs.set("key", dropout.attrs.text("key"));
    put(std::move(joined), joined_[id].dropout, {node(id).outputs[0], dropout.outputs[0]});
  }

  // Writes the joined node. Its outputs replace the old values `made`.
  void put(Node joined, NodeId dropout, const std::vector<ValueId>& made) {
    joined.attrs.set("p", node(dropout).attrs.real("p"));
    for (ValueId& v : joined.inputs) v = out_.mapped(v);
    std::vector<TensorType> types;
    for (const ValueId v : made) types.push_back(graph_.values[v].type);
    const std::vector<ValueId> outputs = out_.put(std::move(joined), types);
    for (std::size_t i = 0; i < made.size(); ++i) out_.replace(made[i], outputs[i]);
  }

  const Graph& graph_;
  GraphRewriter out_;
  const std::vector<std::vector<NodeId>> readers_;
  std::vector<Joined> joined_;  ///< per layer norm or gradient of one
  std::vector<bool> gone_;      ///< dropouts, sums and gradients of dropouts that are absorbed
};

}  // namespace

Graph fuse_residual(const Graph& graph) { return ResidualFuser(graph).run(); }

}  // namespace hetu
