// Plans for Python. Options are the words of the command line, so that hetu.schedule and `hetu`
// read them in one place.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "cli/choose.h"
#include "cli/key_values.h"
#include "cli/picture.h"
#include "cli/plan_options.h"
#include "graph/base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/plan_file.h"
#include "python/src/bindings.h"

namespace nb = nanobind;

namespace hetu {
namespace {

using Words = std::vector<std::string>;

/// Options of the command; `origin` stands where it has METHOD or FILE.
cli::PlanOptions parsed(Words words, const std::string& origin) {
  words.insert(words.begin(), origin);
  return cli::parse_plan_options(words);
}

/// Options for a plan that is there already: none of those that make one.
cli::PlanOptions options_of(const Words& words) {
  cli::PlanOptions o = parsed(words, "plan");
  cli::refuse_sizes(o);
  return o;
}

/// The plan, lowered unless it is, proved within the options' limits.
Schedule proved(const cli::PlanOptions& o, const Schedule& plan) {
  Schedule lowered = cli::lowered_plan(o, plan);
  cli::prove(o, plan, lowered);
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

nb::dict report_of(const Schedule& plan, const Words& words) {
  const cli::PlanOptions o = options_of(words);
  const VerifyReport report = cli::prove(o, plan, cli::lowered_plan(o, plan));
  nb::list versions;
  for (const StageNeeds& needs : report.stages) versions.append(needs.weight_versions);
  nb::dict out;
  out["peak_activations"] = report.peak_activations;
  out["weight_versions"] = versions;
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

// A PDF is bytes, all else is text.
nb::object rendered(const Schedule& plan, const Words& words) {
  const cli::PlanOptions o = options_of(words);
  const Schedule lowered = proved(o, plan);
  const std::string text = cli::picture_of_run(o, cli::simulated(o, lowered, true), lowered);
  if (o.format == "pdf") return nb::bytes(text.data(), text.size());
  return nb::str(text.data(), text.size());
}

// Of a script's --slow, what it gives.
nb::dict slow_of(const std::string& text) {
  std::vector<Slowdown> all;
  cli::parse_options({"--slow", text}, {cli::slow_option(all)});
  const Slowdown &slow = all.back(), none;
  nb::dict out;
  if (slow.pipeline != none.pipeline) out["pipeline"] = slow.pipeline;
  if (slow.worker != none.worker) out["worker"] = slow.worker;
  out["factor"] = slow.factor;
  if (slow.from != none.from) out["from"] = slow.from;
  if (slow.to != none.to) out["to"] = slow.to;
  return out;
}

// The constants of the groups by a script's --group-options, and as they are where it is silent.
nb::dict group_constants(const std::string& text) {
  groups::Options policy;
  cli::parse_options({"--group-options", text}, {cli::constants_option(policy, [] {})});
  nb::dict out;
  for (const auto& [name, value] : cli::constants_of(policy)) out[name] = *value;
  out["late_us"] = policy.late_us;
  return out;
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
  nb::class_<Schedule>(m, "Schedule", "A plan: who does what, in which order.")
      .def_ro("method", &Schedule::method)
      .def_ro("stages", &Schedule::stages)
      .def_ro("micro_batches", &Schedule::micro_batches)
      .def_ro("chunks", &Schedule::chunks)
      .def_ro("steps", &Schedule::steps)
      .def_prop_ro("rows", &rows_of)
      .def_prop_ro("placements", &placements_of)
      .def("csv", [](const Schedule& s) { return to_csv(s); })
      .def("json", [](const Schedule& s) { return to_json(s); });
  m.def("method_records", &method_records, "Every method of this build, as dicts.");
  m.def("slow_of", &slow_of, nb::arg("text"), "What a --slow gives, as a dict.");
  m.def("group_constants", &group_constants, nb::arg("text"),
        "Every constant of --group-options, those of the text in place of the defaults.");
  m.def(
      "plan", [](const Words& words) { return cli::plan_of(cli::parse_plan_options(words)); },
      nb::arg("words"), "The plan of `hetu schedule WORDS`, as given, not lowered.");
  m.def(
      "plan_from_text",
      [](const std::string& text, const std::string& origin, const Words& words) {
        return cli::plan_from_text(parsed(words, origin), text);
      },
      nb::arg("text"), nb::arg("origin"), nb::arg("words"),
      "The plan that a CSV or JSON text holds.");
  m.def(
      "lowered_plan",
      [](const Schedule& plan, const Words& words) {
        return cli::lowered_plan(options_of(words), plan);
      },
      nb::arg("plan"), nb::arg("words"), "The plan with communication, reductions and updates.");
  m.def("verify_plan", &report_of, nb::arg("plan"), nb::arg("words"),
        "Proves a plan; what each worker and placement needs.");
  m.def(
      "simulate_plan",
      [](const Schedule& plan, const Words& words, bool events) {
        const cli::PlanOptions o = options_of(words);
        const Simulation s = cli::simulated(o, proved(o, plan), events);
        return nb::make_tuple(to_json(s), events_of(s));
      },
      nb::arg("plan"), nb::arg("words"), nb::arg("events"),
      "The JSON of `hetu simulate`, and the predicted events as dicts if asked for.");
  m.def(
      "choose",
      [](const Words& words) {
        cli::ChooseOptions o;
        cli::parse_options(words, cli::choose_options(o));
        return to_json(cli::ranking_of(o));
      },
      nb::arg("words"), "The JSON of `hetu choose WORDS`.");
  m.def("render_plan", &rendered, nb::arg("plan"), nb::arg("words"), "A picture or a trace.");
}

}  // namespace hetu
