#include "graph/passes/fold.h"

#include <map>
#include <utility>

#include "graph/passes/rewrite.h"

namespace hetu {
namespace {

class Folder {
 public:
  explicit Folder(const Graph& graph)
      : from_(graph), now_(graph.nodes), alias_(graph.values.size()), kept_(graph.nodes.size()) {
    for (std::size_t v = 0; v < alias_.size(); ++v) alias_[v] = static_cast<ValueId>(v);
    for (const auto& [name, v] : graph.fetches) keep(v);
    if (graph.loss != kNone) keep(graph.loss);
    for (const GradientUse& u : graph.gradients) keep(u.gradient);
    for (const StateBuffer& b : graph.buffers)
      if (b.next != kNone) keep(b.next);
  }

  Graph run() {
    GraphRewriter out(from_);
    for (std::size_t id = 0; id < now_.size(); ++id) {
      Node& n = now_[id];
      for (ValueId& v : n.inputs) v = alias_[v];
      simplify(n);
      if (!kept_[id] && is_identity(n) && alike(n, producer(n.inputs[0]))) {
        alias_[n.outputs[0]] = n.inputs[0];
      }
      Node copy = n;
      for (ValueId& v : copy.inputs) v = local(v, n, out);
      out.copy_as(static_cast<NodeId>(id), std::move(copy));
    }
    Graph result = out.finish();
    check_graph(result);
    return result;
  }

 private:
  void keep(ValueId v) { kept_[from_.values[v].producer] = true; }
  const Node& producer(ValueId v) const { return now_[from_.values[v].producer]; }
  const TensorType& type(ValueId v) const { return from_.values[v].type; }

  static bool alike(const Node& n, const Node& from) {
    return from.block == n.block && from.phase == n.phase && !is_leaf(from);
  }

  // Merges a node into the node that computes its input, if a rule applies.
  void simplify(Node& n) const {
    if (n.inputs.size() != 1) return;
    const Node& from = producer(n.inputs[0]);
    if (!alike(n, from)) return;
    if (n.op == "reshape" && from.op == "reshape") {
      n.inputs = from.inputs;
    } else if (n.op == "transpose" && from.op == "transpose") {
      std::vector<std::int64_t> perm = n.attrs.integers("perm");
      for (std::int64_t& axis : perm) axis = from.attrs.integers("perm")[axis];
      n.inputs = from.inputs;
      n.attrs.set("perm", std::move(perm));
    } else if (from.op == "fill" && n.op == "reshape" && !is_symbolic(type(n.outputs[0]).shape)) {
      make_fill(n, from, from.attrs.real("value"));
    } else if (from.op == "fill" && n.op == "scale") {
      // Multiplies in float32, as the kernel of `scale` does.
      make_fill(n, from,
                static_cast<float>(from.attrs.real("value")) *
                    static_cast<float>(n.attrs.real("factor")));
    }
  }

  // Turns `n` into a fill. of_loss is kept: it marks values that are proportional to the loss
  // gradient.
  void make_fill(Node& n, const Node& from, double value) const {
    n.op = "fill";
    n.inputs.clear();
    n.attrs = {{"shape", type(n.outputs[0]).shape},
               {"value", value},
               {"of_loss", from.attrs.has("of_loss") ? from.attrs.integer("of_loss") : 0}};
  }

  bool is_identity(const Node& n) const {
    if (n.op == "scale") return n.attrs.real("factor") == 1.0;
    if (n.op == "cast" || n.op == "reshape") return type(n.inputs[0]) == type(n.outputs[0]);
    if (n.op != "transpose") return false;
    const std::vector<std::int64_t>& perm = n.attrs.integers("perm");
    for (std::size_t i = 0; i < perm.size(); ++i) {
      if (perm[i] != static_cast<std::int64_t>(i)) return false;
    }
    return true;
  }

  // Returns the new value that `n` reads for an old one. A constant of another block or phase is
  // duplicated in that of `n`.
  ValueId local(ValueId old, const Node& n, GraphRewriter& out) {
    const Node& from = producer(old);
    if ((from.op != "fill" && from.op != "constant") ||
        (from.block == n.block && from.phase == n.phase) || from.phase == Phase::Count) {
      return out.mapped(old);
    }
    const auto [at, fresh] = fills_.emplace(std::tuple(old, n.block, n.phase), kNone);
    if (fresh) {
      Node fill = from;
      fill.block = n.block;
      fill.phase = n.phase;
      fill.name += "/block" + std::to_string(n.block);
      at->second = out.add(std::move(fill), {type(old)})[0];
    }
    return at->second;
  }

  const Graph& from_;
  std::vector<Node> now_;       ///< nodes as simplified so far, in old numbering
  std::vector<ValueId> alias_;  ///< the replacement of each old value, in old numbering
  /// Nodes whose values are visible outside the graph (fetches, loss, gradients, buffers).
  std::vector<bool> kept_;
  std::map<std::tuple<ValueId, int, Phase>, ValueId> fills_;
};

}  // namespace

Graph fold(const Graph& graph) { return Folder(graph).run(); }

}  // namespace hetu
