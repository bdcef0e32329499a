#include "pipeline/options/planner_inputs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/text_file.h"
#include "pipeline/cost/block_table.h"
#include "pipeline/options/cost_samples.h"

namespace hetu {
namespace {

using nlohmann::json;

std::vector<int> powers_of_two(int most) {
  std::vector<int> sizes;
  for (int size = 1; size <= most; size *= 2) sizes.push_back(size);
  return sizes;
}

// Repeats what a profile says about the variation of its times.
void note_variation(const std::string& text, std::vector<std::string>& notes) {
  const json in =
      json::parse(bounded_json(text, "the profile"), nullptr, /*allow_exceptions=*/false);
  if (!in.is_object() || !in.contains("variation") || !in["variation"].is_object()) return;
  std::pair<double, std::string> worst;
  for (const auto& [size, one] : in["variation"].items())
    if (one.is_object() && one.contains("says") && one["says"].is_string() &&
        one.contains("share") && one["share"].is_number())
      worst =
          std::max(worst, std::pair(one["share"].get<double>(), one["says"].get<std::string>()));
  if (!worst.second.empty()) notes.push_back(one_line(worst.second));
}

}  // namespace

CostSource::CostSource(const PlannerOptions& o) : o_(o) {
  const CostOptions& c = o.plan.costs;
  require(!c.costs.empty(),
          "needs --costs FILE: a profile of the model, a cost file with 'blocks', the trace of a "
          "run, or a CSV of one block with --blocks");
  text_ = read_text(c.costs);
  table_ = is_block_table(text_);
  require(o.blocks == 0 || table_,
          "--blocks {} counts the blocks of a CSV; give --costs FILE.csv, or remove --blocks",
          o.blocks);
  if (is_profile(text_)) {
    profile_ = parse_profile(text_, c.costs);
  } else if (table_) {
    require(o.blocks > 0,
            "--costs {}: a CSV has the costs of one block; give --blocks L, the number of blocks "
            "of the model",
            c.costs);
  } else {
    one_ = parse_costs(text_, c.costs);
    if (one_.blocks.empty())
      for (const StageCost& s : one_.stages) one_.blocks.push_back({s, 1});
    samples_ = samples_or_one(c);
  }
}

std::vector<int> CostSource::sizes() const {
  if (!profile_.empty()) {
    std::vector<int> sizes;
    for (const auto& [size, costs] : profile_) sizes.push_back(size);
    return sizes;
  }
  if (table_) return sizes_of_table(text_, o_.plan.costs.costs);
  return powers_of_two(o_.request.global_batch);
}

Costs CostSource::of(int size) const {
  if (!profile_.empty()) return costs_of_size(profile_, size, o_.plan.costs.costs);
  if (table_) return of_table(size);
  Costs costs = one_;
  scale_samples(costs, static_cast<double>(size) / samples_);
  return costs;
}

void CostSource::note(std::vector<std::string>& notes) const {
  if (table_)
    notes.emplace_back(
        "memory is that of weights, gradients and activations; the table has no optimizer "
        "states");
  if (!profile_.empty()) note_variation(text_, notes);
  if (!profile_.empty() || table_) return;
  const bool known = known_samples(o_.plan.costs) > 0;
  notes.push_back(fmt::format(
      "the costs {} of micro-batches of {} sample{}; other sizes are assumed to take time and "
      "memory in proportion{}",
      known ? "are those" : "don't state their micro-batch size, and are taken as those", samples_,
      samples_ == 1 ? "" : "s",
      known ? "" : " (give --micro-batch-size, or \"samples_per_micro_batch\" in the file)"));
}

Costs CostSource::of_table(int size) const {
  Costs costs =
      costs_of_table(text_, o_.plan.costs.costs, {.micro_batch_size = size, .blocks_per_stage = 1});
  BlockCost block{costs.stages[0], 1};
  block.cost.bytes_out = o_.plan.costs.bytes * size;
  block.cost.gradient_bytes = block.cost.weight_bytes;
  block.cost.weight_bytes *= 2;  // with the gradients
  costs.blocks.assign(o_.blocks, block);
  return costs;
}

Machines parse_machines(const std::string& text, const std::string& origin) {
  json in;
  try {
    in = json::parse(bounded_json(text, origin));
  } catch (const json::exception& e) {
    fail(Code::Config, "{}: {}", origin, one_line(e.what()));
  }
  if (!in.is_object() || !in.contains("workers") || !in["workers"].is_array() ||
      in["workers"].empty())
    fail(Code::Config, "{}: 'workers' must be a list with an entry for each worker, such as {{}}",
         origin);
  std::vector<std::string> hosts;
  for (json& worker : in["workers"]) {
    const bool named = worker.is_object() && worker.contains("host");
    if (named && !worker["host"].is_string())
      fail(Code::Config, "{}: worker {}: 'host' must be a text", origin, hosts.size());
    hosts.push_back(named ? worker["host"].get<std::string>() : "");
    if (named) worker.erase("host");
  }
  json inside;
  if (in.contains("link_in_host")) inside = in["link_in_host"], in.erase("link_in_host");
  for (const auto& [key, value] : in.items()) {
    const bool known = key == "unit" || key == "workers" || key == "link";
    if (!known)
      fail(Code::Config, "{}: unknown key '{}'; known keys: unit, workers, link, link_in_host",
           origin, one_line(key.substr(0, 40)));
  }
  const auto costs_with = [&](const json& link) {
    json costs = in;
    costs["stages"] = json::array({json::object()});
    if (!link.is_null()) costs["link"] = link;
    return parse_costs(costs.dump(), origin);
  };
  const Costs costs = costs_with(nullptr);
  Machines m{costs.speed, costs.memory_limit, costs.link, costs.pairs, {}};
  const bool named =
      std::any_of(hosts.begin(), hosts.end(), [](const auto& h) { return !h.empty(); });
  if (named) m.hosts = hosts;
  if (inside.is_null()) return m;
  const LinkCost near = costs_with(inside).link;
  std::set<std::pair<int, int>> own;
  for (const LinkCost& l : costs.pairs) own.insert({l.from, l.to});
  for (int from = 0; from < m.workers(); ++from)
    for (int to = 0; to < m.workers(); ++to)
      if (from != to && hosts[from] == hosts[to] && own.count({from, to}) == 0)
        m.pairs.push_back({from, to, near.latency, near.bandwidth});
  return m;
}

Machines machines_of(const PlannerOptions& o, const Costs& costs) {
  Machines m;
  if (!o.machines_file.empty()) {
    m = parse_machines(read_text(o.machines_file), o.machines_file);
    require(o.workers == 0 || o.workers == m.workers(), "--workers {}, but {} has {} workers",
            o.workers, o.machines_file, m.workers());
    require(o.plan.speed.empty(), "--speed and --machines both give speeds; remove one of them");
  } else {
    m.link = costs.link;
    m.pairs = costs.pairs;
    m.speed = o.plan.speed.empty() ? costs.speed : o.plan.speed;
    m.memory_bytes = costs.memory_limit;
    if (m.speed.size() <= 1 && o.workers > 0)
      m.speed.assign(o.workers, m.speed.empty() ? 1.0 : m.speed[0]);
    require(!m.speed.empty(),
            "needs the workers: --workers N, --speed with a number for each, or --machines FILE");
    require(o.workers == 0 || o.workers == m.workers(), "--workers {}, but {} speeds were given",
            o.workers, m.workers());
    if (m.memory_bytes.size() == 1) m.memory_bytes.assign(m.speed.size(), m.memory_bytes[0]);
  }
  if (o.plan.has("latency")) m.link.latency = o.plan.costs.latency;
  if (o.plan.has("bandwidth")) m.link.bandwidth = o.plan.costs.bandwidth;
  if (o.plan.sizes.memory_bytes > 0)
    m.memory_bytes.assign(m.speed.size(), o.plan.sizes.memory_bytes);
  if (std::all_of(m.memory_bytes.begin(), m.memory_bytes.end(), [](double b) { return b == 0; }))
    m.memory_bytes.clear();
  check_machines(m);
  return m;
}

}  // namespace hetu
