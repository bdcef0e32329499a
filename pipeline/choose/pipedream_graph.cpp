#include "pipeline/choose/pipedream_graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "base/decimal.h"
#include "base/error.h"
#include "base/text_file.h"

namespace hetu {
namespace {

constexpr const char* kBetween = " -- ";

// Splits at every occurrence of `by`.
std::vector<std::string> split(const std::string& text, const std::string& by) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  for (std::size_t at; (at = text.find(by, from)) != std::string::npos; from = at + by.size())
    parts.push_back(text.substr(from, at - from));
  parts.push_back(text.substr(from));
  return parts;
}

double number(const std::string& text, const std::string& key, const std::string& at) {
  const std::optional<double> x = to_decimal(text);
  if (!x || *x < 0)
    fail(Code::Config, "{}: {} must be a finite number >= 0, got '{}'", at, key, text);
  return *x;
}

// Returns a size, which is a number or a list "[1.0; 2.0]" that is summed.
double size_of(const std::string& text, const std::string& key, const std::string& at) {
  if (text.empty() || text.front() != '[') return number(text, key, at);
  if (text.back() != ']') fail(Code::Config, "{}: the list of {} must end with ']'", at, key);
  double sum = 0;
  for (const std::string& part : split(text.substr(1, text.size() - 2), "; "))
    sum += number(part, key, at);
  return sum;
}

PipeDreamNode node_of(const std::string& line, const std::string& at) {
  const std::vector<std::string> parts = split(line, kBetween);
  if (parts.size() < 3 || parts.size() > 4)
    fail(Code::Config, "{}: expected 'id -- text -- times and sizes', got '{}'", at,
         line.substr(0, 80));
  const std::vector<std::string> values = split(parts[2], ", ");
  const char* const keys[] = {"forward_compute_time", "backward_compute_time", "activation_size",
                              "parameter_size"};
  std::string found[4];
  if (values.size() != 4)
    fail(Code::Config, "{}: expected 4 values, forward_compute_time to parameter_size, got {}", at,
         values.size());
  for (int i = 0; i < 4; ++i) {
    const std::string prefix = std::string(keys[i]) + "=";
    if (values[i].compare(0, prefix.size(), prefix) != 0)
      fail(Code::Config, "{}: expected '{}…', got '{}'", at, prefix, values[i].substr(0, 80));
    found[i] = values[i].substr(prefix.size());
  }
  PipeDreamNode node;
  node.id = parts[0];
  node.text = parts[1];
  node.forward_ms = number(found[0], keys[0], at);
  node.backward_ms = number(found[1], keys[1], at);
  node.activation_bytes = size_of(found[2], keys[2], at);
  node.weight_bytes = number(found[3], keys[3], at);
  return node;
}

// Returns an order in which all layers can run, or an empty list if there is a cycle.
std::vector<int> order_of(const std::vector<PipeDreamNode>& nodes) {
  std::vector<int> open(nodes.size()), order;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    open[i] = static_cast<int>(nodes[i].inputs.size());
    if (open[i] == 0) order.push_back(static_cast<int>(i));
  }
  for (std::size_t next = 0; next < order.size(); ++next)
    for (const int o : nodes[order[next]].outputs)
      if (--open[o] == 0) order.push_back(o);
  if (order.size() != nodes.size()) order.clear();
  return order;
}

bool starts_with(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

// Removes the nodes for which `gone` is true, with their edges.
std::vector<PipeDreamNode> without(const std::vector<PipeDreamNode>& nodes,
                                   const std::vector<bool>& gone) {
  std::vector<int> now(nodes.size(), -1);
  int kept = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (!gone[i]) now[i] = kept++;
  std::vector<PipeDreamNode> out;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (gone[i]) continue;
    out.push_back(nodes[i]);
    for (std::vector<int>* ends : {&out.back().inputs, &out.back().outputs}) {
      std::vector<int> left;
      for (const int e : *ends)
        if (now[e] >= 0) left.push_back(now[e]);
      *ends = left;
    }
  }
  return out;
}

using Set = std::vector<bool>;  // by node

// The sets of layers before the cuts of a graph, and the sizes of their messages.
class Cuts {
 public:
  explicit Cuts(const std::vector<PipeDreamNode>& nodes) : nodes_(nodes) {
    needs_.assign(nodes.size(), Set(nodes.size(), false));
    for (const int n : order_of(nodes)) {
      for (const int i : nodes[n].inputs) {
        add(needs_[i], needs_[n]);
        needs_[n][i] = true;
      }
    }
  }

  // Returns all sets, smaller ones first, so that a set comes after its subsets.
  std::vector<Set> sets(int most) const {
    const auto source = std::find_if(nodes_.begin(), nodes_.end(),
                                     [](const PipeDreamNode& n) { return n.inputs.empty(); });
    std::vector<Set> found(
        1, with(Set(nodes_.size(), false), static_cast<int>(source - nodes_.begin())));
    std::set<Set> known(found.begin(), found.end());
    for (std::size_t next = 0; next < found.size(); ++next) {
      const Set set = found[next];
      for (std::size_t n = 0; n < nodes_.size(); ++n) {
        if (!reads_from(set, static_cast<int>(n))) continue;
        Set larger = with(set, static_cast<int>(n));
        if (!known.insert(larger).second) continue;
        require(
            static_cast<int>(found.size()) < most,
            "the graph has more than {} cuts, because too many branches are parallel; replace each "
            "branch by one layer with the sum of its times and sizes",
            most);
        found.push_back(std::move(larger));
      }
    }
    std::stable_sort(found.begin(), found.end(), [](const Set& a, const Set& b) {
      return std::count(a.begin(), a.end(), true) < std::count(b.begin(), b.end(), true);
    });
    return found;
  }

