// Readers of cost files: JSON, tables of measured blocks, and traces.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/limits.h"
#include "base/text_file.h"
#include "base/trace.h"
#include "pipeline/cost/averages.h"
#include "pipeline/cost/block_table.h"
#include "pipeline/cost/collective_times.h"
#include "pipeline/cost/cost.h"
#include "pipeline/cost/limits.h"

namespace hetu {
namespace {

using nlohmann::json;

[[noreturn]] void wrong(const std::string& origin, const std::string& what) {
  fail(Code::Config, "{}: {}", origin, what);
}

// Refuses unknown keys, because a misspelt key would have no effect.
void check_keys(const json& object, const std::vector<const char*>& known, const std::string& at) {
  if (!object.is_object()) wrong(at, "expected an object {…}");
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string names;
    for (const char* k : known) names.append(names.empty() ? "" : ", ").append(k);
    wrong(at, fmt::format("unknown key '{}'; known keys: {}", one_line(key.substr(0, 40)), names));
  }
}

double number(const json& object, const char* key, double otherwise, const std::string& at) {
  if (!object.contains(key)) return otherwise;
  const json& v = object[key];
  if (!v.is_number()) wrong(at, fmt::format("'{}' must be a number", key));
  const double x = v.get<double>();
  if (!std::isfinite(x) || x < 0)
    wrong(at, fmt::format("'{}' must be a finite number >= 0, got {}", key, x));
  if (x > kLargestNumber)
    wrong(at, fmt::format("'{}' must be at most {}, got {}", key, kLargestNumber, x));
  return x;
}

int worker_id(const json& object, const char* key, const std::string& at) {
  if (!object.contains(key) || !object[key].is_number_integer())
    wrong(at, fmt::format("'{}' must be a worker's number", key));
  const auto id = object[key].get<std::int64_t>();
  if (id < 0 || id > 1000000)
    wrong(at, fmt::format("'{}' must be a worker's number, got {}", key, id));
  return static_cast<int>(id);
}

const json& list(const json& object, const char* key, const std::string& origin) {
  const json& v = object[key];
  if (!v.is_array()) wrong(origin, fmt::format("'{}' must be a list […]", key));
  return v;
}

// Returns the milliseconds per unit of the file.
double unit_of(const json& in, const std::string& origin) {
  if (!in.contains("unit")) return 1;
  static const std::map<std::string, double> kUnits = {{"us", 1e-3}, {"ms", 1}, {"s", 1e3}};
  const auto unit =
      in["unit"].is_string() ? kUnits.find(in["unit"].get<std::string>()) : kUnits.end();
  if (unit == kUnits.end()) wrong(origin, "'unit' must be \"us\", \"ms\" or \"s\"");
  return unit->second;
}

// Checks the number that pipeline/options/cost_samples.h reads.
void check_samples(const json& in, const std::string& origin) {
  constexpr const char* kKey = "samples_per_micro_batch";
  if (!in.contains(kKey)) return;
  const auto samples = in[kKey].is_number_integer() ? in[kKey].get<std::int64_t>() : 0;
  if (samples < 1 || samples > (1 << 28))
    wrong(origin, fmt::format("'{}' must be a whole number from 1 to {}, got {}", kKey, 1 << 28,
                              one_line(in[kKey].dump().substr(0, 40))));
}

CurvatureCost curvature_from(const json& k, double ms, const std::string& at) {
  check_keys(k, {"factors", "inversion", "precondition", "saved_bytes", "factor_bytes"}, at);
  return {.factors = number(k, "factors", 0, at) * ms,
          .inversion = number(k, "inversion", 0, at) * ms,
          .precondition = number(k, "precondition", 0, at) * ms,
          .saved_bytes = number(k, "saved_bytes", 0, at),
          .factor_bytes = number(k, "factor_bytes", 0, at)};
}

StageCost stage_from(const json& s, double ms, const std::string& at, bool block = false) {
  std::vector<const char*> known = {
      "forward",     "input_grad",       "weight_grad",  "recompute",      "update",
      "bytes_out",   "activation_bytes", "weight_bytes", "gradient_bytes", "feed_bytes",
      "reduce_grad", "working_bytes",    "curvature"};
  if (block) known.push_back("weight");
  check_keys(s, known, at);
  StageCost c;
  c.forward = number(s, "forward", 1, at) * ms;
  c.input_grad = number(s, "input_grad", 1, at) * ms;
  c.weight_grad = number(s, "weight_grad", 1, at) * ms;
  c.recompute = number(s, "recompute", 0, at) * ms;
  c.update = number(s, "update", 0, at) * ms;
  c.bytes_out = number(s, "bytes_out", 0, at);
  c.activation_bytes = number(s, "activation_bytes", 0, at);
  c.weight_bytes = number(s, "weight_bytes", 0, at);
  c.gradient_bytes = number(s, "gradient_bytes", 0, at);
  c.feed_bytes = number(s, "feed_bytes", 0, at);
  c.reduce_grad = number(s, "reduce_grad", 0, at) * ms;
  c.working_bytes = number(s, "working_bytes", 0, at);
  if (s.contains("curvature")) c.curvature = curvature_from(s["curvature"], ms, at + ": curvature");
  return c;
}

// The bandwidth in a file is in bytes per unit of time of the file.
LinkCost link_from(const json& l, double ms, const std::string& at) {
  LinkCost link;
  link.latency = number(l, "latency", 0, at) * ms;
  link.bandwidth = number(l, "bandwidth", 0, at) / ms;
  if (!is_bandwidth(link.bandwidth))
    wrong(at, fmt::format("'bandwidth' must be 0 (unlimited) or at least {} bytes per ms, got {}",
                          kLeastBandwidth, link.bandwidth));
  return link;
}

void read_links(const json& in, double ms, const std::string& origin, Costs& costs) {
  if (!in.contains("link")) return;
  const std::string at = origin + ": link";
  check_keys(in["link"], {"latency", "bandwidth", "pairs"}, at);
  costs.link = link_from(in["link"], ms, at);
  costs.has_link = true;
  if (!in["link"].contains("pairs")) return;
  int n = 0;
  for (const json& pair : list(in["link"], "pairs", at)) {
    const std::string place = fmt::format("{}: link: pair {}", origin, n++);
    check_keys(pair, {"from", "to", "latency", "bandwidth"}, place);
    LinkCost link = link_from(pair, ms, place);
    link.from = worker_id(pair, "from", place);
    link.to = worker_id(pair, "to", place);
    costs.pairs.push_back(link);
  }
}

// Reads the first block of each stage, by pipeline. Each list ascends from 0 and has the length of
// the first list.
std::vector<std::vector<int>> cuts_from(const json& in, const std::string& origin) {
  std::vector<std::vector<int>> cuts;
  for (const json& one : in) {
    std::vector<int>& cut = cuts.emplace_back();
    const std::string at = fmt::format("{}: cut {}", origin, cuts.size() - 1);
    if (!one.is_array()) wrong(at, "expected a list of blocks");
    for (const json& block : one) {
      const int least = cut.empty() ? 0 : cut.back() + 1;
      const auto first = block.is_number_integer() ? block.get<std::int64_t>() : -1;
      if (first < least || first > 1000000 || (cut.empty() && first != 0))
        wrong(at, fmt::format("the first blocks of the stages must ascend from 0, got {}",
                              one_line(one.dump().substr(0, 60))));
      cut.push_back(static_cast<int>(first));
    }
    if (cut.empty() || cut.size() != cuts.front().size())
      wrong(at, fmt::format("this cut has {} stages, but cut 0 has {}", cut.size(),
                            cuts.front().size()));
  }
  if (cuts.empty())
    wrong(origin, "'cuts' is empty; give the cut of each pipeline, or remove the key");
  return cuts;
}

// Reads stages and blocks. Costs of blocks alone are those of the model in one stage, from which
// other numbers of stages are cut.
void read_parts(const json& in, double ms, const std::string& origin, Costs& costs) {
  if (in.contains("blocks")) {
    for (const json& b : list(in, "blocks", origin)) {
      const std::string at = fmt::format("{}: block {}", origin, costs.blocks.size());
      costs.blocks.push_back({stage_from(b, ms, at, true), number(b, "weight", 1, at)});
    }
  }
  costs.stages.clear();
  if (in.contains("stages")) {
    for (const json& s : list(in, "stages", origin))
      costs.stages.push_back(
          stage_from(s, ms, fmt::format("{}: stage {}", origin, costs.stages.size())));
    if (costs.stages.empty()) wrong(origin, "'stages' is empty; give one entry, or one per stage");
    return;
  }
  if (costs.blocks.empty())
    wrong(origin,
          "'stages' is missing; give a list with one entry per stage, or 'blocks' with one entry "
          "per block of the model");
  costs = recut(costs, 1);
}

Costs from_json(const json& in, const std::string& origin) {
  check_keys(in,
             {"unit", "samples_per_micro_batch", "stages", "cuts", "blocks", "link", "allreduce",
              "reduce_scalars", "workers"},
             origin);
  const double ms = unit_of(in, origin);
  Costs costs;
  costs.unit = "ms";
  costs.per_worker = false;
  check_samples(in, origin);
  read_parts(in, ms, origin, costs);
  if (in.contains("cuts")) costs.cuts = cuts_from(list(in, "cuts", origin), origin);
  read_links(in, ms, origin, costs);
  costs.allreduce = number(in, "allreduce", 0, origin) * ms;
  costs.reduce_scalars = number(in, "reduce_scalars", 0, origin) * ms;
  if (!in.contains("workers")) return costs;
  for (const json& w : list(in, "workers", origin)) {
    const std::string at = fmt::format("{}: worker {}", origin, costs.speed.size());
    check_keys(w, {"speed", "memory_limit"}, at);
    costs.speed.push_back(number(w, "speed", 1, at));
    costs.memory_limit.push_back(number(w, "memory_limit", 0, at));
    if (costs.speed.back() <= 0) wrong(at, "'speed' must be above 0");
    if (costs.speed.back() < kLeastSpeed || costs.speed.back() > kMostSpeed)
      wrong(at, fmt::format("'speed' must be from {} to {}, got {}", kLeastSpeed, kMostSpeed,
                            costs.speed.back()));
  }
  return costs;
}

// Returns the costs of the plan that `hetu plan` has found: those of its stages on its workers.
Costs of_found_plan(const json& in, const std::string& origin) {
  const json& plan = in["plan"];
  if (plan.is_null()) wrong(origin, "`hetu plan` has found no plan");
  if (!plan.is_object() || !plan.contains("costs"))
    wrong(origin,
          "this plan has no costs; make the file with this version's `hetu plan`, or give --costs "
          "with the profile that it was made from");
  return from_json(plan["costs"], origin + ": costs");
}

// Returns the model stage of each placement id, from the plan in a trace's metadata. Without a
// plan, ids are model stages.
std::vector<int> model_stages_of(const json& metadata, int stages) {
  std::vector<int> of(stages);
  for (int i = 0; i < stages; ++i) of[i] = i;
  if (!metadata.contains("plan") || !metadata["plan"].contains("placements")) return of;
  for (const json& p : metadata["plan"]["placements"]) {
    const int id = p.at("id");
    if (id >= 0 && id < stages) of[id] = p.at("model_stage");
  }
  return of;
}

// Adds the costs that times of instructions don't give: links, bytes, blocks and limits. If every
// backward was a B, the metadata also give the shares of its two halves.
void add_metadata(const json& metadata, const std::string& origin, bool split, Costs& costs) {
  if (!metadata.is_object() || !metadata.contains("costs")) return;
  const Costs given = from_json(metadata["costs"], origin + ": costs");
  costs.blocks = given.blocks;
  costs.link = given.link;
  // A link without any time was not set by the user.
  costs.has_link = given.link.latency > 0 || given.link.bandwidth > 0 || !given.pairs.empty();
  costs.pairs = given.pairs;
  costs.allreduce = given.allreduce;
  costs.memory_limit = given.memory_limit;
  if (given.stages.size() != costs.stages.size()) return;
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    costs.stages[s].bytes_out = given.stages[s].bytes_out;
    costs.stages[s].activation_bytes = given.stages[s].activation_bytes;
    costs.stages[s].weight_bytes = given.stages[s].weight_bytes;
    costs.stages[s].gradient_bytes = given.stages[s].gradient_bytes;
    costs.stages[s].feed_bytes = given.stages[s].feed_bytes;
    costs.stages[s].working_bytes = given.stages[s].working_bytes;
    if (costs.stages[s].curvature == CurvatureCost())
      costs.stages[s].curvature = given.stages[s].curvature;
    if (costs.stages[s].reduce_grad == 0) costs.stages[s].reduce_grad = given.stages[s].reduce_grad;
    const double input = given.stages[s].input_grad, whole = input + given.stages[s].weight_grad;
    if (split || whole == 0) continue;
    const double measured = costs.stages[s].input_grad + costs.stages[s].weight_grad;
    costs.stages[s].input_grad = measured * input / whole;
    costs.stages[s].weight_grad = measured - costs.stages[s].input_grad;
  }
}

