// The Python module of a build without training. It has plans, their options and the environment.
#include "base/no_training.h"

#include <nanobind/stl/string.h>

#include "python/src/bindings.h"
#include "python/src/option_tables.h"

namespace nb = nanobind;

namespace hetu {

std::vector<OptionTable> training_tables() { return {}; }

void refuse_table(const std::string& name) {
  throw nb::attribute_error(needs_training("the table of options '" + name + "'").c_str());
}

void bind_training_parts(nb::module_& m) {
  // Python calls this function for every name that the module lacks. The error is an
  // AttributeError, so that hasattr() works.
  m.def(
      "__getattr__",
      [](const std::string& name) -> nb::object {
        throw nb::attribute_error(needs_training("_hetu." + name).c_str());
      },
      nb::arg("name"));
}

}  // namespace hetu
