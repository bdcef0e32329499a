#include "cli/plan_command.h"

#include "base/error.h"
#include "cli/plan_function.h"
#include "pipeline/generate/generate.h"
#include "pipeline/options/found_plan.h"

namespace hetu::cli {

PlanOptions parse_plan_options(const std::vector<std::string>& arguments, const Fields& own,
                               const std::vector<OutputFormat>& formats) {
  PlanOptions options;
  const Fields all = joined(fields(options), own);
  const std::vector<std::string> rest = parse_options(arguments, options_of(all));
  require(!rest.empty(), "no METHOD or FILE given; --help lists the methods");
  if (rest.size() > 1)
    fail(Code::InvalidArgument, "expected one METHOD or FILE, got {}; remove '{}'", rest.size(),
         rest[1].substr(0, 60));
  options.source = rest[0];
  take_found_plan(options);
  options.plan_function = python_plan_function();
  options.format = output_format(options.format, options.output, formats);
  check_plan_options(options);
  return options;
}

namespace {

std::string meaning_of(const Method& m) {
  const std::string micros = m.micros_rule;
  std::string text =
      fmt::format("{}\nLegal: {}{}{}.", m.doc, m.stages_rule,
                  micros.rfind("a multiple", 0) == 0 ? "; M must be " : ", ", micros);
  std::string options;
  for (const std::string option : m.options) {
    options += (options.empty() ? "--" : ", --") + option;
    if (option == "chunks") options += fmt::format(" ({}, default {})", m.chunks_rule, m.chunks);
  }
  if (!options.empty()) text += fmt::format(" Takes {}.", options);
  std::string others;
  for (const char* a : m.aliases) others.append(others.empty() ? "" : ", ").append(a);
  return others.empty() ? text : text + fmt::format(" Also: {}.", others);
}

}  // namespace

std::vector<Option> with_suffixes(std::vector<Option> options,
                                  const std::vector<OutputFormat>& formats) {
  for (Option& o : options)
    if (o.name == "-o") o.meaning += ": " + known_suffixes(formats);
  return options;
}

std::string plan_help(const char* command, const char* meaning, const Fields& own,
                      const std::vector<OutputFormat>& formats) {
  return plan_help(command, meaning, own, formats, {});
}

std::string plan_help(const char* command, const char* meaning, const Fields& own,
                      const std::vector<OutputFormat>& formats,
                      const std::vector<std::string>& left_out) {
  PlanOptions unused;
  std::string text = fmt::format(
      "usage: hetu {} METHOD|FILE.csv|FILE.json|MODULE:FUNCTION [options]\n{}\n{}\nMethods:\n",
      command, wrapped(meaning),
      wrapped(
          "MODULE:FUNCTION is your own function in Python. It takes stages and micro_batches, and "
          "returns a list of actions such as '0F0' for each worker. FILE.json may be the "
          "result of `hetu plan -o`, with its costs."));
  std::vector<HelpRow> rows;
  for (const Method& m : methods()) rows.push_back({m.name, meaning_of(m)});
  text += two_columns(rows, 20);
  return text + "\nOptions:\n" +
         help_text(
             with_suffixes(options_of(joined(without(fields(unused), left_out), own)), formats)) +
         "\nExit status: 0; 1 a plan that fails verification; 2 wrong options or unreadable "
         "input.\n";
}

}  // namespace hetu::cli
