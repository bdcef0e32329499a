// Evaluation of a graph by the reference kernels, for checks.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <utility>

#include "base/dtype.h"
#include "base/error.h"
#include "ops/evaluate.h"
#include "python/src/arrays.h"
#include "python/src/bindings.h"

namespace nb = nanobind;

namespace hetu {
namespace {

using Doubles = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;

nb::dict arrays(NamedTensors&& tensors) {
  nb::dict out;
  for (auto& [name, values] : tensors) {
    const std::size_t count = values.size();
    out[name.c_str()] = own_array<double>(std::move(values), {count});
  }
  return out;
}

KernelChoice parse_kernels(const std::string& word) {
  require(word == "reference" || word == "best", "kernels must be 'reference' or 'best', not '{}'",
          word);
  return word == "best" ? KernelChoice::Best : KernelChoice::Reference;
}

nb::dict evaluate_graph(const Graph& graph, std::int64_t batch, const nb::dict& leaves,
                        const std::string& floats, const std::string& kernels) {
  NamedTensors given;
  for (const auto& [name, value] : leaves) {
    const auto array = nb::cast<Doubles>(value);
    given[nb::cast<std::string>(name)] = {array.data(), array.data() + array.size()};
  }
  Evaluation found;
  {
    const nb::gil_scoped_release free;
    found = evaluate(graph, batch, given, parse_dtype(floats), parse_kernels(kernels));
  }
  nb::dict fetches, out;
  for (const auto& [name, value] : found.fetches) fetches[name.c_str()] = value;
  out["fetches"] = fetches;
  out["gradients"] = arrays(std::move(found.gradients));
  out["buffers"] = arrays(std::move(found.buffers));
  return out;
}

}  // namespace

void bind_evaluate(nb::module_& m) {
  m.def("evaluate", &evaluate_graph, nb::arg("graph"), nb::arg("batch"), nb::arg("leaves"),
        nb::arg("floats") = "float64", nb::arg("kernels") = "reference",
        "Computes one training micro-batch of a graph in float64 or float32, with the reference "
        "kernels or the best kernels that fit. Tests use it as a reference. `leaves`: name -> "
        "float64 array, for placeholders, parameters and buffers. Returns the fetches, the "
        "gradients and the next values of buffers, flat.");
}

}  // namespace hetu
