// The tables of options for Python. They define Python's keywords, the flags of its scripts and
// docs/reference.md, and the scripts check their options with them.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "executor/job/job_options.h"
#include "executor/stage/optimizer.h"
#include "pipeline/options/choose_options.h"
#include "pipeline/options/planner_options.h"
#include "python/src/bindings.h"
#include "python/src/set_fields.h"

namespace nb = nanobind;

namespace hetu {
namespace {

// Receives the table of a new struct, and a function that checks the struct once its fields are
// set.
using Use = std::function<void(const Fields& fields, const std::function<void()>& check)>;

template <class Options>
void with(const Use& use) {
  Options options;
  use(fields(options), [] {});
}

void with_plan(const Use& use) {
  PlanOptions o;
  use(fields(o), [&] { check_plan_options(o); });
}

void with_injection(const Use& use) {
  Stragglers o;
  use(injection_fields(o), [] {});
}

struct Table {
  std::string name;
  std::function<void(const Use& use)> make;
};

// Returns all tables. Each kind of optimizer has a table with its own defaults.
std::vector<Table> tables() {
  std::vector<Table> all = {{"plan", with_plan},
                            {"choose", with<ChooseOptions>},
                            {"planner", with<PlannerOptions>},
                            {"sizes", with<Sizes>},
                            {"training", with<JobOptions>},
                            {"averaging", with<Averaging>},
                            {"stragglers", with_injection},
                            {"slow", with<Slowdown>},
                            {"rate", with<LearningRate>}};
  OptimizerConfig any;
  const Fields of_any = fields(any);
  for (const char* kind : find_field(of_any, "kind").choices) {
    all.push_back({kind, [kind](const Use& use) {
                     OptimizerConfig c = defaults_of(parse_optimizer(kind));
                     use(fields(c), [] {});
                   }});
  }
  return all;
}

void made(const std::string& name, const Use& use) {
  for (const Table& table : tables())
    if (name == table.name) return table.make(use);
  fail(Code::InvalidArgument, "there is no table of options '{}'", name);
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
  for (const Table& table : tables()) names.push_back(table.name);
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
