// Assigns nodes to the functions of a stage by block and phase, and finds values that cross cuts.
#include "executor/compile/stage_nodes.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace hetu {
namespace {

bool is_source(const Node& node) { return is_leaf(node); }

}  // namespace

std::vector<char> makes_factor(const Graph& graph) {
  std::vector<char> out(graph.nodes.size(), 0);
  for (const GradientUse& use : graph.gradients) {
    if (graph.parameters[use.parameter].role != Parameter::Role::Weight)
      out[graph.values[use.gradient].producer] = 1;
  }
  return out;
}

StageNodes::StageNodes(const Graph& graph, const std::vector<int>& first_block, int stage,
                       bool training)
    : graph_(graph),
      first_block_(first_block),
      stage_(stage),
      read_backward_(graph.values.size(), 0),
      read_weight_grad_(graph.values.size(), 0) {
  const std::vector<char> is_factor = makes_factor(graph);
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
    const Node& node = graph.nodes[n];
    if (is_source(node) || node.phase == Phase::Count || stage_of_block(node.block) != stage)
      continue;
    if (node.phase == Phase::Forward) {
      forward.push_back(n);
    } else if (training && is_factor[n]) {
      factors.push_back(n);
    } else if (training) {
      backward.push_back(n);
      for (const ValueId v : node.inputs) {
        read_backward_[v] = 1;
        if (node.phase == Phase::WeightGrad) read_weight_grad_[v] = 1;
      }
    }
  }
  find_counts();
}

void StageNodes::take_rounded() {
  const auto stays = [this](NodeId n) {
    const Node& node = graph_.nodes[n];
    return node.op != "cast" || !is(node.inputs[0], "parameter");
  };
  for (auto* list : {&forward, &backward}) {
    const auto taken = std::stable_partition(list->begin(), list->end(), stays);
    rounded.insert(rounded.end(), taken, list->end());
    list->erase(taken, list->end());
  }
}

// Adds a node and the nodes it depends on. Only the step_sum reads their results
// (graph/passes/count.h).
void StageNodes::add_count(NodeId n, std::vector<char>& listed) {
  if (listed[n]) return;
  listed[n] = 1;
  for (const ValueId v : graph_.nodes[n].inputs) {
    const Node& producer = graph_.producer(v);
    if (!is_source(producer) && producer.op != "step_sum")
      add_count(graph_.values[v].producer, listed);
  }
  count.push_back(n);
}

void StageNodes::find_counts() {
  std::vector<char> read(graph_.values.size(), 0);
  for (const auto* list : {&forward, &backward}) {
    for (const NodeId n : *list) {
      for (const ValueId v : graph_.nodes[n].inputs) read[v] = 1;
    }
  }
  for (const auto& [name, v] : graph_.fetches) {
    if (is(v, "step_sum") && stage_of_block(graph_.producer(v).block) == stage_) read[v] = 1;
  }
  std::vector<char> listed(graph_.nodes.size(), 0);
  for (ValueId v = 0; v < static_cast<ValueId>(graph_.values.size()); ++v) {
    if (!read[v] || !is(v, "step_sum")) continue;
    step_sums.push_back(v);
    const ValueId input = graph_.producer(v).inputs[0];
    if (!is_source(graph_.producer(input))) add_count(graph_.values[input].producer, listed);
  }
}

int StageNodes::stage_of_block(int block) const {
  const auto after = std::upper_bound(first_block_.begin(), first_block_.end(), block);
  return static_cast<int>(after - first_block_.begin()) - 1;
}

int StageNodes::stage_of(ValueId v) const {
  const Node& producer = graph_.producer(v);
  if (is_source(producer) || producer.phase == Phase::Count) return kNone;
  return stage_of_block(producer.block);
}

bool StageNodes::made_by(ValueId v, Phase phase) const {
  return graph_.producer(v).phase == phase && !is_source(graph_.producer(v));
}

bool StageNodes::in_backward(ValueId v) const { return read_backward_[v] != 0; }

