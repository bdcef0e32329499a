// `hetu choose`: ranks every method under given costs, the fastest first.

#include "base/error.h"
#include "base/progress_line.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/plan_command.h"
#include "cli/plan_function.h"
#include "pipeline/options/choose_options.h"
#include "pipeline/options/output_format.h"

namespace hetu::cli {
namespace {

std::vector<OutputFormat> formats() {
  return {{"text", {".txt"}}, {"json", {".json"}}, {"csv", {".csv"}}};
}

std::string help() {
  ChooseOptions unused;
  return "usage: hetu choose --stages P [--costs FILE] [--memory-limit A] [options]\n"
         "       hetu choose --workers P --global-batch S [--costs FILE [--blocks L]] [options]\n" +
         wrapped(
             "Ranks all combinations of method, number of micro-batches and recompute (on or off) "
             "that fit the memory limit, by predicted time per sample. With --workers, ranks every "
             "grid of P workers.\n\n"
             "With --workers, costs are those of the whole model. Each of D stages takes 1/D of "
             "the times given by options, or its share of the stages or blocks of --costs, and a "
             "micro-batch of B samples takes B times as long as one sample (with a CSV of blocks: "
             "as in its row for B).") +
         "\n"
         "Options:\n" +
         help_text(with_suffixes(options_of(fields(unused)), formats()));
}

}  // namespace

int choose_command(const Arguments& arguments) {
  if (wants_help(arguments)) return put(help(), ""), 0;
  ChooseOptions o;
  o.plan.plan_function = python_plan_function();
  const std::vector<std::string> rest = parse_options(arguments, options_of(fields(o)));
  require(rest.empty(), "takes options only, got '{}'", rest.empty() ? "" : rest[0]);
  o.format = output_format(o.format, o.plan.output, formats());
  const ProgressLine progress("hetu choose", "plans");
  o.rank.progress = progress;
  const std::string text = choice_of(o);
  progress.close();
  put(text, o.plan.output);
  return 0;
}

}  // namespace hetu::cli