std::vector<std::vector<int>> cuts_in(const json& metadata, const std::string& origin) {
  if (!metadata.contains("costs") || !metadata["costs"].contains("cuts")) return {};
  return cuts_from(metadata["costs"]["cuts"], origin + ": costs");
}

// Returns the step that is a warm-up, or -1 if no step is.
int warm_up_step(const Trace& trace) {
  std::set<int> steps;
  for (const TraceEvent& e : trace.events) steps.insert(e.step);
  return first_warms_up(steps.size()) ? *steps.begin() : -1;
}

// Adds K-FAC's times. Each factor of a stage has its own size, so sums are used: over the CURVATURE
// instructions of a micro-batch, and over all inversions, whichever copies of the stage run them.
void add_curvature(std::map<std::string, std::vector<double>>& times, CurvatureCost& c) {
  const auto sum = [&](const char* a, const char* b, double parts) {
    double total = 0;
    for (const char* kind : {a, b})
      for (const double t : times[kind]) total += t;
    return parts > 0 ? total / parts : 0;
  };
  const int layers = times["layers"].empty() ? 0 : static_cast<int>(times["layers"].back());
  const auto count = [&](const char* kind) { return static_cast<double>(times[kind].size()); };
  if (layers == 0) return;
  c.factors = sum("CURVATURE_A", "CURVATURE_B", count("CURVATURE_A") / layers);
  c.inversion = sum("INVERT_A", "INVERT_B", count("INVERT_A") / layers);
  c.precondition = typical(times["PRECONDITION"]);
}

}  // namespace

