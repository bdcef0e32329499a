// The tables of options for Python. They define Python's keywords, the flags of its scripts and
// docs/reference.md, and the scripts check their options with them.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/options/choose_options.h"
#include "pipeline/options/planner_options.h"
#include "python/src/bindings.h"
#include "python/src/option_tables.h"
#include "python/src/set_fields.h"

namespace nb = nanobind;

namespace hetu {
namespace {

void with_plan(const UseTable& use) {
  PlanOptions o;
  use(fields(o), [&] { check_plan_options(o); });
}

// Returns all tables.
std::vector<OptionTable> tables() {
  std::vector<OptionTable> all = {{"plan", with_plan},
                                  {"choose", with<ChooseOptions>},
                                  {"planner", with<PlannerOptions>},
                                  {"sizes", with<Sizes>}};
  for (OptionTable& table : training_tables()) all.push_back(std::move(table));
  return all;
}

void made(const std::string& name, const UseTable& use) {
  for (const OptionTable& table : tables())
    if (name == table.name) return table.make(use);
  refuse_table(name);
}

nb::list option_fields(const std::string& name) {
  nb::list rows;
  made(name, [&](const Fields& fields, const auto&) { rows = described(fields); });
  return rows;
}

void check_options(const std::string& name, const nb::dict& values) {
  made(name, [&](const Fields& fields, const std::function<void()>& check) {
    set_fields(fields, values);
    check();
  });
}

std::vector<std::string> option_tables() {
  std::vector<std::string> names;
  for (const OptionTable& table : tables()) names.push_back(table.name);
  return names;
}

}  // namespace

void bind_options(nb::module_& m) {
  m.def("option_tables", &option_tables, "Returns the names of the tables of options.");
  m.def("option_fields", &option_fields, nb::arg("table"),
        "Returns the fields of a table, as dicts.");
  m.def("check_options", &check_options, nb::arg("table"), nb::arg("values"),
        "Throws if values of a table's fields are wrong, alone or together.");
}

}  // namespace hetu
