#include "graph/graph.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace hetu {
namespace {

template <class T>
const T& typed(const Attr& attr, std::string_view key, const char* wanted) {
  const T* value = std::get_if<T>(&attr);
  require(value != nullptr, "attribute '{}' is {}, expected {}", key, attr_type_name(attr), wanted);
  return *value;
}

auto lower_bound_key(const std::vector<std::pair<std::string, Attr>>& items, std::string_view key) {
  return std::lower_bound(items.begin(), items.end(), key,
                          [](const auto& item, std::string_view k) { return item.first < k; });
}

}  // namespace

std::string to_string(const TensorType& type) {
  return dtype_name(type.dtype) + to_string(type.shape);
}

const char* attr_type_name(const Attr& attr) {
  static const char* const kNames[] = {"an integer", "a number", "a string", "a list of integers"};
  return kNames[attr.index()];
}

std::int64_t tensor_bytes(const TensorType& type, std::int64_t batch) {
  return dtype_bytes(type.dtype) * element_count(bind_batch(type.shape, batch));
}

Attrs::Attrs(std::initializer_list<std::pair<std::string, Attr>> items) {
  for (const auto& [key, value] : items) set(key, value);
}

void Attrs::set(const std::string& key, Attr value) {
  const auto at = items_.begin() + (lower_bound_key(items_, key) - items_.cbegin());
  if (at != items_.end() && at->first == key) {
    at->second = std::move(value);
  } else {
    items_.insert(at, {key, std::move(value)});
  }
}

bool Attrs::has(std::string_view key) const {
  const auto at = lower_bound_key(items_, key);
  return at != items_.end() && at->first == key;
}

const Attr& Attrs::find(std::string_view key) const {
  const auto at = lower_bound_key(items_, key);
  if (at == items_.end() || at->first != key) {
    std::string known;
    for (const auto& [name, value] : items_) known += (known.empty() ? "" : ", ") + name;
    fail(Code::InvalidArgument, "attribute '{}' is missing; the attributes are: {}", key,
         known.empty() ? "none" : known);
  }
  return at->second;
}

std::int64_t Attrs::integer(std::string_view key) const {
  return typed<std::int64_t>(find(key), key, "an integer");
}

double Attrs::real(std::string_view key) const {
  const Attr& attr = find(key);
  if (const auto* whole = std::get_if<std::int64_t>(&attr)) return static_cast<double>(*whole);
  return typed<double>(attr, key, "a number");
}

const std::string& Attrs::text(std::string_view key) const {
  return typed<std::string>(find(key), key, "a string");
}

const std::vector<std::int64_t>& Attrs::integers(std::string_view key) const {
  return typed<std::vector<std::int64_t>>(find(key), key, "a list of integers");
}

