// `hetu compare`: shows where a run deviated from its plan, and why.
#include "pipeline/compare/compare.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/text_file.h"
#include "cli/command.h"
#include "cli/options.h"
#include "pipeline/cost/cost.h"
#include "pipeline/cost/partition.h"
#include "pipeline/cost/profile_file.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/lower/run_order.h"
#include "pipeline/options/cost_samples.h"
#include "pipeline/options/output_format.h"
#include "pipeline/simulate/simulate.h"

namespace hetu::cli {
namespace {

struct Request {
  CompareOptions options;
  std::string costs, format, output;
  int micro_batch_size = 0;  ///< of --costs that are a profile; 0: that of the run
  std::optional<Partition> partition;
};

std::vector<Option> options_of(Request& r) {
  return {
      {"--step", "N", "the step to examine (default: the step with the median step time)",
       [&r](const std::string& text) {
         r.options.step = static_cast<int>(to_integer(text, 0, 1'000'000'000));
       }},
      {"--all", nullptr, "include the first of several steps, which is a warm-up step",
       [&r](const std::string&) { r.options.all = true; }},
      {"--behind", "PERCENT",
       "allowed delay of an instruction, in percent of the planned step time; an instruction that "
       "ends later counts as behind (default: 1)",
       [&r](const std::string& text) { r.options.behind = to_number(text) / 100; }},
      {"--costs", "FILE",
       "predict from these costs, such as an earlier trace, instead of the prediction in the trace",
       [&r](const std::string& text) { r.costs = text; }},
      {"--micro-batch-size", "B",
       "with --costs that are a profile: samples per micro-batch (default: as many as the trace "
       "states)",
       [&r](const std::string& text) {
         r.micro_batch_size = static_cast<int>(to_integer(text, 1, 1 << 28));
       }},
      {"--partition", "HOW",
       "with --costs that have blocks: the run's blocks per stage, such as 3,5,2 (default: as "
       "training cuts)",
       [&r](const std::string& text) { r.partition = parse_partition(text); }},
      {"--format", "WHAT", "text or json (default: by the suffix of -o, else text)",
       [&r](const std::string& text) {
         r.format = one_of(text, {"text", "json"});
       }},
      {"-o", "FILE", "write to FILE.txt or FILE.json instead of standard output",
       [&r](const std::string& text) { r.output = text; }},
  };
}

std::string help() {
  Request r;
  return "usage: hetu compare TRACE [options]\n\n"
         "Compares the measured events of a trace (`--trace` of a training run or of hetu "
         "rehearse) with\n"
         "the predicted ones. Prints the error per kind of instruction, worker and edge, the "
         "instruction\n"
         "where the run first fell behind its plan, and where time was lost.\n"
         "A training run is predicted from the typical times of its own kernels, which tests the "
         "plan.\n"
         "With --costs it is a forecast, for example from the trace of an earlier run.\n\n" +
         help_text(options_of(r));
}

// Returns the costs in the file. A profile has several sizes of micro-batches, of which those of
// the run apply.
Costs costs_in_file(const Request& r, const std::string& trace) {
  const std::string text = read_text(r.costs);
  if (!is_profile(text)) {
    require(r.micro_batch_size == 0,
            "--micro-batch-size {}: {} is not a profile, and has the costs of one size; remove the "
            "option",
            r.micro_batch_size, r.costs);
    return parse_costs(text, r.costs);
  }
  const Profile profile = parse_profile(text, r.costs);
  const int stated = samples_in_file(trace);
  const int size = r.micro_batch_size > 0 ? r.micro_batch_size
                   : stated > 0           ? stated
                   : profile.size() == 1  ? profile.begin()->first
                                          : 0;
  require(size > 0,
          "--costs {}: the profile has several sizes of micro-batches, and {} doesn't state that "
          "of the run; give --micro-batch-size B",
          r.costs, trace);
  return costs_of_size(profile, size, r.costs);
}

// Returns the costs of the plan's stages.
Costs costs_of_stages(const Request& r, const Schedule& plan, const std::string& trace) {
  const Costs costs = costs_in_file(r, trace);
  const int stages = model_stages(plan);
  if (r.partition)
    return recut(costs, *r.partition, {stages, plan.lowering.pipelines, costs.speed, true});
  return costs.blocks.empty() || !costs.cuts.empty() ? costs : recut(costs, stages);
}

// Replaces the predicted events of each step by those of a simulation.
void predict(Trace& trace, const Schedule& plan, const Costs& costs) {
  std::set<int> steps;
  for (const TraceEvent& e : trace.events)
    if (e.source == TraceSource::Predicted && e.kind == "F" && e.micro == 0) steps.insert(e.step);
  if (steps.empty())
    for (const TraceEvent& e : trace.events)
      if (e.kind == "F" && e.micro == 0) steps.insert(e.step);
  std::erase_if(trace.events,
                [](const TraceEvent& e) { return e.source == TraceSource::Predicted; });
  SimulateOptions options;
  options.events = true;
  const Simulation simulated = simulate(run_order(plan, costs), costs, options);
  for (const int step : steps) {
    for (TraceEvent e : simulated.events) {
      e.step += step;
      trace.events.push_back(std::move(e));
    }
  }
}

// Returns where the prediction in a trace comes from. A training's own kernels test the structure
// of the plan, but forecast nothing.
std::string prediction_of(const Trace& trace, const std::string& path) {
  const std::string& text = trace.metadata_json;
  const auto metadata = nlohmann::json::parse(bounded_json(text, path), nullptr, false);
  if (!metadata.is_object()) return "";
  if (metadata.contains("forecast") && metadata["forecast"].is_string())
    return one_line(metadata["forecast"].get<std::string>().substr(0, 200)) + ", a forecast";
  return metadata.contains("simulated")
             ? "the run's own kernels: a test of the plan, not a forecast (--costs FILE gives one)"
             : "";
}

// Adds the source of the prediction as the first entry of the report's JSON.
std::string with_entry(std::string json, const std::string& prediction) {
  return json.insert(
      json.find('\n') + 1,
      fmt::format(" \"prediction\": {},\n",
                  nlohmann::json(prediction)
                      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
}

// Adds it as the second line of the report's text.
std::string with_line(std::string text, const std::string& prediction) {
  if (prediction.empty()) return text;
  return text.insert(text.find('\n') + 1, fmt::format("predicted from {}\n", prediction));
}

// Returns lines that explain the names in the report.
std::string notes_of(const Trace& trace, const std::string& path) {
  std::string text =
      "instructions begin with their stage: 0F3 is the forward of stage 0 and micro-batch 3, and "
      "0UPDATE the update of stage 0\n";
  const auto metadata =
      nlohmann::json::parse(bounded_json(trace.metadata_json, path), nullptr, false);
  if (metadata.is_object() && metadata.contains("numbering") && metadata["numbering"].is_string())
    text += metadata["numbering"].get<std::string>() + "\n";
  return text;
}

}  // namespace

int compare_command(const Arguments& arguments) {
  if (wants_help(arguments)) return put(help(), ""), 0;
  Request request;
  const std::vector<std::string> traces = parse_options(arguments, options_of(request));
  require(traces.size() == 1, "expected one TRACE, got {}; usage: hetu compare TRACE",
          traces.size());
  request.format =
      output_format(request.format, request.output, {{"text", {".txt"}}, {"json", {".json"}}});
  const std::string text = read_text(traces[0]);
  Trace trace = trace_from_json(text, traces[0]);
  const std::optional<Schedule> plan = plan_of_trace(trace, traces[0]);
  require(plan.has_value(), "{}: no plan in the metadata; a training run with --trace writes one",
          traces[0]);
  require(!request.partition || !request.costs.empty(), "--partition needs --costs FILE");
  require(request.micro_batch_size == 0 || !request.costs.empty(),
          "--micro-batch-size needs --costs FILE");
  std::string prediction = prediction_of(trace, traces[0]);
  if (!request.costs.empty()) {
    predict(trace, *plan, costs_of_stages(request, *plan, traces[0]));
    prediction = request.costs + ", a forecast";
  }
  const Comparison c = compare(trace, *plan, request.options);
  put(request.format == "json" ? with_entry(to_json(c), prediction)
                               : with_line(to_text(c) + notes_of(trace, traces[0]), prediction),
      request.output);
  return 0;
}

}  // namespace hetu::cli
