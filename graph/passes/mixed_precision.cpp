#include "graph/passes/mixed_precision.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/passes/rewrite.h"

namespace hetu {
namespace {

class Narrower {
 public:
  Narrower(const Graph& graph, const OpSet& ops, DType narrow)
      : from_(graph),
        ops_(ops),
        to_(narrow),
        out_(graph),
        is_narrow_(graph.values.size(), false),
        computes_(graph.nodes.size(), false),
        is_rounded_(graph.values.size(), false) {}

  Graph run() {
    for (std::size_t id = 0; id < from_.nodes.size(); ++id) decide(static_cast<NodeId>(id));
    for (std::size_t id = 0; id < from_.nodes.size(); ++id) find_rounded(static_cast<NodeId>(id));
    Graph result = out_.write_each([this](NodeId id) { copy(id); });
    check_types(ops_, result);
    return result;
  }

 private:
  DType dtype(ValueId v) const { return from_.values[v].type.dtype; }
  bool is_made(ValueId v) const { return !is_leaf(from_.producer(v)); }

  // Returns true if the node computes the loss or the gradient of a parameter. These stay float32.
  bool stays_wide(const Node& n) const {
    return std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueId v) {
      return v == from_.loss || std::any_of(from_.gradients.begin(), from_.gradients.end(),
                                            [v](const GradientUse& u) { return u.gradient == v; });
    });
  }

  // Decides if a node computes in 16 bits. A node that did so before this pass stays unchanged.
  void decide(NodeId id) {
    const Node& n = from_.nodes[id];
    if (is_leaf(n) || n.phase == Phase::Count) return;
    const OpDef& def = ops_.find(n.op);
    if (def.narrow.rule == NarrowArgs::Rule::None) return;
    bool some = false, narrow = false, given = false;
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      given = given || is_narrow(dtype(n.inputs[i]));
      if (is_wide_input(def, i) || dtype(n.inputs[i]) != DType::Float32) continue;
      some = true;
      narrow = narrow || is_narrow_[n.inputs[i]];
    }
    const bool wanted = def.narrow.rule == NarrowArgs::Rule::Product ? some : narrow;
    if (!wanted || given) return;
    const auto rounds = [&](std::size_t o) {
      return dtype(n.outputs[o]) == DType::Float32 && !is_wide_output(def, o);
    };
    for (std::size_t o = 0; o < n.outputs.size(); ++o)
      if (rounds(o) && stays_wide(n)) return;
    computes_[id] = true;
    for (std::size_t o = 0; o < n.outputs.size(); ++o) is_narrow_[n.outputs[o]] = rounds(o);
  }

  // Returns the dtype that input i of a node must have.
  DType wanted(NodeId id, std::size_t i) const {
    const Node& n = from_.nodes[id];
    const DType was = dtype(n.inputs[i]);
    const bool rounds =
        computes_[id] && was == DType::Float32 && !is_wide_input(ops_.find(n.op), i);
    return rounds ? to_ : was;
  }

  // Marks float32 values of non-leaf nodes that some node reads in rounded form.
  void find_rounded(NodeId id) {
    const Node& n = from_.nodes[id];
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      const ValueId v = n.inputs[i];
      if (is_made(v) && !is_narrow_[v] && wanted(id, i) != dtype(v)) is_rounded_[v] = true;
    }
  }

  void copy(NodeId id) {
    const Node& n = from_.nodes[id];
    Node node = n;
    for (std::size_t i = 0; i < n.inputs.size(); ++i)
      node.inputs[i] = as(n.inputs[i], wanted(id, i), n);
    out_.copy_as(id, std::move(node));
    for (const ValueId v : n.outputs) {
      if (is_narrow_[v]) out_.set_dtype(out_.mapped(v), to_);
      if (is_rounded_[v]) rounded_[v] = cast(v, to_, n);
      if (is_narrow_[v] && is_fetched(v)) out_.report_as(v, as(v, DType::Float32, n));
    }
  }

  bool is_fetched(ValueId v) const {
    return std::any_of(from_.fetches.begin(), from_.fetches.end(),
                       [v](const auto& fetch) { return fetch.second == v; });
  }

  // Returns the new value, of dtype `to`, that `reader` reads for an old one.
  ValueId as(ValueId old, DType to, const Node& reader) {
    const ValueId now = out_.mapped(old);
    if (out_.dtype(now) == to) return now;
    if (const auto at = rounded_.find(old); to == to_ && at != rounded_.end()) return at->second;
    const auto [at, fresh] = local_.emplace(std::tuple(old, reader.block, reader.phase), kNone);
    if (fresh) at->second = cast(old, to, reader);
    return at->second;
  }

  // Adds a conversion of an old value, in the block and phase of the node `beside`.
  ValueId cast(ValueId old, DType to, const Node& beside) {
    Node node;
    node.op = "cast";
    node.name = from_.producer(old).name + "/" + dtype_name(to);
    node.inputs = {out_.mapped(old)};
    node.attrs = {{"dtype", std::string(dtype_name(to))}};
    node.block = beside.block;
    node.phase = beside.phase;
    const ValueId made = out_.add(std::move(node), {{to, from_.values[old].type.shape}})[0];
    out_.set_layout(made, from_.values[old].layout);
    return made;
  }

  const Graph& from_;
  const OpSet& ops_;
  const DType to_;
  GraphRewriter out_;
  std::vector<bool> is_narrow_;   ///< float32 values that become 16-bit
  std::vector<bool> computes_;    ///< nodes that compute in 16 bits
  std::vector<bool> is_rounded_;  ///< values with a rounded copy
  std::map<ValueId, ValueId> rounded_;
  std::map<std::tuple<ValueId, int, Phase>, ValueId> local_;
};

}  // namespace

Graph mixed_precision(const Graph& graph, const OpSet& ops, DType narrow) {
  HETU_ASSERT(is_narrow(narrow));
  return Narrower(graph, ops, narrow).run();
}

}  // namespace hetu
