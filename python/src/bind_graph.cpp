// Graphs, the graph builder and operator records for Python.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/passes/dead.h"
#include "graph/passes/fold.h"
#include "ops/registry.h"
#include "python/src/bindings.h"

namespace nb = nanobind;

namespace hetu {
namespace {

// Converts a Python value to the attribute type in the operator's record.
Attr attr_of(const AttrSpec& spec, nb::handle value) {
  if (std::holds_alternative<std::int64_t>(spec.fallback)) return nb::cast<std::int64_t>(value);
  if (std::holds_alternative<double>(spec.fallback)) return nb::cast<double>(value);
  if (std::holds_alternative<std::string>(spec.fallback)) return nb::cast<std::string>(value);
  std::int64_t one = 0;  // a number stands for a list of one element
  if (nb::try_cast(value, one)) return std::vector<std::int64_t>{one};
  return nb::cast<std::vector<std::int64_t>>(value);
}

std::vector<ValueId> apply(Builder& b, const std::string& op, const std::vector<ValueId>& inputs,
                           const nb::dict& attrs, const std::string& name) {
  const OpDef& def = op_set().find(op);
  Attrs given;
  for (const auto& [key, value] : attrs) {
    const std::string wanted = nb::cast<std::string>(key);
    bool found = false;
    for (const AttrSpec& spec : def.attrs) {
      if (spec.name != wanted) continue;
      found = true;
      try {
        given.set(wanted, attr_of(spec, value));
      } catch (const nb::cast_error&) {
        fail(Code::InvalidArgument, "{}: attribute '{}' has the wrong type or is too large: {}", op,
             wanted, nb::repr(value).c_str());
      }
    }
    // The builder reports the unknown attribute and lists the known ones.
    if (!found) given.set(wanted, std::int64_t{0});
  }
  return b.apply_all(op, inputs, given, name);
}

Initializer initializer(const std::string& kind, double a, double b) {
  using Kind = Initializer::Kind;
  static const std::pair<const char*, Kind> kKinds[] = {{"constant", Kind::Constant},
                                                        {"uniform", Kind::Uniform},
                                                        {"normal", Kind::Normal},
                                                        {"truncated_normal", Kind::TruncatedNormal},
                                                        {"xavier_normal", Kind::XavierNormal},
                                                        {"xavier_uniform", Kind::XavierUniform},
                                                        {"kaiming_normal", Kind::KaimingNormal},
                                                        {"kaiming_uniform", Kind::KaimingUniform}};
  for (const auto& [name, value] : kKinds) {
    if (kind == name) return {value, a, b};
  }
  fail(Code::InvalidArgument,
       "unknown initializer '{}'; use constant, uniform, normal, truncated_normal, xavier_normal, "
       "xavier_uniform, kaiming_normal or kaiming_uniform",
       kind);
}

nb::list operator_records() {
  nb::list out;
  for (const OpDef& def : op_set().all()) {
    nb::dict row;
    row["name"] = def.name;
    row["doc"] = def.doc;
    row["inputs"] = def.inputs;
    row["optional_inputs"] = def.optional_inputs;
    row["repeats"] = def.repeats;
    row["outputs"] = def.outputs;
    nb::list attrs;
    for (const AttrSpec& spec : def.attrs) {
      attrs.append(nb::make_tuple(spec.name, spec.fallback, spec.required, spec.doc));
    }
    row["attrs"] = attrs;
    nb::list kernels;  // best kernel first; a placeholder or parameter has no kernels
    if (def.name != "placeholder" && def.name != "parameter") {
      for (const KernelRow* kernel : cpu_kernels(def.name)) kernels.append(kernel->implementation);
    }
    row["cpu_kernels"] = kernels;
    out.append(row);
  }
  return out;
}

}  // namespace

void bind_graph(nb::module_& m) {
  m.def("operator_records", &operator_records, "Returns every operator of this build, as dicts.");
  m.def("lacks_for_bfloat16", &lacks_for_bfloat16,
        "Returns what this processor lacks to multiply bfloat16 with its own instructions, or '' "
        "if it can.");
  m.attr("BATCH") = kBatch;

  nb::class_<Graph>(m, "Graph", "A finished operator graph.")
      .def("__str__", &print_graph)
      .def(
          "fields_of",
          [](const Graph& g, const std::vector<std::string>& fetches, bool training) {
            return fields_for(g, training ? needed_in_training(g) : fetched_values(g, fetches));
          },
          nb::arg("fetches"), nb::arg("training") = false,
          "Returns the names of the fields that a run reads to report these fetches, or to train.")
      .def(
          "counts_of",
          [](const Graph& g, const std::string& fetch) {
            const std::vector<ValueId> values = fetched_values(g, {fetch});
            const std::vector<char> needed = needed_for(g, values);
            int sums = 0;
            for (const Node& node : g.nodes)
              sums += node.op == "step_sum" && node.outputs[0] != values[0] &&
                      needed[g.values[node.outputs[0]].producer] != 0;
            return sums;
          },
          "Returns the number of step_sums that a fetch depends on, without the fetch itself.")
      .def_prop_ro("blocks", [](const Graph& g) { return g.blocks; })
      .def_prop_ro("nodes", [](const Graph& g) { return g.nodes.size(); })
      .def_prop_ro("parameters",
                   [](const Graph& g) {
                     nb::list out;
                     for (const Parameter& p : g.parameters) {
                       if (p.role != Parameter::Role::Weight) continue;
                       out.append(nb::make_tuple(p.name, g.values[p.value].type.shape));
                     }
                     return out;
                   })
      .def_prop_ro("buffers", [](const Graph& g) {
        nb::list out;
        for (const StateBuffer& b : g.buffers) {
          out.append(nb::make_tuple(b.name, g.values[b.value].type.shape));
        }
        return out;
      });

  nb::class_<Builder>(m, "Builder", "Builds a graph node by node.")
      .def("__init__", [](Builder* self) { new (self) Builder(op_set()); })
      .def("placeholder",
           [](Builder& b, const std::string& name, const std::string& dtype, const Shape& shape) {
             return b.placeholder(name, parse_dtype(dtype), shape);
           })
      .def("parameter",
           [](Builder& b, const std::string& name, const Shape& shape, const std::string& kind,
              double low, double high, bool decay, bool served) {
             return b.parameter(name, shape, initializer(kind, low, high), decay, served);
           })
      .def(
          "start_from",
          [](Builder& b, ValueId v,
             const nb::ndarray<const float, nb::c_contig, nb::device::cpu>& values) {
            b.start_from(v, {values.data(), values.data() + values.size()});
          },
          "Sets the initial elements of a parameter or buffer.")
      .def("buffer",
           [](Builder& b, const std::string& name, const Shape& shape, const std::string& kind,
              double low,
              double high) { return b.buffer(name, shape, initializer(kind, low, high)); })
      .def("apply", &apply)
      .def("cut", &Builder::cut)
      .def("push_scope", &Builder::push_scope)
      .def("pop_scope", &Builder::pop_scope)
      .def("fetch", &Builder::fetch)
      .def("differentiate", &Builder::differentiate)
      .def("add_factors", &Builder::add_factors)
      .def(
          "producer_of",
          [](const Builder& b, ValueId v) {
            const Value& value = b.graph().values[v];
            const Node& node = b.graph().nodes[value.producer];
            const std::string name =
                value.output == 0 ? node.name : fmt::format("{}:{}", node.name, value.output);
            return nb::make_tuple(name, node.op);
          },
          "Returns (name, operator) of the node that computes a value.")
      .def(
          "reads",
          [](const Builder& b, ValueId v) {
            const std::vector<char> needed = needed_for(b.graph(), {v});
            nb::list fields, sums;
            for (const Node& node : b.graph().nodes) {
              if (needed[b.graph().values[node.outputs[0]].producer] == 0) continue;
              if (node.op == "placeholder") fields.append(node.name);
              if (node.op == "step_sum") sums.append(node.outputs[0]);
            }
            return nb::make_tuple(fields, sums);
          },
          "Returns (names of fields, numbers of step_sums) that a value depends on.")
      .def("type_of",
           [](const Builder& b, ValueId v) {
             return nb::make_tuple(dtype_name(b.type(v).dtype), b.type(v).shape);
           })
      .def(
          "finished_with",
          [](const Builder& b, const std::vector<std::pair<std::string, ValueId>>& fetches) {
            Builder other = b;
            std::vector<std::string> names;
            for (const auto& [name, v] : fetches) {
              const auto& known = other.graph().fetches;
              if (std::find(known.begin(), known.end(), std::pair(name, v)) == known.end())
                other.fetch(name, v);
              names.push_back(name);
            }
            return part_for(fold(other.finish()), names);
          },
          "Returns the part of the graph that these values need, finished. The builder is not "
          "changed.")
      .def(
          "whole", [](const Builder& b) { return b.graph(); }, "Returns the graph as built so far.")
      .def(
          "finish",
          [](const Builder& b) {
            Builder copy(b);
            return remove_dead(fold(copy.finish()));
          },
          "Returns the graph for training. The builder is not changed, and can be finished again.");
}

}  // namespace hetu
