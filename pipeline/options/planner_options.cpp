#include "pipeline/options/planner_options.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/text_file.h"
#include "pipeline/cost/block_table.h"
#include "pipeline/cost/profile_file.h"

namespace hetu {
namespace {

using nlohmann::json;

constexpr int kMostWorkers = 1 << 12;

std::vector<int> powers_of_two(int most) {
  std::vector<int> sizes;
  for (int size = 1; size <= most; size *= 2) sizes.push_back(size);
  return sizes;
}

// Costs from one of the four forms: a profile, a CSV of one block, or a cost file or trace.
class CostSource {
 public:
  explicit CostSource(const PlannerOptions& o) : o_(o) {
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
    }
  }

  // Returns the sizes to try unless the user names them.
  std::vector<int> sizes() const {
    if (!profile_.empty()) {
      std::vector<int> sizes;
      for (const auto& [size, costs] : profile_) sizes.push_back(size);
      return sizes;
    }
    if (table_) return sizes_of_table(text_, o_.plan.costs.costs);
    return powers_of_two(o_.request.global_batch);
  }

  // Returns costs for facts about the machines.
  Costs any() const { return of(profile_.empty() ? 1 : profile_.begin()->first); }

  Costs of(int size) const {
    if (!profile_.empty()) return costs_of_size(profile_, size, o_.plan.costs.costs);
    if (table_) return of_table(size);
    const int measured = std::max(1, o_.plan.costs.table.micro_batch_size);
    Costs costs = one_;
    scale_samples(costs, static_cast<double>(size) / measured);
    return costs;
  }

  void note(std::vector<std::string>& notes) const {
    if (table_)
      notes.emplace_back(
          "memory is that of weights, gradients and activations; the table has no optimizer "
          "states");
    if (!profile_.empty() || table_) return;
    notes.push_back(fmt::format(
        "costs are for micro-batches of {} (--micro-batch-size); other sizes are assumed to take "
        "time and memory in proportion",
        std::max(1, o_.plan.costs.table.micro_batch_size)));
  }

 private:
  Costs of_table(int size) const {
    Costs costs = costs_of_table(text_, o_.plan.costs.costs,
                                 {.micro_batch_size = size, .blocks_per_stage = 1});
    BlockCost block{costs.stages[0], 1};
    block.cost.bytes_out = o_.plan.costs.bytes * size;
    block.cost.gradient_bytes = block.cost.weight_bytes;
    block.cost.weight_bytes *= 2;  // with the gradients
    costs.blocks.assign(o_.blocks, block);
    return costs;
  }

  const PlannerOptions& o_;
  std::string text_;
  bool table_ = false;
  Profile profile_;
  Costs one_;
};

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

void check_bytes(const Machines& m, const Costs& costs) {
  const bool known = std::any_of(costs.blocks.begin(), costs.blocks.end(), [](const BlockCost& b) {
    return b.cost.activation_bytes > 0 || b.cost.weight_bytes > 0;
  });
  require(m.memory_bytes.empty() || known,
          "memory limits need costs with activation_bytes or weight_bytes");
}

}  // namespace