  PipeDreamCut totals(const Set& set) const {
    PipeDreamCut cut;
    Set sent(nodes_.size(), false);
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      if (!set[n]) continue;
      cut.time_s += (nodes_[n].forward_ms + nodes_[n].backward_ms) / 1000;
      cut.activation_bytes += nodes_[n].activation_bytes;
      cut.weight_bytes += nodes_[n].weight_bytes;
      if (is_last(set, static_cast<int>(n))) add_sent(static_cast<int>(n), sent);
    }
    for (std::size_t n = 0; n < nodes_.size(); ++n)
      if (sent[n]) cut.message_bytes += nodes_[n].activation_bytes;
    return cut;
  }

 private:
  static void add(const Set& from, Set& to) {
    for (std::size_t i = 0; i < to.size(); ++i)
      if (from[i]) to[i] = true;
  }

  // Returns the set with a node and all nodes that it needs.
  Set with(Set set, int node) const {
    add(needs_[node], set);
    set[node] = true;
    return set;
  }

  bool reads_from(const Set& set, int node) const {
    const std::vector<int>& inputs = nodes_[node].inputs;
    return !set[node] && std::any_of(inputs.begin(), inputs.end(), [&](int i) { return set[i]; });
  }

  bool is_last(const Set& set, int node) const {
    const std::vector<int>& readers = nodes_[node].outputs;
    return std::none_of(readers.begin(), readers.end(), [&](int o) { return set[o]; });
  }

  // Marks what crosses a cut because of one of its last nodes.
  void add_sent(int last, Set& sent) const {
    sent[last] = true;
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      if (!needs_[last][n]) continue;
      for (const int o : nodes_[n].outputs)
        if (o != last && !needs_[last][o]) sent[n] = true;
    }
  }

  const std::vector<PipeDreamNode>& nodes_;
  std::vector<Set> needs_;  // by node: all nodes that it needs
};

bool is_subset(const Set& small, const Set& large) {
  for (std::size_t i = 0; i < small.size(); ++i)
    if (small[i] && !large[i]) return false;
  return true;
}

}  // namespace

std::vector<PipeDreamNode> parse_pipedream_graph(const std::string& text,
                                                 const std::string& origin) {
  std::vector<PipeDreamNode> nodes;
  std::map<std::string, int> known;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string at = fmt::format("{}:{}", origin, ++number);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    if (line.front() != '\t') {
      nodes.push_back(node_of(line, at));
      const auto index = static_cast<int>(nodes.size()) - 1;
      if (!known.emplace(nodes.back().id, index).second)
        fail(Code::Config, "{}: layer '{}' is repeated", at, nodes.back().id);
      continue;
    }
    const std::vector<std::string> ends = split(line.substr(1), kBetween);
    if (ends.size() != 2) fail(Code::Config, "{}: expected an edge 'id -- id'", at);
    for (const std::string& end : ends)
      if (known.count(end) == 0)
        fail(Code::Config, "{}: the edge names layer '{}', which no line above describes", at, end);
    nodes[known[ends[0]]].outputs.push_back(known[ends[1]]);
    nodes[known[ends[1]]].inputs.push_back(known[ends[0]]);
  }
  if (nodes.empty()) fail(Code::Config, "{}: the file has no layers", origin);
  if (order_of(nodes).empty()) fail(Code::Config, "{}: the edges form a cycle", origin);
  return nodes;
}

PipeDreamModel cut_pipedream_graph(std::vector<PipeDreamNode> nodes, int most) {
  std::vector<bool> gone(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i)
    gone[i] = nodes[i].inputs.empty() && starts_with(nodes[i].text, "Input");
  nodes = without(nodes, gone);
  gone.assign(nodes.size(), false);
  for (std::size_t i = 0; i < nodes.size(); ++i)
    gone[i] = nodes[i].outputs.empty() && starts_with(nodes[i].text, "__getitem__");
  PipeDreamModel model;
  model.nodes = without(nodes, gone);
  require(!model.nodes.empty(), "the graph has no layers besides inputs");
  const Cuts cuts(model.nodes);
  model.layers = cuts.sets(most);
  for (std::size_t j = 0; j < model.layers.size(); ++j) {
    model.cuts.push_back(cuts.totals(model.layers[j]));
    for (std::size_t i = 0; i < j; ++i)
      if (is_subset(model.layers[i], model.layers[j]))
        model.cuts[j].before.push_back(static_cast<int>(i));
  }
  const auto missing = std::find(model.layers.back().begin(), model.layers.back().end(), false);
  require(
      missing == model.layers.back().end(),
      "layer '{}' is not connected to the first layer, so no cut contains it",
      model.nodes[missing == model.layers.back().end() ? 0 : missing - model.layers.back().begin()]
          .id);
  return model;
}

std::vector<std::string> layers_of(const PipeDreamModel& model, const PipeDreamStage& stage) {
  std::vector<std::string> names;
  for (const int n : order_of(model.nodes)) {
    if (!model.layers[stage.last][n]) continue;
    if (stage.first >= 0 && model.layers[stage.first][n]) continue;
    names.push_back(model.nodes[n].id + " " + model.nodes[n].text);
  }
  return names;
}

}  // namespace hetu
