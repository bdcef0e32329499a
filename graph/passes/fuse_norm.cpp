#include "graph/passes/fuse_norm.h"

#include <string>
#include <utility>
#include <vector>

#include "graph/passes/rewrite.h"

namespace hetu {
namespace {

class NormFuser {
 public:
  explicit NormFuser(const Graph& graph)
      : graph_(graph),
        out_(graph),
        readers_(readers_of(graph)),
        norm_of_(graph.nodes.size(), kNone),
        add_of_(graph.nodes.size(), kNone),
        gone_(graph.nodes.size(), false) {}

  Graph run() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) find(static_cast<NodeId>(id));
    return out_.write_each([this](NodeId id) { copy(id); });
  }

 private:
  const Node& node(NodeId id) const { return graph_.nodes[id]; }
  NodeId producer(ValueId v) const { return graph_.values[v].producer; }

  // Returns the producer of `v` if it is an `op` node of the reader's block and phase, and nothing
  // else reads `v`.
  NodeId only_for(ValueId v, const char* op, const Node& reader) const {
    const NodeId id = producer(v);
    const Node& n = node(id);
    const bool fits = n.op == op && n.block == reader.block && n.phase == reader.phase &&
                      v == n.outputs[0] && readers_[v].size() == 1;
    return fits ? id : kNone;
  }

  // Returns true if both sides have the same type. A side that is broadcast isn't a skip
  // connection.
  bool equal_sides(const Node& add) const {
    return graph_.values[add.inputs[0]].type == graph_.values[add.inputs[1]].type;
  }

  // Finds the batch norm that a relu absorbs: the one directly before it, or before the add before
  // it.
  void find(NodeId id) {
    const Node& relu = node(id);
    if (relu.op != "relu") return;
    norm_of_[id] = only_for(relu.inputs[0], "batch_norm", relu);
    if (norm_of_[id] == kNone) {
      const NodeId add = only_for(relu.inputs[0], "add", relu);
      if (add == kNone || !equal_sides(node(add))) return;
      for (const ValueId v : node(add).inputs) {
        if (norm_of_[id] == kNone) norm_of_[id] = only_for(v, "batch_norm", relu);
      }
      if (norm_of_[id] == kNone) return;
      add_of_[id] = add;
      gone_[add] = true;
    }
    gone_[norm_of_[id]] = true;
  }

  void copy(NodeId id) {
    const Node& n = node(id);
    const bool joined = gone_[id] || (n.op == "relu_grad" && grad_reader(n) != kNone) ||
                        (n.op == "batch_norm_grad" && fuse_backward(id));
    if (joined) return;
    if (norm_of_[id] != kNone) {
      fuse_forward(id);
    } else {
      out_.copy(id);
    }
  }

  // Writes the fused node at the relu's position. By then the skip connection's value exists, and
  // the norm's other outputs are read by gradients only.
  void fuse_forward(NodeId relu) {
    const NodeId norm = norm_of_[relu], add = add_of_[relu];
    Node fused = node(norm);
    for (ValueId& v : fused.inputs) v = out_.mapped(v);
    fused.op = add == kNone ? "batch_norm_relu" : "batch_norm_add_relu";
    if (add != kNone) {
      const std::vector<ValueId>& sides = node(add).inputs;
      fused.inputs.push_back(out_.mapped(sides[0] == node(norm).outputs[0] ? sides[1] : sides[0]));
    }
    out_.copy_as(norm, std::move(fused));
    out_.replace(node(relu).outputs[0], out_.mapped(node(norm).outputs[0]));
  }

  // Returns the batch_norm_grad that can absorb the relu_grad: that of the norm with which the relu
  // was fused. Returns kNone if there is none.
  NodeId grad_reader(const Node& relu_grad) const {
    const NodeId relu = producer(relu_grad.inputs[0]);
    if (norm_of_[relu] == kNone || add_of_[relu] != kNone) return kNone;
    const std::vector<NodeId>& readers = readers_[relu_grad.outputs[0]];
    if (readers.size() != 1) return kNone;
    const Node& grad = node(readers[0]);
    const Node& norm = node(norm_of_[relu]);
    const bool fits = grad.op == "batch_norm_grad" && grad.inputs[2] == norm.outputs[1] &&
                      grad.inputs[4] == relu_grad.outputs[0] && grad.block == relu_grad.block &&
                      grad.phase == relu_grad.phase;
    return fits ? readers[0] : kNone;
  }

  bool fuse_backward(NodeId id) {
    const Node& grad = node(id);
    const Node& before = graph_.producer(grad.inputs[4]);
    if (before.op != "relu_grad" || grad_reader(before) != id) return false;
    const Node& norm = node(norm_of_[producer(before.inputs[0])]);
    Node fused = grad;
    fused.op = "batch_norm_relu_grad";
    fused.inputs.insert(fused.inputs.begin() + 4, norm.inputs[2]);
    fused.inputs[5] = before.inputs[1];
    for (ValueId& v : fused.inputs) v = out_.mapped(v);
    out_.copy_as(id, std::move(fused));
    return true;
  }

  const Graph& graph_;
  GraphRewriter out_;
  const std::vector<std::vector<NodeId>> readers_;
  std::vector<NodeId> norm_of_;  ///< per relu: the batch norm that it absorbs
  std::vector<NodeId> add_of_;   ///< per relu: the add between them, or kNone
  std::vector<bool> gone_;       ///< norms and adds that a relu absorbs
};

}  // namespace

Graph fuse_norm(const Graph& graph) { return NormFuser(graph).run(); }

}  // namespace hetu
