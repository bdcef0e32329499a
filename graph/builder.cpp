#include "graph/builder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "graph/passes/count.h"

namespace hetu {

Builder::Builder(const OpSet& ops) : ops_(&ops) {}

std::string Builder::scoped(const std::string& name) const {
  std::string out;
  for (const std::string& scope : scopes_) out += scope + "/";
  return out + name;
}

std::string Builder::unique_name(const std::string& wanted) {
  std::string name = wanted;
  while (!names_.emplace(name, 0).second) {
    name = wanted + "_" + std::to_string(++names_[wanted]);
  }
  return name;
}

NodeId Builder::add_node(Node node, const std::vector<TensorType>& outputs) {
  const auto id = static_cast<NodeId>(graph_.nodes.size());
  if (cut_) {
    cut_ = false;
    block_used_ = false;
    graph_.blocks = ++block_ + 1;
  }
  node.block = block_;
  node.phase = phase_;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    node.outputs.push_back(static_cast<ValueId>(graph_.values.size()));
    graph_.values.push_back({id, static_cast<int>(i), outputs[i]});
  }
  graph_.nodes.push_back(std::move(node));
  return id;
}

ValueId Builder::add_leaf(const char* op, const std::string& name, TensorType type) {
  require(!name.empty(), "{}: the name must not be empty", op);
  require(graph_.loss == kNone, "{} '{}': cannot be added after differentiate", op, name);
  return make_leaf(op, name, std::move(type));
}

ValueId Builder::make_leaf(const char* op, const std::string& name, TensorType type) {
  require(names_.emplace(name, 0).second, "{} '{}': the name is taken; names are unique in a graph",
          op, name);
  check_size(fmt::format("{} '{}'", op, name), type.shape);
  Node node;
  node.op = op;
  node.name = name;
  return graph_.nodes[add_node(std::move(node), {std::move(type)})].outputs[0];
}

ValueId Builder::placeholder(const std::string& name, DType dtype, Shape shape) {
  const TensorType wanted{dtype, std::move(shape)};
  for (std::size_t axis = 1; axis < wanted.shape.size(); ++axis) {
    require(wanted.shape[axis] >= 0,
            "placeholder '{}': {} has the batch on axis {}; the batch must be on axis 0", name,
            to_string(wanted), axis);
  }
  for (const ValueId v : graph_.placeholders) {
    if (graph_.producer(v).name != name) continue;
    require(type(v) == wanted, "placeholder '{}': requested as {}, but it already exists as {}",
            name, to_string(wanted), to_string(type(v)));
    return v;
  }
  const ValueId v = add_leaf("placeholder", name, wanted);
  graph_.placeholders.push_back(v);
  return v;
}

namespace {

// Rejects infinity and NaN early: such weights would only show up as a NaN loss.
void check_start(const char* op, const std::string& name, const Initializer& init) {
  constexpr double kMost = std::numeric_limits<float>::max();
  for (const double value : {init.a, init.b})
    require(std::abs(value) <= kMost,  // false for NaN
            "{} '{}': its initial value must be a finite float32 number, got {}", op, name, value);
}

}  // namespace

ValueId Builder::parameter(const std::string& name, Shape shape, Initializer init, bool decay,
                           bool served) {
  const std::string full = scoped(name);
  require(!name.empty(), "parameter: the name must not be empty");
  require(!is_symbolic(shape), "parameter '{}': shape {} must not depend on the batch", full,
          to_string(shape));
  require(!served || shape.size() == 2,
          "parameter '{}': a parameter on parameter servers must be a table [rows, width], not {}",
          full, to_string(shape));
  check_start("parameter", full, init);
  const ValueId v = add_leaf("parameter", full, {DType::Float32, std::move(shape)});
  graph_.parameters.push_back({full, v, init, decay, nullptr, served});
  return v;
}

void Builder::start_from(ValueId leaf, std::vector<float> values) {
  const auto fits = [&](const char* kind, const std::string& name) {
    require(static_cast<std::int64_t>(values.size()) == element_count(type(leaf).shape),
            "{} '{}': {} cannot be initialized from {} elements", kind, name, to_string(type(leaf)),
            values.size());
    return std::make_shared<const std::vector<float>>(std::move(values));
  };
  for (Parameter& p : graph_.parameters) {
    if (p.value != leaf) continue;
    require(!p.served,
            "parameter '{}': a table on parameter servers needs an initializer, not an array",
            p.name);
    p.start = fits("parameter", p.name);
    return;
  }
  for (StateBuffer& b : graph_.buffers) {
    if (b.value != leaf) continue;
    b.start = fits("buffer", b.name);
    return;
  }
  fail(Code::InvalidArgument, "start_from: value {} is not a parameter or buffer of this graph",
       leaf);
}

