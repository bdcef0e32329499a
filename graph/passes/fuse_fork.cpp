#include "graph/passes/fuse_fork.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "graph/passes/rewrite.h"

namespace hetu {
namespace {

class ForkFuser {
 public:
  explicit ForkFuser(const Graph& graph)
      : graph_(graph),
        out_(graph),
        readers_(readers_of(graph)),
        product_of_(graph.nodes.size(), kNone),
        gone_(graph.nodes.size(), false) {}

  Graph run() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) find(static_cast<NodeId>(id));
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (product_of_[id] != kNone)
        join(static_cast<NodeId>(id));
      else if (!gone_[id])
        out_.copy(static_cast<NodeId>(id));
    }
    Graph result = out_.finish();
    check_graph(result);
    return result;
  }

 private:
  const TensorType& type(ValueId v) const { return graph_.values[v].type; }

  // The node that makes `v`, if it is a product that an addition may take in.
  NodeId product(ValueId v, const Node& add) const {
    const NodeId id = graph_.values[v].producer;
    const Node& n = graph_.nodes[id];
    const bool fits = n.op == "linear_input_grad" && n.phase == add.phase && n.block == add.block &&
                      readers_[v].size() == 1;
    return fits ? id : kNone;
  }

  void find(NodeId id) {
    const Node& add = graph_.nodes[id];
    if (add.op != "add" || add.phase != Phase::InputGrad ||
        type(add.inputs[0]) != type(add.inputs[1]))
      return;
    const NodeId last = std::max(product(add.inputs[0], add), product(add.inputs[1], add));
    if (last == kNone) return;
    product_of_[id] = last;
    gone_[last] = true;
  }

  // Where the addition stood, and under its name.
  void join(NodeId id) {
    const Node &add = graph_.nodes[id], &product = graph_.nodes[product_of_[id]];
    const bool first = add.inputs[0] == product.outputs[0];
    Node joined = add;
    joined.op = "linear_input_grad_add";
    joined.inputs = {product.inputs[0], product.inputs[1], add.inputs[first ? 1 : 0]};
    for (ValueId& v : joined.inputs) v = out_.mapped(v);
    out_.copy_as(id, std::move(joined));
  }

  const Graph& graph_;
  GraphRewriter out_;
  const std::vector<std::vector<NodeId>> readers_;
  std::vector<NodeId> product_of_;  ///< of additions: what they take in
  std::vector<bool> gone_;          ///< products that an addition took in
};

}  // namespace

Graph fuse_fork(const Graph& graph) { return ForkFuser(graph).run(); }

}  // namespace hetu
