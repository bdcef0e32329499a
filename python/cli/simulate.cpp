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
  const Costs costs = costs_of(o);
  const Schedule plan = plan_of(o);
  const Schedule lowered = lowered_plan(o, plan);
  prove(o, plan, lowered);
  SimulateOptions run = o.run;
  run.send_slots = o.send_slots;
  run.events = o.format != "json" && o.format != "csv";
  const Simulation s = simulate(lowered, costs, run);
  std::string text;
  if (o.format == "json")
    text = to_json(s);
  else if (o.format == "csv")
    text = to_csv(o.lowered ? lowered : plan);
  else if (o.format == "trace")
    text = trace_text(s.events, lowered, costs);
  else if (is_page(o.format))
    text = page_of_run(o, s, lowered);
  else
    text = grid_over_time(o, s);
  put(text, o.output);
  return 0;
}

}  // namespace hetu::cli