ValueId Builder::buffer(const std::string& name, Shape shape, Initializer init) {
  const std::string full = scoped(name);
  require(!name.empty(), "buffer: the name must not be empty");
  require(!is_symbolic(shape), "buffer '{}': shape {} must not depend on the batch", full,
          to_string(shape));
  check_start("buffer", full, init);
  const ValueId v = add_leaf("buffer", full, {DType::Float32, std::move(shape)});
  graph_.buffers.push_back({full, v, init, kNone, nullptr});
  return v;
}

// Checks that no other node reads a buffer among the inputs, and that the operator replaces it.
void Builder::check_buffers(const OpDef& def, const std::string& name,
                            const std::vector<ValueId>& inputs) const {
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    for (const StateBuffer& b : graph_.buffers) {
      if (b.value != inputs[i]) continue;
      require(b.next == kNone && std::count(inputs.begin(), inputs.end(), b.value) == 1,
              "{} '{}': buffer '{}' is read more than once; only one operator may read it, as one "
              "input",
              def.name, name, b.name);
      require(
          std::any_of(def.replaces.begin(), def.replaces.end(),
                      [i](const auto& pair) { return pair.first == i; }),
          "{} '{}': input {} is the buffer '{}', but operator {} does not update a buffer there",
          def.name, name, i, b.name, def.name);
    }
  }
}

// Records the outputs that replace the buffers that the node reads.
void Builder::replace_buffers(const OpDef& def, const Node& node) {
  for (int i = 0; i < static_cast<int>(node.inputs.size()); ++i) {
    const auto buffer =
        std::find_if(graph_.buffers.begin(), graph_.buffers.end(),
                     [&](const StateBuffer& b) { return b.value == node.inputs[i]; });
    if (buffer == graph_.buffers.end()) continue;
    for (const auto& [input, output] : def.replaces) {
      if (input == i) buffer->next = node.outputs[output];
    }
  }
}

std::vector<ValueId> Builder::apply_all(const std::string& op, const std::vector<ValueId>& inputs,
                                        Attrs attrs, const std::string& name) {
  const OpDef& def = ops_->find(op);
  const std::string full = scoped(name.empty() ? op : name);
  require(graph_.loss == kNone || phase_ != Phase::Forward,
          "{} '{}': cannot be added after differentiate", op, full);
  std::vector<TensorType> types;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    require(inputs[i] >= 0 && inputs[i] < static_cast<ValueId>(graph_.values.size()),
            "{} '{}': input {} is not a value of this graph", op, full, i);
    types.push_back(type(inputs[i]));
  }
  check_buffers(def, full, inputs);
  Node node;
  node.op = op;
  const std::vector<TensorType> outputs = infer_types(def, full, types, attrs);
  node.name = unique_name(full);
  node.inputs = inputs;
  node.attrs = std::move(attrs);
  const NodeId id = add_node(std::move(node), outputs);
  block_used_ = true;
  replace_buffers(def, graph_.nodes[id]);
  return graph_.nodes[id].outputs;
}

ValueId Builder::apply(const std::string& op, const std::vector<ValueId>& inputs, Attrs attrs,
                       const std::string& name) {
  return apply_all(op, inputs, std::move(attrs), name)[0];
}

void Builder::cut() { cut_ = block_used_; }

void Builder::push_scope(const std::string& name) {
  require(!name.empty(), "scope: the name must not be empty");
  scopes_.push_back(name);
}

void Builder::pop_scope() {
  require(!scopes_.empty(), "pop_scope without a push_scope");
  scopes_.pop_back();
}

void Builder::fetch(const std::string& name, ValueId value) {
  require(value >= 0 && value < static_cast<ValueId>(graph_.values.size()),
          "fetch '{}': not a value of this graph", name);
  require(is_summed(type(value)) || is_per_sample(type(value)),
          "fetch '{}': '{}' is {}; a fetch must have the batch as its first axis, or be float32 or "
          "int32 without a batch axis (it is then summed over micro-batches)",
          name, graph_.producer(value).name, to_string(type(value)));
  require(!is_narrow(type(value).dtype),
          "fetch '{}': '{}' is {}; use cast to convert it to float32 or an integer type", name,
          graph_.producer(value).name, to_string(type(value)));
  const std::string& op = graph_.producer(value).op;
  require(op != "parameter" && op != "buffer",
          "fetch '{}': '{}' is a {}, which cannot be fetched; fetch a value that operators compute "
          "from the batch",
          name, graph_.producer(value).name, op);
  for (const auto& [taken, v] : graph_.fetches) {
    require(taken != name, "fetch '{}': the name is taken by '{}'", name, graph_.producer(v).name);
  }
  graph_.fetches.push_back({name, value});
}

Graph Builder::finish() {
  Graph graph = mark_count_phase(graph_);
  check_graph(graph);
  *this = Builder(*ops_);
  return graph;
}

}  // namespace hetu
