// Plans as JSON. The file is an object with the fields of Schedule. `placements` has the fields of
// Placement and an `id`. `workers` has the parts of Program, with instructions in their text form,
// for example:
//   {"method": "dp", "stages": 1, "micro_batches": 2,
//    "placements": [{"id": 0, "workers": [0], "model_stage": 0, "replica": 0}],
//    "workers": [{"prologue": [], "body": ["0F0", "0B0"], "repeat": 2, "shift": 1, "drain": []}]}
// Unknown keys are errors. Most missing keys have defaults or are derived from the rows.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text_file.h"
#include "pipeline/ir/plan_rows.h"

namespace hetu {
namespace {

using json = nlohmann::ordered_json;

// In the order of RunPolicy.
const char* const kPolicyNames[] = {"as-planned", "forward-before-late-gradient"};

// Returns the cells of a row. A pair that runs as one is one cell.
json cells(const std::vector<Instr>& row) {
  json out = json::array();
  for (std::size_t k = 0; k < row.size(); ++k) {
    out.push_back(to_cell(row[k], k + 1 < row.size() ? &row[k + 1] : nullptr));
    k += row[k].with_next ? 1 : 0;
  }
  return out;
}

json pairs(const std::vector<StagePair>& list) {
  json out = json::array();
  for (const StagePair& p : list) out.push_back({p.first, p.second});
  return out;
}

// Reader of one object of a plan file. Every error message names the file and the key.
class Reader {
 public:
  Reader(const nlohmann::json& object, std::string at, const std::vector<const char*>& known)
      : object_(object), at_(std::move(at)) {
    if (!object.is_object()) wrong("expected an object {…}");
    for (const auto& [key, value] : object.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      std::string names;
      for (const char* k : known) names.append(names.empty() ? "" : ", ").append(k);
      wrong(fmt::format("unknown key '{}'; known keys: {}", one_line(key.substr(0, 40)), names));
    }
  }

  bool has(const char* key) const { return object_.contains(key); }

  int integer(const char* key, int otherwise, int least) const {
    if (!has(key)) return otherwise;
    const nlohmann::json& v = object_[key];
    if (!v.is_number_integer() || v > INT32_MAX || v < least)
      wrong(fmt::format("'{}' must be a whole number of at least {}", key, least));
    return v.get<int>();
  }

  bool flag(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!object_[key].is_boolean()) wrong(fmt::format("'{}' must be true or false", key));
    return object_[key].get<bool>();
  }

  std::string text(const char* key, const char* otherwise) const {
    if (!has(key)) return otherwise;
    if (!object_[key].is_string()) wrong(fmt::format("'{}' must be a string", key));
    return object_[key].get<std::string>();
  }

  const nlohmann::json& list(const char* key) const {
    static const nlohmann::json kNone = nlohmann::json::array();
    if (!has(key)) return kNone;
    if (!object_[key].is_array()) wrong(fmt::format("'{}' must be a list […]", key));
    return object_[key];
  }

  std::vector<int> integers(const char* key) const {
    std::vector<int> out;
    for (const nlohmann::json& v : list(key)) {
      if (!v.is_number_integer() || v < 0 || v > INT32_MAX)
        wrong(fmt::format("'{}' must hold whole numbers >= 0", key));
      out.push_back(v.get<int>());
    }
    return out;
  }

  std::vector<StagePair> stage_pairs(const char* key) const {
    std::vector<StagePair> out;
    for (const nlohmann::json& v : list(key)) {
      if (!v.is_array() || v.size() != 2 || !v[0].is_number_integer() || !v[1].is_number_integer())
        wrong(fmt::format("'{}' must hold pairs of model stages [first, second]", key));
      for (const nlohmann::json& stage : v)
        if (stage < 0 || stage > INT32_MAX)
          wrong(fmt::format("'{}' must hold model stages >= 0", key));
      out.push_back({v[0].get<int>(), v[1].get<int>()});
    }
    return out;
  }

  std::vector<Instr> row(const char* key) const {
    std::vector<Instr> out;
    int n = 0;
    for (const nlohmann::json& v : list(key)) {
      if (!v.is_string()) wrong(fmt::format("'{}', cell {}: expected a string", key, n));
      try {
        parse_cell(v.get_ref<const std::string&>(), out);
      } catch (const Error& e) {
        wrong(fmt::format("'{}', cell {}: {}", key, n, e.what()));
      }
      ++n;
    }
    return out;
  }

  [[noreturn]] void wrong(const std::string& what) const {
    fail(Code::Config, "{}: {}", at_, what);
  }

