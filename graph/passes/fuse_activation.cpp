#include "graph/passes/fuse_activation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "graph/passes/rewrite.h"

namespace hetu {
namespace {

class ActivationFuser {
 public:
  explicit ActivationFuser(const Graph& graph)
      : graph_(graph),
        out_(graph),
        readers_(readers_of(graph)),
        linear_of_(graph.nodes.size(), kNone),
        gone_(graph.nodes.size(), false) {}

  Graph run() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) find(static_cast<NodeId>(id));
    return out_.write_each([this](NodeId id) {
      if (linear_of_[id] != kNone)
        join(id);
      else if (!gone_[id])
        out_.copy(id);
    });
  }

 private:
  static bool keeps_linear(const Node& activation) { return activation.op != "relu"; }

  // Finds the linear layer that an activation absorbs. The joined node takes the activation's
  // position, so other readers of the linear output must come later. linear_relu doesn't keep that
  // output, so there the activation must be the only reader.
  void find(NodeId id) {
    const Node& n = graph_.nodes[id];
    if (n.op != "relu" && n.op != "gelu" && n.op != "gelu_tanh") return;
    const ValueId made = n.inputs[0];
    const NodeId linear = graph_.values[made].producer;
    const Node& from = graph_.nodes[linear];
    if (from.op != "linear" || from.block != n.block || from.phase != n.phase || gone_[linear])
      return;
    const std::vector<NodeId>& readers = readers_[made];
    const bool fits = keeps_linear(n)
                          ? std::all_of(readers.begin(), readers.end(),
                                        [id](NodeId r) { return r == kNone || r >= id; })
                          : readers.size() == 1;
    if (!fits) return;
    linear_of_[id] = linear;
    gone_[linear] = true;
  }

  void join(NodeId id) {
    const Node& activation = graph_.nodes[id];
    Node joined = graph_.nodes[linear_of_[id]];
    const ValueId made = joined.outputs[0], y = activation.outputs[0];
    joined.op = "linear_" + activation.op;
    for (ValueId& v : joined.inputs) v = out_.mapped(v);
    std::vector<TensorType> types = {graph_.values[y].type};
    if (keeps_linear(activation)) types.push_back(graph_.values[made].type);
    const std::vector<ValueId> outputs = out_.put(std::move(joined), types);
    out_.replace(y, outputs[0]);
    if (keeps_linear(activation)) out_.replace(made, outputs[1]);
  }

  const Graph& graph_;
  GraphRewriter out_;
  const std::vector<std::vector<NodeId>> readers_;
  std::vector<NodeId> linear_of_;  ///< per activation: the layer that it absorbs
  std::vector<bool> gone_;         ///< layers that an activation absorbs
};

}  // namespace

Graph fuse_activation(const Graph& graph) { return ActivationFuser(graph).run(); }

}  // namespace hetu
