// `hetu compare`: shows where a run deviated from its plan, and why.
#include "pipeline/compare/compare.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text_file.h"
#include "cli/command.h"
#include "cli/options.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/options/output_format.h"

namespace hetu::cli {
namespace {

struct Request {
  CompareOptions options;
  std::string format, output;
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
         "where the run first fell behind its plan, and where time was lost.\n\n" +
         help_text(options_of(r));
}

// Returns lines that explain the names in the report.
std::string notes_of(const Trace& trace) {
  std::string text =
      "instructions begin with their stage: 0F3 is the forward of stage 0 and micro-batch 3, and "
      "0UPDATE the update of stage 0\n";
  const auto metadata = nlohmann::json::parse(
      bounded_json(trace.metadata_json, "a trace's metadata"), nullptr, false);
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
  const Trace trace = trace_from_json(text, traces[0]);
  const std::optional<Schedule> plan = plan_of_trace(trace, traces[0]);
  require(plan.has_value(), "{}: no plan in the metadata; a training run with --trace writes one",
          traces[0]);
  const Comparison c = compare(trace, *plan, request.options);
  put(request.format == "json" ? to_json(c) : to_text(c) + notes_of(trace), request.output);
  return 0;
}

}  // namespace hetu::cli
