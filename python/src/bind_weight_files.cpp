// Files of weights for Python.
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "base/error.h"
#include "executor/state/copy_behind.h"
#include "executor/state/weights_file.h"
#include "python/src/arrays.h"
#include "python/src/bindings.h"

namespace nb = nanobind;

namespace hetu {

void bind_weight_files(nb::module_& m) {
  nb::class_<WeightReader>(
      m, "WeightReader",
      "The weights of a safetensors file, or of the files of an index or folder.")
      .def(nb::init<const std::string&>())
      .def_prop_ro(
          "entries",
          [](const WeightReader& r) {
            nb::list out;
            for (const WeightReader::Entry& e : r.entries())
              out.append(nb::make_tuple(e.name, e.tensor->shape, e.is_weight()));
            return out;
          },
          "(name of the parameter or buffer, shape, whether it can be read) of each tensor.")
      .def(
          "read",
          [](const WeightReader& r, std::size_t number) {
            require(number < r.entries().size(), "{}: no tensor {}", r.path(), number);
            std::vector<float> values = r.read(r.entries()[number]);
            const std::size_t count = values.size();
            return own_array<float>(std::move(values), {count});
          },
          "Returns the elements of the tensor with this number, float32, flat.");
  m.def("copy_behind", &copy_behind, nb::call_guard<nb::gil_scoped_release>(), nb::arg("files"),
        "Copies files, given as (from, to), while no other work needs the processor. Blocks until "
        "it is done.");
}

}  // namespace hetu
