// Weights and gradients of a job by name, for Python.
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "executor/job/weights.h"
#include "python/src/arrays.h"
#include "python/src/bindings.h"

namespace nb = nanobind;

namespace hetu {
namespace {

nb::dict arrays_of(TensorsByName tensors) {
  nb::dict out;
  for (auto& [name, tensor] : tensors) {
    const std::vector<std::size_t> shape(tensor.shape.begin(), tensor.shape.end());
    out[name.c_str()] = own_array<float>(std::move(tensor.values), shape);
  }
  return out;
}

using Given = std::map<std::string, nb::ndarray<const float, nb::c_contig, nb::device::cpu>>;

TensorsByName tensors_of(const Given& given) {
  TensorsByName out;
  for (const auto& [name, array] : given) {
    HostTensor& tensor = out[name];
    for (std::size_t axis = 0; axis < array.ndim(); ++axis)
      tensor.shape.push_back(static_cast<std::int64_t>(array.shape(axis)));
    tensor.values.assign(array.data(), array.data() + array.size());
  }
  return out;
}

// Calls a function that gathers tensors, without the interpreter lock: other workers do the same,
// and may be threads.
template <class Function>
nb::dict gathered(const Function& function) {
  TensorsByName tensors;
  {
    const nb::gil_scoped_release free;
    tensors = function();
  }
  return arrays_of(std::move(tensors));
}

}  // namespace

void bind_weights(nb::module_& m) {
  using Names = std::vector<std::string>;
  m.def(
      "weights",
      [](Job& job, const Names& names) { return gathered([&] { return weights_of(job, names); }); },
      "Returns weights and buffers by name, of all workers. Every worker calls it.");
  m.def(
      "gradients",
      [](const Job& job, const Names& names) {
        return gathered([&] { return gradients_of(job, names); });
      },
      "Returns gradient sums of the last step by name, of all workers. Every worker calls it.");
  m.def(
      "gradient_norms",
      [](const Job& job) -> std::map<std::string, double> { return gradient_norms_of(job); },
      nb::call_guard<nb::gil_scoped_release>(),
      "Returns the norms of the gradient sums by name. Every worker calls it.");
  m.def(
      "set_weights",
      [](Job& job, const Given& given) {
        const TensorsByName values = tensors_of(given);
        const nb::gil_scoped_release free;
        set_weights(job, values);
      },
      "Replaces the values of weights and buffers. Every worker passes the same values.");
}

}  // namespace hetu