bool StageNodes::in_weight_grad(ValueId v) const { return read_weight_grad_[v] != 0; }

std::vector<ValueId> StageNodes::read_sources(const char* op) const {
  std::set<ValueId> read;
  for (const auto* list : {&count, &forward, &backward, &factors, &rounded}) {
    for (const NodeId n : *list) {
      for (const ValueId v : graph_.nodes[n].inputs) {
        if (is(v, op)) read.insert(v);
      }
    }
  }
  for (const ValueId v : step_sums) {
    const ValueId input = graph_.producer(v).inputs[0];
    if (is(input, op)) read.insert(input);
  }
  for (const auto& [name, v] : graph_.fetches) {
    const bool here = stage_of_block(graph_.producer(v).block) == stage_;
    if (here && is(v, op)) read.insert(v);
  }
  return {read.begin(), read.end()};
}

// Looks up the pair of stages in tied_stages().
int StageNodes::tied_pair(const StageParameter& p) const {
  if (p.other_stages.size() > 1) {
    fail(Code::Unsupported,
         "parameter '{}' is used by {} stages; at most two stages can share a tied weight",
         graph_.parameters[p.parameter].name, p.other_stages.size() + 1);
  }
  const int other = p.other_stages[0];
  const StagePair pair = {std::min(other, stage_), std::max(other, stage_)};
  const std::vector<StagePair> all = tied_stages(graph_, first_block_);
  return static_cast<int>(std::find(all.begin(), all.end(), pair) - all.begin());
}

std::vector<ValueId> StageNodes::crossing(int from, int to, bool backward_values) const {
  std::vector<char> crosses(graph_.values.size(), 0);
  for (const Node& node : graph_.nodes) {
    if (is_source(node) || node.phase == Phase::Count || stage_of_block(node.block) != to) continue;
    for (const ValueId v : node.inputs) {
      if (stage_of(v) == from && made_by(v, Phase::Forward) != backward_values) crosses[v] = 1;
    }
  }
  std::vector<ValueId> out;
  for (ValueId v = 0; v < static_cast<ValueId>(crosses.size()); ++v) {
    if (crosses[v]) out.push_back(v);
  }
  return out;
}

std::vector<StagePair> stage_edges(const Graph& graph, const std::vector<int>& first_block) {
  const int stages = static_cast<int>(first_block.size());
  const StageNodes nodes(graph, first_block, 0, true);
  std::vector<StagePair> out;
  for (int from = 0; from < stages; ++from) {
    for (int to = from + 1; to < stages; ++to) {
      if (!nodes.crossing(from, to, false).empty()) out.push_back({from, to});
    }
  }
  return out;
}

std::vector<int> factor_layers(const Graph& graph, const std::vector<int>& first_block) {
  const StageNodes nodes(graph, first_block, 0, true);
  std::vector<int> layers(first_block.size(), 0);
  for (const GradientUse& use : graph.gradients) {
    if (graph.parameters[use.parameter].role == Parameter::Role::InputFactor)
      ++layers[nodes.stage_of_block(use.block)];
  }
  return layers;
}

std::vector<StagePair> tied_stages(const Graph& graph, const std::vector<int>& first_block) {
  const StageNodes nodes(graph, first_block, 0, true);
  std::vector<std::vector<int>> holders(graph.parameters.size());
  for (const GradientUse& use : graph.gradients)
    holders[use.parameter].push_back(nodes.stage_of_block(use.block));
  std::vector<StagePair> out;
  for (auto& stages : holders) {
    std::sort(stages.begin(), stages.end());
    stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
    for (std::size_t a = 0; a < stages.size(); ++a) {
      for (std::size_t b = a + 1; b < stages.size(); ++b) out.push_back({stages[a], stages[b]});
    }
  }
  std::sort(out.begin(), out.end(), [](StagePair a, StagePair b) {
    return std::pair(a.first, a.second) < std::pair(b.first, b.second);
  });
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace hetu