 private:
  const nlohmann::json& object_;
  const std::string at_;
};

void read_placements(const Reader& in, const std::string& origin, Schedule& s) {
  for (const nlohmann::json& v : in.list("placements")) {
    const Reader p(v, fmt::format("{}: placement {}", origin, s.placements.size()),
                   {"id", "workers", "model_stage", "replica"});
    if (p.integer("id", -1, 0) != static_cast<int>(s.placements.size()))
      p.wrong("placements must be in the order of their 'id', starting at 0");
    s.placements.push_back(
        {p.integers("workers"), p.integer("model_stage", 0, 0), p.integer("replica", 0, 0)});
  }
  // Each (model stage, replica) occurs once, so both numbers are below the number of placements.
  // The check comes before tables of these sizes are allocated.
  const int count = static_cast<int>(s.placements.size());
  for (const Placement& p : s.placements)
    if (p.model_stage >= count || p.replica >= count)
      in.wrong(
          fmt::format("model stage {} and replica {} must both be below the number of placements, "
                      "{}",
                      p.model_stage, p.replica, count));
}

void read_workers(const Reader& in, const std::string& origin, Schedule& s) {
  for (const nlohmann::json& v : in.list("workers")) {
    const Reader w(v, fmt::format("{}: worker {}", origin, s.workers.size()),
                   {"prologue", "body", "repeat", "shift", "drain"});
    Program p;
    p.prologue = w.row("prologue");
    p.body = w.row("body");
    p.repeat = w.integer("repeat", 0, 0);
    p.shift = w.integer("shift", 0, 0);
    p.drain = w.row("drain");
    if (!p.body.empty() && p.repeat == 0) w.wrong("a body with 'repeat' 0 would never run");
    s.workers.push_back(std::move(p));
  }
}

void read_lowering(const nlohmann::json& v, const std::string& origin, Schedule& s) {
  const Reader in(
      v, origin + ": lowering",
      {"pipelines", "extra_edges", "tied", "gradient_buckets", "reduce_scalars", "sync",
       "average_weights", "servers", "staleness", "flush", "factor_layers", "owners", "wraps"});
  Lowering& how = s.lowering;
  how.pipelines = in.integer("pipelines", 1, 1);
  how.extra_edges = in.stage_pairs("extra_edges");
  how.tied = in.stage_pairs("tied");
  how.gradient_buckets = in.integers("gradient_buckets");
  how.reduce_scalars = in.flag("reduce_scalars", false);
  const bool averages = in.flag("average_weights", false), servers = in.flag("servers", false);
  const int staleness = in.integer("staleness", 0, kAnyStaleness);
  if (averages && servers)
    in.wrong(
        "pipelines push to servers or average in groups, not both; leave 'servers' or "
        "'average_weights' out");
  if (!servers && staleness != 0)
    in.wrong(fmt::format("'staleness' {} needs 'servers'", staleness));
  if (averages) how.sharing = WeightAverages{};
  if (servers) how.sharing = ParameterServers{staleness};
  how.flush = in.flag("flush", false);
  how.factor_layers = in.integers("factor_layers");
  how.owners = in.flag("owners", false);
  how.wraps = in.flag("wraps", false);
  try {
    how.sync = parse_sync_place(in.text("sync", "eager"));
  } catch (const Error& e) {
    in.wrong(e.what());
  }
}

}  // namespace

