#include "pipeline/generate.h"
#include "pipeline/plan_file.h"
#include "pipeline/verify.h"
#include "python/cli/command.h"
#include "python/cli/picture.h"
#include "python/cli/plan_options.h"

namespace hetu::cli {

int schedule_command(const Arguments& arguments) {
  if (wants_help(arguments)) {
    put(plan_help("schedule", "Makes the plan of a method, or reads one, and prints it."), "");
    return 0;
  }
  const PlanOptions o = parse_plan_options(arguments);
  const Schedule plan = plan_of(o);
  const Schedule lowered = lowered_plan(o, plan);
  prove(o, plan, lowered);
  const Schedule& shown = o.lowered ? lowered : plan;
  std::string text;
  if (o.format == "csv") {
    text = to_csv(shown);
  } else if (o.format == "json") {
    text = to_json(shown);
  } else if (o.format == "svg" || o.format == "trace") {
    SimulateOptions run = o.run;
    run.send_slots = o.send_slots;
    run.events = true;
    const Costs costs = costs_of(o);
    const Simulation s = simulate(lowered, costs, run);
    text = o.format == "svg" ? svg_picture(s, lowered) : trace_text(s.events, lowered, costs);
  } else {
    text = grid_of_rows(o, shown);
  }
  put(text, o.output);
  return 0;
}

}  // namespace hetu::cli
