#include <algorithm>

#include "base/error.h"
#include "base/limits.h"
#include "base/nearest.h"
#include "graph/op_def.h"

namespace hetu {
namespace {

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::string types_text(const std::vector<TensorType>& types) {
  std::vector<std::string> texts;
  for (const TensorType& type : types) texts.push_back(to_string(type));
  return listed(texts);
}

std::string input_list(const OpDef& def) {
  std::string out = listed(def.inputs);
  for (const std::string& name : def.optional_inputs) {
    out += (out.empty() ? "[" : ", [") + name + "]";
  }
  if (def.repeats) out += ", ...";
  return "(" + out + ")";
}

void check_inputs(const OpDef& def, std::string_view name, std::size_t found) {
  const std::size_t least = def.inputs.size();
  const std::size_t most = least + def.optional_inputs.size();
  if (found >= least && (found <= most || def.repeats)) return;
  const std::string wanted = std::to_string(least) + (most > least  ? " to " + std::to_string(most)
                                                      : def.repeats ? " or more"
                                                                    : "");
  fail(Code::InvalidArgument, "{} '{}': expected {} inputs {}, got {}", def.name, name, wanted,
       input_list(def), found);
}

// Checks names and types of attributes and fills in defaults. An integer is accepted as a real.
void complete_attrs(const OpDef& def, std::string_view name, Attrs& attrs) {
  std::vector<std::string> known;
  for (const AttrSpec& spec : def.attrs) known.push_back(spec.name);
  for (const auto& [key, value] : attrs.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string right = did_you_mean(key, known);
    if (right.empty()) right = known.empty() ? "; it has none" : "; it has: " + listed(known);
    fail(Code::InvalidArgument, "{} '{}': has no attribute '{}'{}", def.name, name, key, right);
  }
  for (const AttrSpec& spec : def.attrs) {
    if (!attrs.has(spec.name)) {
      require(!spec.required, "{} '{}': attribute '{}' ({}) is missing; it must be {}", def.name,
              name, spec.name, spec.doc, attr_type_name(spec.fallback));
      attrs.set(spec.name, spec.fallback);
      continue;
    }
    const Attr* found = nullptr;
    for (const auto& [key, value] : attrs.items()) {
      if (key == spec.name) found = &value;
    }
    if (found->index() == spec.fallback.index()) continue;
    const bool widens = std::holds_alternative<std::int64_t>(*found) &&
                        std::holds_alternative<double>(spec.fallback);
    require(widens, "{} '{}': attribute '{}' is {}, expected {}", def.name, name, spec.name,
            attr_type_name(*found), attr_type_name(spec.fallback));
    attrs.set(spec.name, static_cast<double>(std::get<std::int64_t>(*found)));
  }
}

bool holds(const std::vector<int>& list, std::size_t i) {
  return std::find(list.begin(), list.end(), static_cast<int>(i)) != list.end();
}

// Returns the 16-bit dtype that a node computes with: that of its first such input, or float32.
DType narrow_of(const OpDef& def, const std::vector<TensorType>& inputs) {
  if (def.narrow.rule == NarrowArgs::Rule::None) return DType::Float32;
  const auto at = std::find_if(inputs.begin(), inputs.end(),
                               [](const TensorType& t) { return is_narrow(t.dtype); });
  return at == inputs.end() ? DType::Float32 : at->dtype;
}

// Infers the outputs of a node with `narrow` inputs: calls the record's rule as if all inputs were
// float32, then narrows the outputs.
std::vector<TensorType> infer_narrow(const OpDef& def, std::string_view name,
                                     const std::vector<TensorType>& inputs, const Attrs& attrs,
                                     DType narrow) {
  std::vector<TensorType> wide = inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const DType wanted = is_wide_input(def, i) ? DType::Float32 : narrow;
    require(!is_floating(inputs[i].dtype) || inputs[i].dtype == wanted,
            "{} '{}': input {} is {}, but it must be {} because other inputs are {}; use cast",
            def.name, name, i, to_string(inputs[i]), dtype_name(wanted), dtype_name(narrow));
    if (is_floating(inputs[i].dtype)) wide[i].dtype = DType::Float32;
  }
  std::vector<TensorType> outputs = def.infer({def, name, wide, attrs});
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o].dtype == DType::Float32 && !is_wide_output(def, o)) outputs[o].dtype = narrow;
  }
  return outputs;
}

std::vector<TensorType> input_types(const Graph& graph, const Node& node) {
  std::vector<TensorType> types;
  for (const ValueId v : node.inputs) types.push_back(graph.values[v].type);
  return types;
}

}  // namespace

bool is_wide_input(const OpDef& def, std::size_t i) { return holds(def.narrow.wide_inputs, i); }
bool is_wide_output(const OpDef& def, std::size_t o) { return holds(def.narrow.wide_outputs, o); }

