// `hetu plan`: the fastest plan for given machines, with a certificate.

#include <filesystem>

#include "base/error.h"
#include "base/progress_line.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/plan_command.h"
#include "pipeline/options/output_format.h"
#include "pipeline/options/planning.h"

namespace hetu::cli {
namespace {

std::vector<OutputFormat> formats() {
  return {{"text", {".txt"}},
          {"json", {".json"}},
          {"html", {".html", ".htm"}},
          {"flags", {".yml", ".yaml"}}};
}

std::string help() {
  PlannerOptions unused;
  return "usage: hetu plan --costs FILE --workers W --global-batch S [options]\n"
         "       hetu plan --costs FILE --machines FILE --global-batch S [options]\n" +
         wrapped(
             "Finds the plan with the shortest step: method, stages, pipelines, micro-batch size, "
             "recompute, the cut of the model's blocks into stages, and the worker at each place. "
             "It keeps the global batch exactly and every worker within its memory. The simulator "
             "judges the plans, and lower bounds prove how far the answer can be from the optimum."
             "\n\n"
             "With -o it writes the plan to a file, and prints the report: -o PLAN.json for "
             "Pipeline(plan=) and for hetu simulate, verify and rehearse. With -o PLAN.yml it "
             "writes the flags of a training script: start the plan with "
             "`heturun -w W python3 SCRIPT … --config PLAN.yml`. With --explain or -o PLAN.html it "
             "says where the time of a step goes and what other machines would bring.") +
         "\n"
         "Options:\n" +
         help_text(with_suffixes(options_of(fields(unused)), formats()));
}

// Writes the files of the exports into their folder, or prints them. Returns true if the report is
// still to be printed.
bool put_exports(const Planning& planning, const PlannerOptions& o) {
  if (!o.export_to.empty()) {
    std::error_code error;
    std::filesystem::create_directories(o.export_to, error);
    for (const ExportedFile& f : planning.files)
      put(f.text, std::filesystem::path(o.export_to) / f.name);
    return true;
  }
  // JSON has the files itself.
  if (planning.files.empty() || o.format == "json") return true;
  std::string text;
  for (const ExportedFile& f : planning.files)
    text += planning.files.size() == 1 ? f.text : fmt::format("==> {} <==\n{}\n", f.name, f.text);
  put(text, "");
  return !o.plan.output.empty();
}

}  // namespace

int plan_command(const Arguments& arguments) {
  if (wants_help(arguments)) return put(help(), ""), 0;
  PlannerOptions o;
  const std::vector<std::string> rest = parse_options(arguments, options_of(fields(o)));
  require(rest.empty(), "takes options only, got '{}'", rest.empty() ? "" : rest[0]);
  o.format = output_format(o.format, o.plan.output, formats());
  const ProgressLine progress("hetu plan", "configurations");
  o.request.progress = progress;
  const Planning planning = planning_of(o);
  progress.close();
  // Without --export-to, exports are printed in place of the report.
  const bool printed = !planning.files.empty() && o.export_to.empty();
  const std::string& file = o.plan.output;
  // A plan as flags or as a page has nothing to show if there is no plan.
  const bool nothing = (o.format == "flags" || o.format == "html") && !planning.fits;
  if (put_exports(planning, o) && !nothing) put(planning.formatted, file);
  if ((!file.empty() && (!printed || o.format == "json")) || nothing) put(planning.text, "");
  if (nothing)
    put(fmt::format("{} is not written\n", file.empty() ? "the " + o.format : file), "");
  else if (!file.empty() && (!printed || o.format == "json"))
    put(fmt::format("{} is written\n", file), "");
  return planning.fits ? 0 : 1;
}

}  // namespace hetu::cli
