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
        gone_(graph.nodes.size(), false) {
    for (const Node& n : graph.nodes) block_.push_back(n.block);
  }

  Graph run() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) find(static_cast<NodeId>(id));
    return out_.write_each([this](NodeId id) {
      if (product_of_[id] != kNone)
        join(id);
      else if (!gone_[id])
        out_.copy(id);
    });
  }

 private:
  const TensorType& type(ValueId v) const { return graph_.values[v].type; }

  NodeId producer(ValueId v) const { return graph_.values[v].producer; }

  // The node that makes `v`, if it is a product that an addition to `other` may take in.
  NodeId product(ValueId v, ValueId other) const {
    const NodeId id = producer(v);
    const Node& n = graph_.nodes[id];
    const bool fits = n.op == "linear_input_grad" && n.phase == Phase::InputGrad &&
                      readers_[v].size() == 1 && block_[id] == block_[producer(other)];
    return fits ? id : kNone;
  }

  // Elsewhere than in its own block what it makes would cross to all that read it by ways that may
  // not be there.
  bool may_lie_in(int block, const Node& add) const {
    const auto stays = [&](NodeId reader) { return graph_.nodes[reader].block == add.block; };
    const std::vector<NodeId>& all = readers_[add.outputs[0]];
    return block == add.block || std::all_of(all.begin(), all.end(), stays);
  }

  void find(NodeId id) {
    const Node& add = graph_.nodes[id];
    if (add.op != "add" || add.phase != Phase::InputGrad) return;
    const ValueId a = add.inputs[0], b = add.inputs[1];
    const NodeId last = std::max(product(a, b), product(b, a));
    if (last == kNone || type(a) != type(b) || !may_lie_in(block_[last], add)) return;
    product_of_[id] = last;
    gone_[last] = true;
    block_[id] = block_[last];
  }

  // Where the addition stood among the nodes, and under its name.
  void join(NodeId id) {
    const Node &add = graph_.nodes[id], &product = graph_.nodes[product_of_[id]];
    const bool first = add.inputs[0] == product.outputs[0];
    Node joined = add;
    joined.op = "linear_input_grad_add";
    joined.block = block_[id];
    joined.inputs = {product.inputs[0], product.inputs[1], add.inputs[first ? 1 : 0]};
    for (ValueId& v : joined.inputs) v = out_.mapped(v);
    out_.copy_as(id, std::move(joined));
  }

  const Graph& graph_;
  GraphRewriter out_;
  const std::vector<std::vector<NodeId>> readers_;
  std::vector<NodeId> product_of_;  ///< of additions: what they take in
  std::vector<bool> gone_;          ///< products that an addition took in
  std::vector<int> block_;          ///< of nodes, once they are joined
};

}  // namespace

Graph fuse_fork(const Graph& graph) { return ForkFuser(graph).run(); }

}  // namespace hetu