namespace {

bool is_gradient(const Node& n) {
  return n.phase == Phase::InputGrad || n.phase == Phase::WeightGrad;
}

/// Throws Internal with the node's name unless `ok`.
void rule(bool ok, const Node& node, const char* what) {
  if (!ok) fail(Code::Internal, "graph: node '{}' ({}): {}", node.name, node.op, what);
}

/// Checks that `to` may read `from`, by the rules in the comment of check_graph.
void check_edge(const Node& from, const Node& to) {
  if (from.op == "placeholder") return;
  if (to.phase == Phase::Count) {
    rule(from.phase == Phase::Count, to, "a Count node reads a value that is not of phase Count");
    return;
  }
  if (is_leaf(from)) return;
  if (from.phase == Phase::Count) {
    rule(from.op == "step_sum", to, "reads a Count value that is not a step_sum");
    return;
  }
  switch (from.phase) {
    case Phase::Count:
      break;
    case Phase::Forward:
      rule(from.block <= to.block, to, "reads a forward value of a later block");
      break;
    case Phase::InputGrad:
      rule(is_gradient(to), to, "a forward node reads a gradient");
      rule(from.block >= to.block, to, "reads a gradient of an earlier block");
      break;
    case Phase::WeightGrad:
      rule(to.phase == Phase::WeightGrad, to, "reads a value of phase WeightGrad");
      rule(from.block == to.block, to, "reads a weight gradient of another block");
      break;
  }
}

void check_node(const Graph& g, NodeId id, ValueId& next, std::set<std::string_view>& names) {
  const Node& n = g.nodes[id];
  rule(!n.name.empty() && !n.op.empty(), n, "name or operator is empty");
  rule(names.insert(n.name).second, n, "name occurs twice");
  rule(n.block >= 0 && n.block < g.blocks, n, "block out of range");
  rule(!n.outputs.empty(), n, "no outputs");
  for (const ValueId v : n.inputs) {
    rule(v >= 0 && v < static_cast<ValueId>(g.values.size()), n, "input value does not exist");
    const NodeId from = g.values[v].producer;
    rule(from >= 0 && from < id, n, "an input is made after its consumer");
    check_edge(g.nodes[from], n);
  }
  for (std::size_t i = 0; i < n.outputs.size(); ++i) {
    const ValueId v = n.outputs[i];
    rule(v == next++, n, "values are not numbered in the order of nodes");
    rule(v < static_cast<ValueId>(g.values.size()), n, "output value does not exist");
    rule(g.values[v].producer == id && g.values[v].output == static_cast<int>(i), n,
         "an output names another producer");
    rule(g.values[v].layout == Layout::Plain || (g.values[v].type.shape.size() == 4 && !is_leaf(n)),
         n, "only computed images may be channels-last");
    const Shape& shape = g.values[v].type.shape;
    for (std::size_t axis = 1; axis < shape.size(); ++axis) {
      rule(shape[axis] >= 0, n, "the batch is on an axis other than 0");
    }
  }
}

void check_buffers(const Graph& g, const std::vector<ValueId>& made) {
  std::vector<ValueId> listed;
  // per buffer: the only node that may read it
  std::vector<NodeId> reader(g.values.size(), kNone);
  for (const StateBuffer& b : g.buffers) {
    listed.push_back(b.value);
    if (b.value < 0 || b.value >= static_cast<ValueId>(g.values.size())) continue;
    const Node& n = g.producer(b.value);
    const TensorType& type = g.values[b.value].type;
    rule(b.name == n.name, n, "buffer is listed under another name");
    rule(type.dtype == DType::Float32 && !is_symbolic(type.shape), n,
         "a buffer must be float32 with a static shape");
    if (b.next == kNone) continue;
    rule(b.next >= 0 && b.next < static_cast<ValueId>(g.values.size()), n,
         "the buffer's next value is not a value of the graph");
    rule(g.values[b.next].type == type, n, "a buffer's next value has another type");
    reader[b.value] = g.values[b.next].producer;
  }
  if (listed != made)
    fail(Code::Internal, "graph: the list of buffers differs from the buffer nodes");
  for (std::size_t id = 0; id < g.nodes.size(); ++id) {
    for (const ValueId v : g.nodes[id].inputs) {
      if (g.producer(v).op != "buffer") continue;
      rule(reader[v] == static_cast<NodeId>(id) && g.nodes[id].phase == Phase::Forward, g.nodes[id],
           "reads a buffer that it does not replace");
    }
  }
}

void check_leaves(const Graph& g) {
  std::vector<ValueId> parameters, placeholders, buffers;
  for (const Node& n : g.nodes) {
    if (!is_leaf(n)) continue;
    rule(n.inputs.empty() && n.outputs.size() == 1, n, "must have no inputs and one output");
    rule(n.phase == Phase::Forward, n, "must be of phase Forward");
    (n.op == "parameter" ? parameters
     : n.op == "buffer"  ? buffers
                         : placeholders)
        .push_back(n.outputs[0]);
  }
  check_buffers(g, buffers);
  if (placeholders != g.placeholders) {
    fail(Code::Internal, "graph: the list of placeholders differs from the placeholder nodes");
  }
  if (parameters.size() != g.parameters.size()) {
    fail(Code::Internal, "graph: {} parameters listed, {} parameter nodes", g.parameters.size(),
         parameters.size());
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Node& n = g.producer(parameters[i]);
    rule(g.parameters[i].value == parameters[i], n, "parameters are not listed in model order");
    rule(g.parameters[i].name == n.name, n, "parameter is listed under another name");
    const TensorType& type = g.values[parameters[i]].type;
    rule(type.dtype == DType::Float32 && !is_symbolic(type.shape), n,
         "a parameter must be float32 with a static shape");
  }
}

void check_value(const Graph& g, ValueId v, const std::string& what) {
  if (v < 0 || v >= static_cast<ValueId>(g.values.size())) {
    fail(Code::Internal, "graph: {} is not a value", what);
  }
}

void check_gradients(const Graph& g) {
  const GradientUse* last = nullptr;
  for (const GradientUse& u : g.gradients) {
    if (u.parameter < 0 || u.parameter >= static_cast<int>(g.parameters.size()) || u.gradient < 0 ||
        u.gradient >= static_cast<ValueId>(g.values.size())) {
      fail(Code::Internal, "graph: a gradient use names a parameter or value that does not exist");
    }
    const Node& n = g.producer(u.gradient);
    rule(n.phase == Phase::WeightGrad && n.block == u.block, n,
         "the gradient of a parameter must be computed in phase WeightGrad, in the block of its "
         "use");
    rule(g.values[u.gradient].type == g.values[g.parameters[u.parameter].value].type, n,
         "the gradient's type differs from the parameter's");
    const bool same = last != nullptr && last->parameter == u.parameter;
    rule(u.use == (same ? last->use + 1 : 0), n,
         "the uses of a parameter must be numbered 0, 1, …");
    rule(last == nullptr || last->parameter <= u.parameter, n, "gradient uses are not sorted");
    last = &u;
  }
}

}  // namespace