// Durations are collected by (pipeline, model stage) and kind. Measured events take precedence over
// predicted ones. A trace without I or W has whole backwards, which are split evenly unless the
// metadata give other shares.
Costs costs_of_trace(const Trace& trace, const std::string& origin, bool warms_up) {
  const bool measured =
      std::any_of(trace.events.begin(), trace.events.end(),
                  [](const TraceEvent& e) { return e.source == TraceSource::Measured; });
  int ids = 0;
  const int warm_up = warms_up ? warm_up_step(trace) : -1;
  for (const TraceEvent& e : trace.events) {
    if (e.stage > 1000000) wrong(origin, fmt::format("stage number {} is too large", e.stage));
    ids = std::max(ids, e.stage + 1);
  }
  std::vector<int> model;
  std::vector<std::vector<int>> cuts;
  json metadata;
  try {
    metadata = json::parse(bounded_json(trace.metadata_json, origin));
    model = model_stages_of(metadata, ids);
    cuts = cuts_in(metadata, origin);
  } catch (const json::exception&) {
    wrong(origin, "the plan in the metadata cannot be read");
  }
  for (const int s : model)
    if (s < 0 || s >= ids) wrong(origin, "the plan in the metadata has stages without events");
  const int stages = ids == 0 ? 0 : *std::max_element(model.begin(), model.end()) + 1;
  // Pipelines with different cuts have one worker per stage, and stages of their own.
  const int pipelines = std::max(1, static_cast<int>(cuts.size()));
  for (const std::vector<int>& cut : cuts)
    if (static_cast<int>(cut.size()) != stages)
      wrong(origin,
            fmt::format("'cuts' has {} stages, but the events have {}", cut.size(), stages));
  std::vector<std::map<std::string, std::vector<double>>> times(static_cast<std::size_t>(stages) *
                                                                pipelines);
  for (const TraceEvent& e : trace.events) {
    if (e.stage < 0 || (e.source == TraceSource::Measured) != measured) continue;
    if (e.step == warm_up) continue;
    if (!std::isfinite(e.duration_us) || e.duration_us < 0)
      wrong(origin, fmt::format("an event of stage {} has a duration of {} us; it must be finite "
                                "and >= 0",
                                e.stage, e.duration_us));
    const int pipeline = cuts.empty() ? 0 : e.worker / stages;
    if (pipeline >= pipelines)
      wrong(origin, fmt::format("worker {} has no entry in 'cuts'", e.worker));
    auto& of_stage = times[static_cast<std::size_t>(pipeline) * stages + model[e.stage]];
    of_stage[e.kind].push_back(e.duration_us * 1e-3);
    if (e.kind == "CURVATURE_A") {
      std::vector<double>& layers = of_stage["layers"];
      layers.assign(1, std::max(layers.empty() ? 0.0 : layers.back(), e.part + 1.0));
    }
  }
  Costs costs;
  costs.unit = "ms";
  costs.per_worker = false;
  costs.stages.clear();
  costs.cuts = cuts;
  bool split = false;
  for (auto& t : times) {
    split = split || !t["I"].empty();
    if (t["F"].empty() || (t["B"].empty() && t["I"].empty()))
      wrong(origin, fmt::format("stage {} has no events of a forward or of a backward",
                                costs.stages.size()));
    StageCost c;
    c.forward = typical(t["F"]);
    c.input_grad = t["I"].empty() ? typical(t["B"]) / 2 : typical(t["I"]);
    c.weight_grad = t["W"].empty() ? typical(t["B"]) / 2 : typical(t["W"]);
    c.recompute = typical(t["R"]);
    c.update = typical(t["UPDATE"]);
    add_curvature(t, c.curvature);
    costs.stages.push_back(c);
  }
  if (costs.stages.empty()) wrong(origin, "the trace has no events of any stage");
  const CollectiveTimes sums =
      collective_times(trace, measured ? TraceSource::Measured : TraceSource::Predicted, model);
  for (std::size_t s = 0; s < costs.stages.size(); ++s)
    costs.stages[s].reduce_grad = sums.reduce_grad[s % stages] * 1e-3;
  costs.reduce_scalars = sums.reduce_scalars * 1e-3;
  add_metadata(metadata, origin, split, costs);
  return costs;
}

Costs parse_costs(const std::string& text, const std::string& origin, const BlockTable& table) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) wrong(origin, "the file is empty");
  if (is_block_table(text)) return costs_of_table(text, origin, table);
  if (text[first] != '{')
    wrong(origin, "expected costs in JSON, a table that begins with 'bs,', or a trace");
  json in;
  try {
    in = json::parse(bounded_json(text, origin));
  } catch (const json::exception& e) {
    wrong(origin, one_line(e.what()));
  }
  if (in.contains("traceEvents")) return costs_of_trace(trace_from_json(text, origin), origin);
  if (in.contains("micro_batch_sizes"))
    wrong(origin,
          "this is a profile, which has the costs of several micro-batch sizes; choose one with "
          "--micro-batch-size B");
  if (in.contains("plan") && in.contains("configurations")) return of_found_plan(in, origin);
  return from_json(in, origin);
}

Costs read_costs(const std::string& path, const BlockTable& table) {
  return parse_costs(read_text(path), path, table);
}

}  // namespace hetu
