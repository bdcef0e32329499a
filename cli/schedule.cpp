// `hetu schedule`: makes or reads a plan, proves it, and prints or draws it.
#include "base/error.h"
#include "base/progress_line.h"
#include "cli/command.h"
#include "cli/plan_command.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/ir/torch_csv.h"
#include "pipeline/options/figure.h"
#include "pipeline/verify/verify.h"

namespace hetu::cli {
namespace {

// Returns the plan whose steps the diagnosis counts: the plan as typed if that one is refused, and
// otherwise the lowered plan.
Schedule refused_one(const PlanOptions& o, const Schedule& plan) {
  if (is_lowered(plan)) return plan;
  try {
    verify(plan, {.memory_limit = o.sizes.memory_limit});
    return lowered_plan(o, plan);
  } catch (const Error&) {
    return plan;  // the figure shows the diagnosis of this plan
  }
}

void draw_refused(const PlanOptions& o, const Schedule& plan, const std::string& diagnosis) {
  try {
    put(page_of_refused(o, refused_one(o, plan), diagnosis), o.output);
  } catch (const Error& e) {
    if (e.code() != Code::Plan) throw;  // a plan in which nothing can run has no figure
  }
}

}  // namespace

int schedule_command(const Arguments& arguments) {
  if (wants_help(arguments)) {
    put(plan_help("schedule", "Generates the plan of a method, or reads one, and prints it."), "");
    return 0;
  }
  const PlanOptions o = parse_plan_options(arguments);
  const ProgressLine progress("hetu schedule", "");
  const Schedule plan = plan_of(o);
  Schedule lowered;
  try {
    lowered = lowered_plan(o, plan);
    prove(o, plan, lowered);
  } catch (const Error& refusal) {
    if (refusal.code() == Code::Plan && is_page(o.format)) draw_refused(o, plan, refusal.what());
    throw;
  }
  const Schedule& shown = o.lowered ? lowered : plan;
  std::string text;
  if (o.format == "csv") {
    text = to_csv(shown);
  } else if (o.format == "torch") {
    text = to_torch_csv(lowered);
  } else if (o.format == "json") {
    text = to_json(shown);
  } else if (is_page(o.format) || o.format == "trace") {
    text = figure_of_run(o, simulated(o, lowered, true), lowered);
  } else {
    text = grid_of_rows(o, shown);
  }
  progress.close();
  put(text, o.output);
  return 0;
}

}  // namespace hetu::cli