bool is_per_sample(const TensorType& type) {
  return !type.shape.empty() && type.shape[0] < 0 &&
         !is_symbolic({type.shape.begin() + 1, type.shape.end()});
}

bool is_summed(const TensorType& type) {
  return !is_symbolic(type.shape) && (type.dtype == DType::Float32 || type.dtype == DType::Int32);
}

void check_graph(const Graph& g) {
  std::set<std::string_view> names;
  ValueId next = 0;
  bool gradients = false;
  for (std::size_t id = 0; id < g.nodes.size(); ++id) {
    const Node& n = g.nodes[id];
    check_node(g, static_cast<NodeId>(id), next, names);
    // add_factors creates leaf nodes after the gradient nodes. They are exempt from the order
    // because no kernel runs for them.
    if (n.op == "parameter" && gradients) continue;
    rule(is_gradient(n) || !gradients, n, "a forward node follows a gradient node");
    gradients = is_gradient(n);
  }
  if (next != static_cast<ValueId>(g.values.size())) {
    fail(Code::Internal, "graph: {} values are listed, but the nodes produce {}", g.values.size(),
         next);
  }
  check_leaves(g);
  std::set<std::string_view> fetches;
  for (const auto& [name, v] : g.fetches) {
    check_value(g, v, "fetch '" + name + "'");
    const TensorType& type = g.values[v].type;
    rule(is_summed(type) || is_per_sample(type), g.producer(v),
         "a fetch must have the batch as its first axis, or be float32 or int32 without it");
    if (!fetches.insert(name).second) fail(Code::Internal, "graph: fetch '{}' occurs twice", name);
  }
  if (g.loss != kNone) {
    check_value(g, g.loss, "the loss");
    rule(g.values[g.loss].type == TensorType{}, g.producer(g.loss),
         "the loss must be a float32 scalar");
  }
  check_gradients(g);
}

}  // namespace hetu
