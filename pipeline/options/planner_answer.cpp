// The answer of a planning in the formats of `hetu plan`, with exports and comparisons.
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text_file.h"
#include "pipeline/choose/pipedream_graph.h"
#include "pipeline/options/planner_options.h"
#include "pipeline/planner/import.h"

namespace hetu {

namespace {

MachineLevel level_of(const std::string& text, double memory_bytes) {
  MachineLevel level;
  level.memory_bytes = memory_bytes;
  const std::size_t colon = text.find(':');
  const auto number = [&](const std::string& part, auto& value) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    return error == std::errc() && end == part.data() + part.size();
  };
  require(colon != std::string::npos && number(text.substr(0, colon), level.count) &&
              number(text.substr(colon + 1), level.bandwidth),
          "--levels '{}': expected COUNT:BANDWIDTH, such as 4:1e9", text);
  return level;
}

Planning pipedream_of(const PlannerOptions& o) {
  require(o.exports.empty() && o.compare_with.empty(),
          "--planner pipedream has neither --export nor --compare-with; remove them");
  require(!o.plan.costs.costs.empty(), "--planner pipedream needs --costs GRAPH.txt");
  require(!o.levels.empty(), "--planner pipedream needs --levels, such as 4:1e9");
  require(o.format != "flags", "--planner pipedream has no flags of a training; use text or json");
  PipeDreamOptions options;
  for (const std::string& text : o.levels)
    options.levels.push_back(level_of(text, o.plan.sizes.memory_bytes));
  Planning p{true, plan_pipedream_file(o.plan.costs.costs, options, false), {}};
  p.formatted =
      o.format == "json" ? plan_pipedream_file(o.plan.costs.costs, options, true) : p.text;
  return p;
}

// Returns the answer as JSON, with what the options add to it.
std::string json_of(const PlanAnswer& answer, const PlannerOptions& o, const std::string& compared,
                    const std::vector<ExportedFile>& files) {
  const std::string text = to_json(answer, o.request);
  if (o.exports.empty() && compared.empty()) return text;
  using json = nlohmann::ordered_json;
  json out = json::parse(bounded_json(text, "plan"));
  if (!compared.empty()) out["compared"] = json::parse(bounded_json(compared, "comparison"));
  if (!o.exports.empty()) out["exports"] = json::object();
  for (const ExportedFile& f : files) out["exports"][f.name] = f.text;
  return out.dump(2) + "\n";
}

// Searches, and adds the exports and the comparison.
Planning searched(PlannerOptions& o) {
  std::vector<std::string> notes;
  const CostsOfSize costs = request_of(o, notes);
  // A plan that can't be read is refused before the search.
  std::optional<GivenPlan> given;
  if (!o.compare_with.empty())
    given = parse_given_plan(o.compare_with, o.request, costs, o.blocks_are);
  std::optional<PlanChoice> theirs;
  if (given) theirs = predicted(*given, o.request, costs);
  const PlanAnswer answer = find_plan(o.request, costs);
  Planning p;
  p.fits = answer.best.has_value();
  p.text = to_text(answer, o.request, static_cast<std::size_t>(o.top));
  if (answer.recompute_guessed && !o.no_recompute)
    notes.emplace_back("the costs have no time of recompute; a forward's time is used");
  for (const std::string& note : notes) p.text += "note: " + note + "\n";
  if (given) p.text += comparison_text(*given, *theirs, answer, o.request);
  for (const std::string& system : o.exports) {
    if (!p.fits) break;
    for (ExportedFile& f : exported(system, answer, o.request, o.blocks_are))
      p.files.push_back(std::move(f));
  }
  const auto compared = [&] {
    return given ? comparison_json(*given, *theirs, answer, o.request) : "";
  };
  p.formatted = o.format == "json"    ? json_of(answer, o, compared(), p.files)
                : o.format == "flags" ? to_flags(answer, o.request)
                                      : p.text;
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
