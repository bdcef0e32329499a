#include "graph/passes/fuse_bias_grad.h"

#include <utility>
#include <vector>

#include "graph/passes/rewrite.h"

namespace hetu {
namespace {

class BiasGradFuser {
 public:
  explicit BiasGradFuser(const Graph& graph)
      : graph_(graph),
        out_(graph),
        readers_(readers_of(graph)),
        sum_of_(graph.nodes.size(), kNone),
        gone_(graph.nodes.size(), false) {}

  Graph run() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) find(static_cast<NodeId>(id));
    return out_.write_each([this](NodeId id) {
      if (sum_of_[id] != kNone)
        join(id);
      else if (!gone_[id])
        out_.copy(id);
    });
  }

 private:
  // Finds the last weight gradient before `id` that reads the same dy and has no sum yet. Moving
  // the sum up to that node is safe: its readers come after the sum, and so after the product.
  void find(NodeId id) {
    const Node& sum = graph_.nodes[id];
    if (sum.op != "sum_rows" || sum.phase != Phase::WeightGrad) return;
    const ValueId dy = sum.inputs[0];
    NodeId last = kNone;
    for (const NodeId r : readers_[dy])
      if (r != kNone && r < id && takes(graph_.nodes[r], sum) && sum_of_[r] == kNone) last = r;
    if (last == kNone) return;
    sum_of_[last] = id;
    gone_[id] = true;
  }

  static bool takes(const Node& product, const Node& sum) {
    return product.op == "linear_weight_grad" && product.inputs[1] == sum.inputs[0] &&
           product.block == sum.block && product.phase == sum.phase;
  }

  void join(NodeId id) {
    Node joined = graph_.nodes[id];
    const ValueId dw = joined.outputs[0], db = graph_.nodes[sum_of_[id]].outputs[0];
    joined.op = "linear_weight_bias_grad";
    for (ValueId& v : joined.inputs) v = out_.mapped(v);
    const std::vector<ValueId> made =
        out_.put(std::move(joined), {graph_.values[dw].type, graph_.values[db].type});
    out_.replace(dw, made[0]);
    out_.replace(db, made[1]);
  }

  const Graph& graph_;
  GraphRewriter out_;
  const std::vector<std::vector<NodeId>> readers_;
  std::vector<NodeId> sum_of_;  ///< per weight gradient: the sum that it absorbs
  std::vector<bool> gone_;      ///< sums that a weight gradient absorbs
};

}  // namespace

Graph fuse_bias_grad(const Graph& graph) { return BiasGradFuser(graph).run(); }

}  // namespace hetu
