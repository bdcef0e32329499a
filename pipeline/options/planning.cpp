#include "pipeline/options/planning.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/decimal.h"
#include "base/error.h"
#include "base/text_file.h"
#include "pipeline/choose/pipedream_graph.h"
#include "pipeline/options/planner_inputs.h"
#include "pipeline/planner/explain.h"
#include "pipeline/planner/import.h"
#include "pipeline/planner/report_parts.h"

namespace hetu {
namespace {

void check_bytes(const Machines& m, const Costs& costs) {
  const bool known = std::any_of(costs.blocks.begin(), costs.blocks.end(), [](const BlockCost& b) {
    return b.cost.activation_bytes > 0 || b.cost.weight_bytes > 0;
  });
  require(m.memory_bytes.empty() || known,
          "memory limits need costs with activation_bytes or weight_bytes");
}

MachineLevel level_of(const std::string& text, double memory_bytes) {
  MachineLevel level;
  level.memory_bytes = memory_bytes;
  const std::size_t colon = text.find(':');
  const std::string count = text.substr(0, colon);
  const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), level.count);
  std::optional<double> bandwidth;
  if (colon != std::string::npos) bandwidth = to_decimal(text.substr(colon + 1));
  require(bandwidth && error == std::errc() && end == count.data() + count.size(),
          "--levels '{}': expected COUNT:BANDWIDTH, such as 4:1e9", text);
  level.bandwidth = *bandwidth;
  return level;
}

Planning pipedream_of(const PlannerOptions& o) {
  require(o.exports.empty() && o.compare_with.empty(),
          "--planner pipedream has neither --export nor --compare-with; remove them");
  require(!o.plan.costs.costs.empty(), "--planner pipedream needs --costs GRAPH.txt");
  require(!o.levels.empty(), "--planner pipedream needs --levels, such as 4:1e9");
  require(o.format != "flags" && o.format != "html" && !o.explain,
          "--planner pipedream has a report as text or json, but no flags, page or explanation");
  PipeDreamOptions options;
  for (const std::string& text : o.levels)
    options.levels.push_back(level_of(text, o.plan.sizes.memory_bytes));
  Planning p{true, plan_pipedream_file(o.plan.costs.costs, options, false), {}, {}};
  p.formatted =
      o.format == "json" ? plan_pipedream_file(o.plan.costs.costs, options, true) : p.text;
  return p;
}

}  // namespace

CostsOfSize request_of(PlannerOptions& o, std::vector<std::string>& notes) {
  require(o.plan.sizes.memory_limit == 0,
          "--memory-limit must be in bytes here, for example 16GiB");
  const auto source = std::make_shared<CostSource>(o);
  PlanRequest& r = o.request;
  require(r.global_batch > 0, "needs --global-batch S");
  if (r.micro_batch_sizes.empty()) r.micro_batch_sizes = source->sizes();
  r.recompute = !o.no_recompute;
  r.sync = o.plan.sync;
  r.budget = static_cast<std::int64_t>(o.budget_millions * 1e6);
  const Costs any = source->of(r.micro_batch_sizes.front());
  r.machines = machines_of(o, any);
  check_bytes(r.machines, any);
  source->note(notes);
  if (r.machines.link.latency == 0 && r.machines.link.bandwidth == 0 && r.machines.pairs.empty() &&
      r.machines.workers() > 1)
    notes.emplace_back(
        "messages and sums of gradients take no time: the costs name no link; give --latency and "
        "--bandwidth, or --machines FILE");
  return [source](int size) { return source->of(size); };
}

