#include "pipeline/simulate.h"

#include "pipeline/plan_file.h"
#include "pipeline/verify.h"
#include "python/cli/command.h"
#include "python/cli/picture.h"
#include "python/cli/plan_options.h"

namespace hetu::cli {

int simulate_command(const Arguments& arguments) {
  if (wants_help(arguments)) {
    put(plan_help("simulate", "Predicts a plan's times, bubbles and memory under given costs."),
        "");
    return 0;
  }
  const PlanOptions o = parse_plan_options(arguments);
  const Schedule plan = plan_of(o);
  const Schedule lowered = lowered_plan(o, plan);
  prove(o, plan, lowered);
  const bool figures = o.format == "json", rows = o.format == "csv";
  const Simulation s = simulated(o, lowered, !figures && !rows);
  put(figures ? to_json(s)
      : rows  ? to_csv(o.lowered ? lowered : plan)
              : picture_of_run(o, s, lowered),
      o.output);
  return 0;
}

}  // namespace hetu::cli
