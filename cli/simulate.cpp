// `hetu simulate`: predicts the times, bubbles and memory of a plan.
#include "pipeline/simulate/simulate.h"

#include "base/error.h"
#include "base/progress_line.h"
#include "cli/command.h"
#include "cli/plan_command.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/options/figure.h"
#include "pipeline/simulate/simulate_groups.h"
#include "pipeline/verify/verify.h"
#include "ps/coordinator/group_log.h"

namespace hetu::cli {
namespace {

// Writes the log in the coordinator's format, so that one reader handles both.
void write_log(const std::string& path, const GroupSimulation& simulation) {
  ps::GroupLog log;
  log.open(path);
  log.begin_run(0);
  for (const groups::Decision& d : simulation.groups) log.write(d, 0);
}

}  // namespace

int simulate_command(const Arguments& arguments) {
  std::string log;
  const Fields own = {group_log_field(log)};
  if (wants_help(arguments)) {
    put(plan_help("simulate", "Predicts a plan's times, bubbles and memory under given costs.",
                  own),
        "");
    return 0;
  }
  const PlanOptions o = parse_plan_options(arguments, own);
  check_group_log(log, o);
  require(o.format != "torch", "--format torch is for hetu schedule, which writes plans");
  const ProgressLine progress("hetu simulate", "");
  const Schedule plan = plan_of(o);
  const Schedule lowered = lowered_plan(o, plan);
  prove(o, plan, lowered);
  const bool figures = o.format == "json", rows = o.format == "csv";
  GroupSimulation grouped;
  if (averages_in_groups(o))
    grouped = simulated_groups(o, lowered, !figures && !rows);
  else
    grouped.run = simulated(o, lowered, !figures && !rows);
  if (!log.empty()) write_log(log, grouped);
  const Simulation& s = grouped.run;
  const std::string text = figures ? (averages_in_groups(o) ? to_json(grouped) : to_json(s))
                           : rows  ? to_csv(o.lowered ? lowered : plan)
                                   : figure_of_run(o, s, lowered);
  progress.close();
  put(text, o.output);
  return 0;
}

}  // namespace hetu::cli