Fields fields(PlannerOptions& o) {
  const std::vector<std::string> shared = {
      "latency", "bytes",        "bandwidth", "costs", "micro_batch_size",
      "speed",   "memory_limit", "sync",      "output"};
  return joined(
      {{.name = "workers",
        .value = &o.workers,
        .argument = "W",
        .doc = "number of workers",
        .range = {1, kMostWorkers},
        .otherwise = "as many as --machines or --speed name"},
       {.name = "machines",
        .value = &o.machines_file,
        .argument = "FILE",
        .doc = "workers and links as JSON: workers (a list of speed, memory_limit in bytes, host), "
               "link (latency, bandwidth, pairs), link_in_host"},
       {.name = "global_batch",
        .value = &o.request.global_batch,
        .argument = "S",
        .doc = "samples per step, over all pipelines; the plan keeps it exactly",
        .range = {1, 1 << 28},
        .otherwise = ""},
       {.name = "micro_batch_sizes",
        .value = &o.request.micro_batch_sizes,
        .argument = "LIST",
        .doc = "numbers of samples in a micro-batch to try, such as 1,2,4",
        .range = {1, 1 << 28},
        .otherwise = "those of the profile, else powers of two"},
       {.name = "blocks",
        .value = &o.blocks,
        .argument = "L",
        .doc = "with a CSV of blocks: number of blocks in the model; --bytes is then the message "
               "size for one sample",
        .range = {1, 1 << 16},
        .otherwise = ""},
       {.name = "methods",
        .value = &o.request.methods,
        .argument = "LIST",
        .doc = "try only these methods, such as 1f1b,chimera,zb-v",
        .otherwise = "all methods with a flush whose order doesn't depend on costs"},
       {.name = "stages",
        .value = &o.request.stages,
        .argument = "LIST",
        .doc = "try only pipelines of these numbers of workers",
        .range = {1, kMostWorkers},
        .otherwise = "all"},
       {.name = "pipelines",
        .value = &o.request.pipelines,
        .argument = "LIST",
        .doc = "try only these numbers of pipelines",
        .range = {1, kMostWorkers},
        .otherwise = "all"},
       {.name = "no_recompute",
        .value = &o.no_recompute,
        .doc = "leave out plans that recompute activations"},
       {.name = "planner",
        .value = &o.planner,
        .argument = "NAME",
        .doc =
            "search, or pipedream: PipeDream's planner for --costs GRAPH.txt of its profiler, by "
            "its own cost model (one micro-batch at a time, stages with copies)",
        .choices = {"search", "pipedream"}},
       {.name = "levels",
        .value = &o.levels,
        .argument = "LIST",
        .doc = "with --planner pipedream: COUNT:BANDWIDTH of each level of machines, the innermost "
               "first, in bytes per second, such as 4:1.2e10,2:1.25e9",
        .otherwise = ""},
       {.name = "budget",
        .value = &o.budget_millions,
        .argument = "N",
        .doc = "most instructions to simulate, in millions; a larger budget can find a better plan "
               "and a smaller gap",
        .range = {0.001, 1e9}},
       {.name = "top",
        .value = &o.top,
        .argument = "N",
        .doc = "number of other configurations to print as text",
        .range = {0, 1 << 20}},
       {.name = "export",
        .value = &o.exports,
        .argument = "LIST",
        .doc = "also write the plan as flags and files of megatron, torch, torchtitan, deepspeed, "
               "or as devices (a list of GPUs)",
        .otherwise = "none"},
       {.name = "export_to",
        .value = &o.export_to,
        .argument = "FOLDER",
        .doc = "folder of the files of --export",
        .otherwise = "they are printed, without the report"},
       {.name = "blocks_are",
        .value = &o.blocks_are,
        .argument = "LIST",
        .doc = "content of the costs' blocks in order, for megatron and torchtitan: "
               "embedding,layers,head, or layers if the first and the last layer hold these "
               "(layers*N, mtp, mtp*N: numbers of blocks)",
        .otherwise = "not stated"},
       {.name = "compare_with",
        .value = &o.compare_with,
        .argument = "PLAN",
        .doc = "also predict a plan of another system: megatron:LAYOUT or megatron:SCRIPT with "
               "further arguments of Megatron-LM, or 'torch:FILE.csv --partition 3,5,4'",
        .otherwise = "none"},
       {.name = "format",
        .value = &o.format,
        .argument = "WHAT",
        .doc = "text, json, or flags: lines for `--config FILE` of a training script",
        .choices = {"text", "json", "flags"},
        .otherwise = "by the suffix of -o (.txt, .json, .yml), else text"}},
      only(fields(o.plan), shared));
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

CostsOfSize request_of(PlannerOptions& o, std::vector<std::string>& notes) {
  require(o.plan.sizes.memory_limit == 0,
          "--memory-limit must be in bytes here, for example 16GiB");
  const auto source = std::make_shared<const CostSource>(o);
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

}  // namespace hetu