namespace {

// A plan of another system, and its prediction.
struct Compared {
  GivenPlan given;
  PlanChoice choice;
};

// Returns the answer as JSON, with what the options add to it.
std::string json_of(const PlanAnswer& answer, const PlannerOptions& o,
                    const std::optional<Explanation>& why, const std::optional<Compared>& compared,
                    const std::vector<ExportedFile>& files) {
  const std::string text = why ? to_json(*why, answer, o.request) : to_json(answer, o.request);
  if (o.exports.empty() && !compared) return text;
  using Json = nlohmann::ordered_json;
  Json out = Json::parse(bounded_json(text, "plan"));
  if (compared)
    out["compared"] = Json::parse(bounded_json(
        comparison_json(compared->given, compared->choice, answer, o.request), "comparison"));
  if (!o.exports.empty()) out["exports"] = Json::object();
  for (const ExportedFile& f : files) out["exports"][f.name] = f.text;
  return out.dump(2) + "\n";
}

// Searches the best plan of each method of which the answer knows only a bound.
void search_each(PlanAnswer& answer, const PlanRequest& request, const CostsOfSize& costs) {
  using Outcome = PlanVerdict::Kind;
  std::vector<std::string> methods;
  for (const PlanVerdict* v : best_by_method(answer)) {
    const bool is_best =
        answer.best && v->configuration.method == answer.best->configuration.method;
    if (!is_best && (v->kind == Outcome::RuledOut || v->kind == Outcome::Unfinished))
      methods.push_back(v->configuration.method);
  }
  for (const std::string& method : methods) {
    PlanRequest one = request;
    one.methods = {method};
    one.budget = std::max<std::int64_t>(1, request.budget / 4);
    const PlanAnswer found = find_plan(one, costs);
    if (!found.best) continue;
    const std::string name = to_text(found.best->configuration);
    for (PlanVerdict& v : answer.verdicts) {
      if (to_text(v.configuration) != name) continue;
      v.step_time = found.best->cut.step_time;
      v.kind = Outcome::Searched;
      v.bound = found.bound;
    }
  }
}

// Searches, and adds the explanation, the exports and the comparison.
Planning searched(PlannerOptions& o) {
  std::vector<std::string> notes;
  const CostsOfSize costs = request_of(o, notes);
  // A plan that can't be read is refused before the search.
  std::optional<Compared> compared;
  if (!o.compare_with.empty()) {
    compared.emplace();
    compared->given = parse_given_plan(o.compare_with, o.request, costs, o.blocks_are);
    compared->choice = predicted(compared->given, o.request, costs);
  }
  PlanAnswer answer = find_plan(o.request, costs);
  if (o.each) search_each(answer, o.request, costs);
  Planning p;
  p.fits = answer.best.has_value();
  p.text = to_text(answer, o.request, static_cast<std::size_t>(o.top));
  std::optional<Explanation> why;
  if ((o.explain || o.format == "html") && p.fits) why = explain(answer, o.request, costs);
  if (o.explain && why) p.text += to_text(*why, answer);
  if (answer.recompute_guessed && !o.no_recompute)
    notes.emplace_back("the costs have no time of recompute; a forward's time is used");
  for (const std::string& note : notes) p.text += "note: " + note + "\n";
  if (compared) p.text += comparison_text(compared->given, compared->choice, answer, o.request);
  for (const std::string& system : o.exports) {
    if (!p.fits) break;
    for (ExportedFile& f : exported(system, answer, o.request, o.blocks_are))
      p.files.push_back(std::move(f));
  }
  if (o.format == "json")
    p.formatted = json_of(answer, o, why, compared, p.files);
  else if (o.format != "flags" && o.format != "html")
    p.formatted = p.text;
  else if (p.fits)
    p.formatted =
        o.format == "html" ? to_html(*why, answer, o.request) : to_flags(answer, o.request);
  return p;
}

}  // namespace

Planning planning_of(PlannerOptions& o) {
  if (o.planner == "pipedream") return pipedream_of(o);
  require(o.levels.empty(), "--levels needs --planner pipedream");
  require(o.export_to.empty() || !o.exports.empty(), "--export-to needs --export");
  check_systems(o.exports);
  return searched(o);
}

}  // namespace hetu
