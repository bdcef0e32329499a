#include "graph/passes/channels_last.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "graph/passes/rewrite.h"

namespace hetu {
namespace {

bool listed(const std::vector<int>& list, std::size_t i) {
  return std::find(list.begin(), list.end(), static_cast<int>(i)) != list.end();
}

class LayoutChooser {
 public:
  LayoutChooser(const Graph& graph, const OpSet& ops)
      : from_(graph), ops_(ops), out_(graph), plain_(graph.nodes.size(), false) {
    for (const auto& fetch : graph.fetches) fetched_.insert(fetch.second);
    for (const GradientUse& u : graph.gradients) keep_plain(u.gradient);
    for (const StateBuffer& b : graph.buffers) {
      if (b.next != kNone) keep_plain(b.next);
    }
  }

  Graph run() {
    return out_.write_each([this](NodeId id) { copy(id); });
  }

 private:
  // Keeps the producer of a rank-4 value plain: whatever reads the gradients of parameters and the
  // next values of buffers assumes row-major order.
  void keep_plain(ValueId v) {
    if (from_.values[v].type.shape.size() == 4) plain_[from_.values[v].producer] = true;
  }

  bool all_images(const std::vector<int>& args, const std::vector<ValueId>& values) const {
    return std::all_of(args.begin(), args.end(),
                       [&](int i) { return from_.values[values[i]].type.shape.size() == 4; });
  }

  void copy(NodeId id) {
    const Node& n = from_.nodes[id];
    if (is_leaf(n)) {
      out_.copy(id);
      return;
    }
    const ImageArgs& images = ops_.find(n.op).images;
    const bool last_wanted = !images.inputs.empty() || !images.outputs.empty();
    const bool on = last_wanted && (!plain_[id] || images.outputs.empty()) &&
                    all_images(images.inputs, n.inputs) && all_images(images.outputs, n.outputs);
    Node node = n;
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      const bool last = on && listed(images.inputs, i);
      node.inputs[i] = as(n.inputs[i], last ? Layout::ChannelsLast : Layout::Plain, n);
    }
    out_.copy_as(id, std::move(node));
    for (std::size_t o = 0; on && o < n.outputs.size(); ++o) {
      if (listed(images.outputs, o)) {
        out_.set_layout(out_.mapped(n.outputs[o]), Layout::ChannelsLast);
        if (fetched_.count(n.outputs[o]) != 0)
          out_.report_as(n.outputs[o], as(n.outputs[o], Layout::Plain, n));
      }
    }
  }

  // Returns the new value that `reader` reads for an old value in the given layout. A value is
  // reordered once per block and phase. A reordered value of the forward phase also serves the
  // gradients.
  ValueId as(ValueId old, Layout layout, const Node& reader) {
    const ValueId now = out_.mapped(old);
    if (out_.layout(now) == layout) return now;
    const auto forward = made_.find({old, reader.block, Phase::Forward});
    if (forward != made_.end()) return forward->second;
    const auto [at, fresh] = made_.emplace(std::tuple(old, reader.block, reader.phase), kNone);
    if (fresh) {
      Node node;
      node.op = layout == Layout::ChannelsLast ? "channels_last" : "plain";
      node.name = from_.producer(old).name + "/" + node.op;
      node.inputs = {now};
      node.block = reader.block;
      node.phase = reader.phase;
      at->second = out_.add(std::move(node), {from_.values[old].type})[0];
      out_.set_layout(at->second, layout);
    }
    return at->second;
  }

  const Graph& from_;
  const OpSet& ops_;
  GraphRewriter out_;
  /// Fetched values, which are reported in the layout that they would have without this pass.
  std::set<ValueId> fetched_;
  std::vector<bool> plain_;  ///< nodes that must leave their images plain
  std::map<std::tuple<ValueId, int, Phase>, ValueId> made_;
};

}  // namespace

Graph channels_last(const Graph& graph, const OpSet& ops) {
  const bool worth = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) {
    return !is_leaf(n) && ops.find(n.op).images.worth;
  });
  return worth ? LayoutChooser(graph, ops).run() : graph;
}

Layout image_layout(const Graph& graph, const OpDef& def, const Node& node) {
  for (const int i : def.images.outputs) return graph.values[node.outputs[i]].layout;
  for (const int i : def.images.inputs) return graph.values[node.inputs[i]].layout;
  return Layout::Plain;
}

}  // namespace hetu