OpSet::OpSet(std::vector<OpDef> defs) : defs_(std::move(defs)) {
  std::sort(defs_.begin(), defs_.end(),
            [](const OpDef& a, const OpDef& b) { return a.name < b.name; });
  for (std::size_t i = 0; i < defs_.size(); ++i) {
    if (defs_[i].name.empty() || defs_[i].infer == nullptr) {
      fail(Code::Internal, "operator '{}' lacks a name or an inference function", defs_[i].name);
    }
    if (i > 0 && defs_[i].name == defs_[i - 1].name) {
      fail(Code::Internal, "operator '{}' is defined twice", defs_[i].name);
    }
  }
}

bool OpSet::has(std::string_view name) const {
  const auto at = std::lower_bound(defs_.begin(), defs_.end(), name,
                                   [](const OpDef& d, std::string_view n) { return d.name < n; });
  return at != defs_.end() && at->name == name;
}

const OpDef& OpSet::find(std::string_view name) const {
  const auto at = std::lower_bound(defs_.begin(), defs_.end(), name,
                                   [](const OpDef& d, std::string_view n) { return d.name < n; });
  if (at == defs_.end() || at->name != name) {
    std::vector<std::string> known;
    for (const OpDef& def : defs_) known.push_back(def.name);
    fail(Code::InvalidArgument, "unknown operator '{}'{}", name, did_you_mean(name, known));
  }
  return *at;
}

namespace {

// Bounds sizes, strides and axes before an operator computes with them. `ignore` is a label, so it
// is exempt.
void check_whole_attrs(const OpDef& def, std::string_view name, const Attrs& attrs) {
  const auto check = [&](const std::string& key, std::int64_t value) {
    require(value >= -kMostElements && value <= kMostElements,
            "{} '{}': {} must be from -2^44 to 2^44, got {}", def.name, name, key, value);
  };
  for (const auto& [key, attr] : attrs.items()) {
    if (key == "ignore") continue;
    if (const auto* one = std::get_if<std::int64_t>(&attr)) check(key, *one);
    if (const auto* list = std::get_if<std::vector<std::int64_t>>(&attr))
      for (const std::int64_t value : *list) check(key, value);
  }
}

}  // namespace

std::vector<TensorType> infer_types(const OpDef& def, std::string_view name,
                                    const std::vector<TensorType>& inputs, Attrs& attrs) {
  check_inputs(def, name, inputs.size());
  complete_attrs(def, name, attrs);
  check_whole_attrs(def, name, attrs);
  const DType narrow = narrow_of(def, inputs);
  std::vector<TensorType> outputs = is_narrow(narrow)
                                        ? infer_narrow(def, name, inputs, attrs, narrow)
                                        : def.infer({def, name, inputs, attrs});
  if (outputs.size() != def.outputs.size()) {
    fail(Code::Internal, "{} '{}': the record names {} outputs, but inference returned {}",
         def.name, name, def.outputs.size(), outputs.size());
  }
  for (const TensorType& type : outputs) {
    check_size(fmt::format("{} '{}'", def.name, name), type.shape);
    for (std::size_t axis = 1; axis < type.shape.size(); ++axis) {
      require(type.shape[axis] >= 0,
              "{} '{}': the result {} would have the batch on axis {}; it must stay on axis 0; the "
              "inputs are {}",
              def.name, name, to_string(type), axis, types_text(inputs));
    }
  }
  return outputs;
}

std::int64_t node_flops(const OpSet& ops, const Graph& graph, const Node& node) {
  if (is_leaf(node)) return 0;
  const OpDef& def = ops.find(node.op);
  if (def.flops != nullptr) {
    return def.flops({def, node.name, input_types(graph, node), node.attrs});
  }
  std::int64_t count = 0;
  for (const ValueId v : node.outputs) {
    count += element_count(bind_batch(graph.values[v].type.shape, 1));
  }
  return count;
}

void check_types(const OpSet& ops, const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (is_leaf(node)) continue;
    Attrs attrs = node.attrs;
    const std::vector<TensorType> wanted =
        infer_types(ops.find(node.op), node.name, input_types(graph, node), attrs);
    require(attrs == node.attrs,
            "{} '{}': attributes are incomplete; all defaults must be given, too", node.op,
            node.name);
    require(wanted.size() == node.outputs.size(), "{} '{}': has {} outputs, expected {}", node.op,
            node.name, node.outputs.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const TensorType& found = graph.values[node.outputs[i]].type;
      require(found == wanted[i], "{} '{}': output {} is {}, but its operator computes {}", node.op,
              node.name, i, to_string(found), to_string(wanted[i]));
    }
  }
}

}  // namespace hetu
