// Plans for Python. Its keywords and the options of the command line set the same fields.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/ir/torch_csv.h"
#include "pipeline/options/choose_options.h"
#include "pipeline/options/figure.h"
#include "pipeline/options/planning.h"
#include "python/src/bindings.h"
#include "python/src/set_fields.h"

namespace nb = nanobind;

namespace hetu {
namespace {

/// Returns the options of a command. `origin` takes the place of METHOD or FILE.
PlanOptions plan_options_from(const nb::dict& options, const std::string& origin) {
  PlanOptions o;
  o.source = origin;
  set_fields(fields(o), options);
  check_plan_options(o);
  return o;
}

/// Returns options for an existing plan. Throws if they contain options that only apply to making a
/// plan.
PlanOptions options_of(const nb::dict& options) {
  PlanOptions o = plan_options_from(options, "plan");
  refuse_sizes(o);
  return o;
}

/// Returns the plan, lowered if it was not, after proving it within the limits of the options.
Schedule proved(const PlanOptions& o, const Schedule& plan) {
  Schedule lowered = lowered_plan(o, plan);
  prove(o, plan, lowered);
  return lowered;
}

nb::list rows_of(const Schedule& plan) {
  nb::list rows;
  for (const Program& program : plan.workers) {
    nb::list row;
    for (const Instr& i : unroll(program)) row.append(to_string(i));
    rows.append(row);
  }
  return rows;
}

nb::list placements_of(const Schedule& plan) {
  nb::list out;
  for (const Placement& p : plan.placements) {
    nb::dict row;
    row["workers"] = p.workers;
    row["model_stage"] = p.model_stage;
    row["replica"] = p.replica;
    out.append(row);
  }
  return out;
}

nb::dict report_of(const Schedule& plan, const nb::dict& options) {
  const PlanOptions o = options_of(options);
  const VerifyReport report = prove(o, plan, lowered_plan(o, plan));
  nb::list versions;
  for (const StageNeeds& needs : report.stages) versions.append(needs.weight_versions);
  nb::dict out;
  out["peak_activations"] = report.peak_activations;
  out["weight_versions"] = versions;
  out["local_staleness"] = report.local_staleness;
  out["global_staleness"] = report.global_staleness;
  return out;
}

nb::list events_of(const Simulation& simulation) {
  nb::list out;
  for (const TraceEvent& e : simulation.events) {
    nb::dict row;
    row["worker"] = e.worker;
    row["kind"] = e.kind;
    row["stage"] = e.stage;
    row["micro"] = e.micro;
    row["part"] = e.part;
    row["step"] = e.step;
    row["start_us"] = e.start_us;
    row["duration_us"] = e.duration_us;
    out.append(row);
  }
  return out;
}

// Returns bytes for a PDF or PNG, and text for all other formats.
nb::object rendered(const Schedule& plan, const nb::dict& options) {
  const PlanOptions o = options_of(options);
  const Schedule lowered = proved(o, plan);
  const std::string text = figure_of_run(o, simulated(o, lowered, true), lowered);
  if (o.format == "pdf" || o.format == "png") return nb::bytes(text.data(), text.size());
  return nb::str(text.data(), text.size());
}

// Returns the fields that the text of a script's --slow sets.
nb::dict slow_of(const std::string& text) {
  Stragglers into;
  read_flag(fields(into), "--slow", text);
  nb::dict out;
  Slowdown slow = into.slow.back(), none;
  const Fields unsaid = fields(none);
  for (const OptionField& key : fields(slow))
    if (key.name == "factor" || value_of(key) != value_of(find_field(unsaid, key.name)))
      out[key.name.c_str()] = to_python(value_of(key));
  return out;
}

// Returns all constants of groups, with the values from the text of a script's --group-options or
// else the defaults.
nb::dict group_constants(const std::string& text) {
  groups::Options policy;
  const Fields all = fields(policy);
  read_flag(all, "--group-options", text);
  nb::dict out;
  for (const OptionField& constant : keys_of(all, "--group-options"))
    out[constant.name.c_str()] = to_python(value_of(constant));
  return out;
}

// Returns None for a plan that fails its proof, so that a notebook shows the plan's text.
nb::object svg_of(const Schedule& plan) {
  nb::dict options;
  options["format"] = "svg";
  try {
    return rendered(plan, options);
  } catch (const Error& error) {
    if (error.code() != Code::Plan) throw;
    return nb::none();
  }
}

nb::list method_records() {
  nb::list out;
  for (const Method& m : methods()) {
    nb::dict row;
    row["name"] = m.name;
    row["aliases"] = std::vector<std::string>(m.aliases.begin(), m.aliases.end());
    row["doc"] = m.doc;
    row["options"] = std::vector<std::string>(m.options.begin(), m.options.end());
    row["stages"] = m.stages_rule;
    row["micro_batches"] = m.micros_rule;
    row["by_costs"] = m.by_costs;
    out.append(row);
  }
  return out;
}

}  // namespace

void bind_schedule(nb::module_& m) {
  nb::class_<Schedule>(m, "Schedule", "A plan: the instructions of each worker, in order.")
      .def_ro("method", &Schedule::method)
      .def_ro("stages", &Schedule::stages)
      .def_ro("micro_batches", &Schedule::micro_batches)
      .def_ro("chunks", &Schedule::chunks)
      .def_ro("steps", &Schedule::steps)
      .def_prop_ro("rows", &rows_of)
      .def_prop_ro("placements", &placements_of)
      .def("csv", [](const Schedule& s) { return to_csv(s); })
      .def(
          "torch_csv", [](const Schedule& s) { return to_torch_csv(s); },
          "The lowered plan as CSV that torch.distributed.pipelining executes: "
          "_PipelineScheduleRuntime._load_csv(path, format=\"compute_comms\").")
      .def("json", [](const Schedule& s) { return to_json(s); })
      .def("__repr__",
           [](const Schedule& s) {
             return fmt::format("<hetu plan {}, {} workers>", figure_title(s), s.workers.size());
           })
      .def("_repr_svg_", &svg_of, "Returns a figure for notebooks.");
  m.def("method_records", &method_records, "Returns every method of this build, as dicts.");
  m.def("slow_of", &slow_of, nb::arg("text"), "Returns the values of a --slow text, as a dict.");
  m.def("group_constants", &group_constants, nb::arg("text"),
        "Returns every constant of --group-options, with the values of the text in place of the "
        "defaults.");
  m.def(
      "plan",
      [](const std::string& source, const nb::dict& options) {
        return plan_of(plan_options_from(options, source));
      },
      nb::arg("source"), nb::arg("options"),
      "Returns the plan of `hetu schedule SOURCE` with these options, as given, without lowering.");
  m.def(
      "plan_from_text",
      [](const std::string& text, const std::string& origin, const nb::dict& options) {
        return plan_from_text(plan_options_from(options, origin), text);
      },
      nb::arg("text"), nb::arg("origin"), nb::arg("options"),
      "Returns the plan that a CSV or JSON text holds.");
  m.def(
      "lowered_plan",
      [](const Schedule& plan, const nb::dict& options) {
        return lowered_plan(options_of(options), plan);
      },
      nb::arg("plan"), nb::arg("options"),
      "Returns the plan with communication, reductions and updates.");
  m.def("verify_plan", &report_of, nb::arg("plan"), nb::arg("options"),
        "Proves a plan. Returns the needs of each worker and placement.");
  m.def(
      "simulate_plan",
      [](const Schedule& plan, const nb::dict& options, bool events) {
        const PlanOptions o = options_of(options);
        const Simulation s = simulated(o, proved(o, plan), events);
        return nb::make_tuple(to_json(s), events_of(s));
      },
      nb::arg("plan"), nb::arg("options"), nb::arg("events"),
      "Returns the JSON of `hetu simulate`, and on request the predicted events as dicts.");
  m.def(
      "choose",
      [](const nb::dict& options, const nb::object& plan_function) {
        ChooseOptions o;
        o.plan.plan_function = [&](const std::string& name, int stages, int micro_batches) {
          try {
            return nb::cast<std::string>(plan_function(name, stages, micro_batches));
          } catch (const nb::python_error& error) {
            if (!error.matches(PyExc_ValueError)) throw;
            fail(Code::InvalidArgument, "{}: {}", name, nb::str(error.value()).c_str());
          }
        };
        set_fields(fields(o), options);
        o.format = "json";
        return choice_of(o);
      },
      nb::arg("options"), nb::arg("plan_function"),
      "Returns the JSON of `hetu choose` with these options. `plan_function` takes "
      "module:function, stages and micro_batches, and returns the text of a plan.");
  m.def(
      "plan",
      [](const nb::dict& options) {
        PlannerOptions o;
        set_fields(fields(o), options);
        o.format = "json";
        return planning_of(o).formatted;
      },
      nb::arg("options"), "Returns the JSON of `hetu plan` with these options.");
  m.def("block_times", &block_times, nb::arg("path"),
        "Returns the times of a forward and a backward of each block of a model, from a file of "
        "costs or a trace.");
  m.def("render_plan", &rendered, nb::arg("plan"), nb::arg("options"),
        "Returns a figure or a trace.");
}

}  // namespace hetu
