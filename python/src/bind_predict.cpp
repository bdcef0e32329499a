// Saved models and text generation for Python.
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "config/env.h"
#include "executor/predict/generator.h"
#include "executor/predict/predictor.h"
#include "executor/predict/saved_model.h"
#include "python/src/arrays.h"
#include "python/src/bindings.h"

namespace nb = nanobind;

namespace hetu {
namespace {

using AnyArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

nb::list described(const Graph& graph, const std::vector<std::pair<std::string, ValueId>>& values) {
  nb::list out;
  for (const auto& [name, v] : values) {
    const TensorType& type = graph.values[v].type;
    out.append(nb::make_tuple(name, dtype_name(type.dtype), type.shape));
  }
  return out;
}

nb::list fields_of(const Graph& graph) {
  std::vector<std::pair<std::string, ValueId>> fields;
  for (const ValueId v : graph.placeholders) fields.emplace_back(graph.producer(v).name, v);
  return described(graph, fields);
}

nb::dict predict(Predictor& predictor, const nb::dict& given) {
  std::map<std::string, AnyArray> kept;
  std::map<std::string, ArrayView> fields;
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string>(key);
    const AnyArray& array = kept[name] = nb::cast<AnyArray>(value);
    ArrayView view{dtype_of(array.dtype(), name), {}, array.data()};
    for (std::size_t i = 0; i < array.ndim(); ++i)
      view.shape.push_back(static_cast<std::int64_t>(array.shape(i)));
    fields[name] = std::move(view);
  }
  std::map<std::string, Array> found;
  {
    const nb::gil_scoped_release free;
    found = predictor.predict(fields);
  }
  nb::dict out;
  for (auto& [name, array] : found)
    out[name.c_str()] = own_array(array.dtype, array.shape, std::move(array.bytes));
  return out;
}

PredictorOptions options_of(std::int64_t rows, int threads, const std::string& device) {
  PredictorOptions options;
  options.rows = rows;
  options.threads = threads;
  options.device = device;
  options.kernels = env().kernels;
  return options;
}

nb::object generate(Generator& generator, const AnyArray& ids, const GenerateOptions& options) {
  ArrayView view{dtype_of(ids.dtype(), "ids"), {}, ids.data()};
  for (std::size_t i = 0; i < ids.ndim(); ++i)
    view.shape.push_back(static_cast<std::int64_t>(ids.shape(i)));
  Array found;
  {
    const nb::gil_scoped_release free;
    found = generator.generate(view, options);
  }
  return own_array(found.dtype, found.shape, std::move(found.bytes));
}

void bind_generator(nb::module_& m) {
  nb::class_<Generator>(m, "Generator", "Continues rows of tokens with a saved model.")
      .def(
          "__init__",
          [](Generator* self, const std::string& folder, int threads) {
            new (self) Generator(folder, options_of(0, threads, "cpu"));
          },
          nb::arg("folder"), nb::arg("threads") = 0, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "generate",
          [](Generator& self, const AnyArray& ids, std::int64_t tokens, double temperature,
             std::uint64_t seed) {
            return generate(self, ids, {tokens, temperature, seed});
          },
          "Returns int32 [rows, T + tokens] for ids, which are int32 [rows, T], dense.")
      .def_prop_ro("length", &Generator::length)
      .def_prop_ro("prompt", &Generator::prompt)
      .def_prop_ro("words", &Generator::words);
}

}  // namespace

void bind_predict(nb::module_& m) {
  nb::class_<Predictor>(m, "Predictor", "A saved model in one process.")
      .def(
          "__init__",
          [](Predictor* self, const std::string& folder, std::int64_t rows, int threads,
             const std::string& device) {
            new (self) Predictor(folder, options_of(rows, threads, device));
          },
          nb::arg("folder"), nb::arg("rows") = 0, nb::arg("threads") = 0, nb::arg("device") = "cpu",
          nb::call_guard<nb::gil_scoped_release>())
      .def("predict", &predict,
           "Returns name -> array of each output. `fields`: name -> array, dense.")
      .def("carry", &Predictor::carry, nb::call_guard<nb::gil_scoped_release>())
      .def("reset", &Predictor::reset, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("rows", &Predictor::rows)
      .def_prop_ro("fields", [](const Predictor& p) { return fields_of(p.graph()); })
      .def_prop_ro("outputs",
                   [](const Predictor& p) { return described(p.graph(), p.graph().fetches); })
      .def("__str__", [](const Predictor& p) { return print_graph(p.graph()); });
  bind_generator(m);
  m.def(
      "save_model",
      [](const std::string& folder, const Graph& graph, const std::vector<std::string>& names,
         std::int64_t rows, const std::string& checkpoint,
         const std::map<std::string, std::pair<Graph, std::vector<std::string>>>& variants,
         const std::vector<std::string>& outputs) {
        std::map<std::string, Graph> models;
        for (const auto& [name, variant] : variants)
          models.emplace(name, model_of(variant.first, variant.second));
        save_model(folder, model_of(graph, names, outputs), rows, checkpoint, models);
      },
      nb::call_guard<nb::gil_scoped_release>(),
      "Saves a model with the weights of a checkpoint. `variants`: name -> (graph, names). "
      "`outputs`: names of the outputs in the model; empty: `names`.");
}

}  // namespace hetu