std::string to_json(const Schedule& s) {
  json placements = json::array(), workers = json::array();
  for (std::size_t i = 0; i < s.placements.size(); ++i) {
    const Placement& p = s.placements[i];
    placements.push_back({{"id", i},
                          {"workers", p.workers},
                          {"model_stage", p.model_stage},
                          {"replica", p.replica}});
  }
  bool atomic = false;
  const auto pairs_in = [](const std::vector<Instr>& row) {
    return std::any_of(row.begin(), row.end(), [](const Instr& i) { return i.with_next; });
  };
  for (const Program& p : s.workers) {
    atomic |= pairs_in(p.prologue) || pairs_in(p.body) || pairs_in(p.drain);
    workers.push_back({{"prologue", cells(p.prologue)},
                       {"body", cells(p.body)},
                       {"repeat", p.repeat},
                       {"shift", p.shift},
                       {"drain", cells(p.drain)}});
  }
  json out = {{"method", s.method},
              {"stages", s.stages},
              {"micro_batches", s.micro_batches},
              {"chunks", s.chunks},
              {"concat", s.half_micros ? "halving" : "direct"},
              {"pair_semantics", atomic ? "atomic" : "split"},
              {"steps", s.steps},
              {"placements", std::move(placements)},
              {"version_rule", version_rule_name(s.version_rule)},
              {"run_policy", kPolicyNames[static_cast<int>(s.run_policy)]},
              {"most_versions", s.most_versions}};
  if (s.replica_rule == ReplicaRule::Cyclic) out["replica_rule"] = "cyclic";
  if (s.lowering != Lowering{} || is_lowered(s))
    out["lowering"] = {{"pipelines", s.lowering.pipelines},
                       {"extra_edges", pairs(s.lowering.extra_edges)},
                       {"tied", pairs(s.lowering.tied)},
                       {"gradient_buckets", s.lowering.gradient_buckets},
                       {"reduce_scalars", s.lowering.reduce_scalars},
                       {"sync", sync_place_name(s.lowering.sync)},
                       {"flush", s.lowering.flush}};
  if (s.lowering.averages()) out["lowering"]["average_weights"] = true;
  if (!s.lowering.factor_layers.empty())
    out["lowering"]["factor_layers"] = s.lowering.factor_layers;
  if (s.lowering.owners) out["lowering"]["owners"] = true;
  if (s.lowering.wraps) out["lowering"]["wraps"] = true;
  if (s.lowering.has_servers()) {
    out["lowering"]["servers"] = true;
    out["lowering"]["staleness"] = s.lowering.staleness();
  }
  out["workers"] = std::move(workers);
  // The method may be the name of a file and hold any bytes. Invalid UTF-8 is replaced, not
  // refused.
  return out.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

Schedule parse_plan_json(const std::string& text, const std::string& origin,
                         const PlanFacts& facts) {
  nlohmann::json parsed;
  try {
    parsed = nlohmann::json::parse(bounded_json(text, origin));
  } catch (const nlohmann::json::exception& e) {
    fail(Code::Config, "{}: {}", origin, one_line(e.what()));
  }
  if (parsed.is_object() && parsed.contains("micro_batch_sizes"))
    fail(Code::Config, "{}: this is a profile of a model's costs, not a plan; pass it as --costs",
         origin);
  if (parsed.is_object() && parsed.contains("configurations"))
    fail(
        Code::Config,
        "{}: this is a result of `hetu plan`, not a plan of instructions; pass it to a Pipeline as "
        "plan=, or to `hetu verify`, `simulate` and `rehearse`",
        origin);
  if (parsed.is_object() && parsed.contains("traceEvents"))
    fail(Code::Config,
         "{}: this is a trace, not a plan; `hetu timeline` and `hetu compare` read it", origin);
  const Reader in(parsed, origin,
                  {"method", "stages", "micro_batches", "chunks", "concat", "pair_semantics",
                   "steps", "placements", "version_rule", "run_policy", "replica_rule",
                   "most_versions", "lowering", "workers"});
  Schedule s;
  s.method = in.text("method", origin.c_str());
  s.stages = in.integer("stages", 0, 1);
  s.micro_batches = in.integer("micro_batches", 0, 1);
  s.chunks = in.integer("chunks", 1, 1);
  s.steps = in.integer("steps", facts.steps, 1);
  const std::string concat = in.text("concat", facts.half_micros ? "halving" : "direct");
  if (concat != "halving" && concat != "direct" && concat != "doubling")
    in.wrong("'concat' must be \"direct\", \"doubling\" or \"halving\"");
  s.half_micros = concat == "halving";
  try {
    s.version_rule = parse_version_rule(in.text("version_rule", "newest"));
  } catch (const Error& e) {
    in.wrong(e.what());
  }
  const std::string policy = in.text("run_policy", kPolicyNames[0]);
  if (policy == kPolicyNames[1])
    s.run_policy = RunPolicy::ForwardBeforeLateGradient;
  else if (policy != kPolicyNames[0])
    in.wrong(
        fmt::format("'run_policy' must be \"{}\" or \"{}\"", kPolicyNames[0], kPolicyNames[1]));
  const std::string replicas = in.text("replica_rule", "whole");
  if (replicas == "cyclic")
    s.replica_rule = ReplicaRule::Cyclic;
  else if (replicas != "whole")
    in.wrong("'replica_rule' must be \"whole\" or \"cyclic\"");
  s.most_versions = in.integer("most_versions", 1, 0);
  if (facts.version_rule) {
    s.version_rule = *facts.version_rule;
    s.most_versions = 0;
  }
  read_placements(in, origin, s);
  if (in.has("lowering")) read_lowering(parsed["lowering"], origin, s);
  read_workers(in, origin, s);
  if (s.stages > 0 && s.stages != static_cast<int>(s.workers.size()))
    in.wrong(fmt::format("'stages' is {}, but there are {} workers", s.stages, s.workers.size()));
  const Lowering given = s.lowering;
  complete_plan(s, facts, origin);
  if (in.has("lowering"))
    s.lowering.flush = parsed["lowering"].contains("flush") ? given.flush : ends_in_flush(s);
  if (in.has("pair_semantics")) set_pairs(s, in.text("pair_semantics", ""), origin);
  return s;
}

std::optional<Schedule> plan_of_trace(const Trace& trace, const std::string& origin) {
  json metadata;
  try {
    metadata = json::parse(bounded_json(trace.metadata_json, origin));
  } catch (const json::exception& e) {
    fail(Code::Config, "{}: {}", origin, one_line(e.what()));
  }
  const bool there =
      metadata.is_object() && metadata.contains("plan") && metadata["plan"].is_object();
  if (!there) return std::nullopt;
  return parse_plan(metadata["plan"].dump(), origin + ": plan");
}

}  // namespace hetu
