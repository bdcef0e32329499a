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

  // Returns the producer of `v` if it is a product that an addition to `other` can absorb.
  NodeId product(ValueId v, ValueId other) const {
    const NodeId id = producer(v);
    const Node& n = graph_.nodes[id];
    const bool fits = n.op == "linear_input_grad" && n.phase == Phase::InputGrad &&
                      readers_[v].size() == 1 && block_[id] == block_[producer(other)];
    return fits ? id : kNone;
  }

  // Returns true if the addition may be placed in `block`. In a block other than its own, it must
  // have readers in its own block only. Otherwise the sum might have to cross between blocks that
  // have no direct connection.
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

  // Writes the joined node, at the addition's position and under its name.
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
  std::vector<NodeId> product_of_;  ///< per addition: the product that it absorbs
  std::vector<bool> gone_;          ///< products that an addition absorbs
  std::vector<int> block_;          ///< per node: its block after the moves
};

}  // namespace

Graph fuse_fork(const Graph& graph) { return ForkFuser(graph).run(); }

}  // namespace hetu
