#include "pipeline/options/choose_options.h"

#include <algorithm>

#include "base/error.h"
#include "base/text_file.h"
#include "pipeline/cost/block_table.h"
#include "pipeline/options/cost_samples.h"

namespace hetu {
namespace {

// Returns the shared options that are not specific to one plan.
Fields shared(PlanOptions& o) {
  std::vector<std::string> names = {"stages"};
  for (const OptionField& f : fields(o.costs)) names.push_back(f.name);
  for (const char* name : {"speed", "jitter", "seed", "hetero", "slow", "pipelines", "staleness",
                           "servers", "sync", "memory_limit", "output"})
    names.emplace_back(name);
  return only(fields(o), names);
}

}  // namespace

Fields fields(ChooseOptions& r) {
  return joined(
      shared(r.plan),
      {{.name = "micro_batches",
        .value = &r.rank.micro_batches,
        .argument = "LIST",
        .doc = "numbers of micro-batches to try, such as 8,16,32",
        .range = {1, 1 << 20},
        .otherwise = "P, 2P and 4P"},
       {.name = "chunks",
        .value = &r.rank.chunks,
        .argument = "LIST",
        .doc = "numbers of chunks to try, for methods that take chunks",
        .range = {1, 1 << 12},
        .otherwise = "the method's own"},
       {.name = "methods",
        .value = &r.rank.methods,
        .argument = "LIST",
        .doc = "rank only these methods, such as 1f1b,chimera,zb-v; MODULE:FUNCTION for your own"},
       {.name = "batch_size",
        .value = &r.batch_size,
        .argument = "S",
        .doc = "samples per pipeline and step, so that a micro-batch has S/M samples; a CSV of "
               "blocks needs a row of that size, and other costs, which are for --micro-batch-size "
               "samples, are scaled in proportion",
        .range = {1, 1 << 28},
        .otherwise = "the micro-batch size of the costs"},
       {.name = "workers",
        .value = &r.workers,
        .argument = "P",
        .doc =
            "replaces --stages: searches all grids of W pipelines with D stages, W * D = P, for "
            "gpipe, 1f1b and chimera by their closed forms, and simulates the first --top. Costs "
            "are then those of the whole model for --micro-batch-size samples (default 1): each "
            "stage takes 1/D of --forward, --allreduce and the like, or its share of --costs",
        .range = {1, 1 << 16},
        .otherwise = ""},
       {.name = "global_batch",
        .value = &r.global_batch,
        .argument = "S",
        .doc = "with --workers: samples per step, over all pipelines",
        .range = {1, 1 << 28},
        .otherwise = ""},
       {.name = "blocks",
        .value = &r.blocks,
        .argument = "L",
        .doc = "with --workers and a CSV of blocks: number of blocks in the model; each stage has "
               "L / D of them, and --bytes is the message size for one sample",
        .range = {1, 1 << 16},
        .otherwise = ""},
       {.name = "asynchronous",
        .value = &r.rank.asynchronous,
        .doc =
            "also rank methods that update within a step; they are different training algorithms"},
       {.name = "top",
        .value = &r.top,
        .argument = "N",
        .doc = "number of results to print as text; with --workers, also the number to simulate",
        .range = {1, 1 << 20}},
       {.name = "format",
        .value = &r.format,
        .argument = "WHAT",
        .doc = "text, json, or a CSV table",
        .choices = {"text", "json", "csv"},
        .otherwise = "by the suffix of -o, else text"}});
}

namespace {

// Returns the costs as given. Unless the file is a CSV of blocks, --micro-batch-size only states
// the number of samples that the costs are for.
Costs costs_as_given(PlanOptions o) {
  if (o.costs.table.blocks_per_stage == 0 && !has_profile(o.costs))
    o.costs.table.micro_batch_size = 0;
  return costs_of(o);
}

// Returns the costs of a micro-batch of batch / M samples.
Costs costs_of_micros(const ChooseOptions& r, int micro_batches) {
  const auto batch = static_cast<int>(r.batch_size);
  if (batch == 0) return costs_as_given(r.plan);
  require(batch % micro_batches == 0,
          "a batch of {} samples can't be split into {} equal micro-batches", batch, micro_batches);
  const int samples = batch / micro_batches;
  PlanOptions o = r.plan;
  if (o.costs.table.blocks_per_stage > 0 || has_profile(o.costs)) {
    o.costs.table.micro_batch_size = samples;
    return costs_of(o);
  }
  Costs costs = costs_as_given(o);
  scale_samples(costs, static_cast<double>(samples) / samples_or_one(o.costs));
  return costs;
}

// Returns the costs for one grid. A search varies D and the micro-batch size, so costs that are the
// same for every D would not rank anything. Costs are therefore those of the whole model, and each
// stage gets its share: times given by options are divided by D, and costs in a file are
// redistributed. Both are proportional to the samples of a micro-batch. The all-reduce sums one
// stage's gradient, so its time is a share of the model's, too.
Costs costs_of_grid(const ChooseOptions& r, int stages, int samples) {
  PlanOptions o = r.plan;
  const double whole_allreduce = o.costs.allreduce;
  Costs costs;
  if (r.blocks > 0) {
    require(r.blocks % stages == 0, "{} blocks can't be split into {} equal stages", r.blocks,
            stages);
    o.costs.table = {.micro_batch_size = samples, .blocks_per_stage = r.blocks / stages};
    o.costs.bytes *= samples;
    costs = costs_of(o);
  } else {
    const bool profile = has_profile(o.costs);
    if (profile) o.costs.table.micro_batch_size = samples;
    costs = costs_as_given(o);
    if (!profile) scale_samples(costs, static_cast<double>(samples) / samples_or_one(o.costs));
    costs.allreduce *= static_cast<double>(costs.stages.size()) / stages;
    costs.per_worker = false;
    costs = recut(costs, stages);
  }
  if (o.has("allreduce")) costs.allreduce = whole_allreduce / stages;
  return costs;
}

void check_costs_of_search(const ChooseOptions& r) {
  const std::string& file = r.plan.costs.costs;
  const bool is_table = !file.empty() && is_block_table(read_text(file));
  require(r.blocks == 0 || is_table,
          "--blocks {} counts the blocks of a CSV; give --costs FILE.csv, or remove --blocks",
          r.blocks);
  require(!is_table || r.blocks > 0,
          "--costs {}: a CSV has the costs of one block; give --blocks L, the number of blocks of "
          "the model",
          file);
}

void check_search(const ChooseOptions& r) {
  for (const char* name : {"stages", "pipelines", "staleness"})
    require(!r.plan.has(name),
            "--{} can't be combined with --workers, which searches for the grid; give one of them",
            name);
  require(r.rank.micro_batches.empty() && r.batch_size == 0,
          "--workers takes --global-batch, not --micro-batches or --batch-size");
  require(r.global_batch > 0, "--workers needs --global-batch S");
  require(!r.rank.asynchronous,
          "--workers searches only methods with a flush after each step; remove --asynchronous");
  require(r.plan.costs.table.blocks_per_stage == 0,
          "--workers: each stage has --blocks / D blocks; remove --blocks-per-stage");
  require(r.plan.sizes.memory_limit == 0,
          "--workers: --memory-limit must be in bytes, for example 16GiB");
  check_costs_of_search(r);
}

// Names the costs that were not given, so that the ranking isn't trusted more than it should be.
std::vector<std::string> notes_of(const ChooseOptions& r) {
  const PlanOptions& o = r.plan;
  std::vector<std::string> notes;
  if (o.costs.costs.empty()) {
    const Costs whole = costs_of_grid(r, 1, 1);
    const StageCost& c = whole.stages[0];
    notes.push_back(
        fmt::format("costs are for the whole model and one sample: forward {:g}, backward {:g}; "
                    "each stage takes 1/D",
                    c.forward, c.input_grad + c.weight_grad));
    if (!o.has("latency") && !o.has("bytes") && !o.has("allreduce"))
      notes.push_back(
          "messages and all-reduces take no time; to include them, give --latency, --bytes, "
          "--bandwidth and --allreduce, or --costs FILE");
  } else if (r.blocks == 0) {
    const Costs costs = costs_as_given(o);
    const bool free = costs.allreduce == 0 && costs.pairs.empty() && costs.link.latency == 0 &&
                      costs.link.bandwidth == 0 &&
                      std::all_of(costs.stages.begin(), costs.stages.end(),
                                  [](const StageCost& c) { return c.reduce_grad == 0; });
    if (free)
      notes.push_back(
          "messages and all-reduces take no time in these costs, which favours many pipelines; add "
          "\"link\" and \"reduce_grad\"");
  }
  const bool uneven = o.has("speed") || o.has("slow") || o.has("hetero") || o.has("jitter");
  if (uneven)
    notes.push_back("the closed forms assume equally fast workers; the simulated times don't");
  return notes;
}

}  // namespace

Search search_of(ChooseOptions& r) {
  check_search(r);
  check_plan_options(r.plan);
  SearchOptions search;
  search.workers = r.workers;
  search.global_batch = r.global_batch;
  search.methods = r.rank.methods;
  search.limit_bytes = r.plan.sizes.memory_bytes;
  search.simulated = r.top;
  search.sync = r.plan.sync;
  search.run = r.plan.run;
  search.progress = r.rank.progress;
  // An error in a file is reported once, not for each grid.
  if (r.blocks == 0 && !has_profile(r.plan.costs))
    check_bytes_known(r.plan, costs_of_grid(r, 1, 1));
  Search found = search_configurations(search, [&](int stages, int samples) {
    Costs costs = costs_of_grid(r, stages, samples);
    check_bytes_known(r.plan, costs);
    return costs;
  });
  found.notes = notes_of(r);
  return found;
}

std::string choice_of(ChooseOptions& r) {
  const auto top = static_cast<std::size_t>(r.top);
  if (r.workers > 0) {
    const Search search = search_of(r);
    return r.format == "json"  ? to_json(search, r.global_batch)
           : r.format == "csv" ? to_csv(search)
                               : to_text(search, r.global_batch, top);
  }
  require(r.global_batch == 0 && r.blocks == 0, "--global-batch and --blocks need --workers P");
  const Ranking ranking = ranking_of(r);
  return r.format == "json"  ? to_json(ranking)
         : r.format == "csv" ? to_csv(ranking)
                             : to_text(ranking, top);
}

Ranking ranking_of(ChooseOptions& r) {
  require(r.plan.has("stages"), "needs --stages P, or --workers P with --global-batch S");
  check_plan_options(r.plan);
  RankOptions& rank = r.rank;
  rank.stages = r.plan.sizes.stages;
  rank.batch = static_cast<double>(r.batch_size);
  rank.pipelines = r.plan.pipelines;
  rank.staleness = r.plan.staleness;
  if (rank.micro_batches.empty())
    rank.micro_batches = {rank.stages, 2 * rank.stages, 4 * rank.stages};
  for (const std::string& name : rank.methods) {
    if (!is_plan_function(name)) continue;
    rank.own[name] = [plan = r.plan, name](int micro_batches) {
      PlanOptions o = plan;
      o.source = name;
      o.sizes.micro_batches = micro_batches;
      o.given.insert("micro_batches");
      return plan_of(o);
    };
  }
  rank.limit_micros = r.plan.sizes.memory_limit;
  rank.limit_bytes = r.plan.sizes.memory_bytes;
  rank.sync = r.plan.sync;
  rank.run = r.plan.run;
  // Without a batch, sizes don't matter, and a trace need not state its own.
  const int stated = rank.batch > 0 ? 0 : stated_samples(r.plan.costs);
  rank.samples = rank.batch > 0 ? 0 : std::max(1, stated);
  rank.samples_known = rank.batch > 0 || stated > 0;
  // An error in a file is reported once, not for each method.
  CostOptions& costs = r.plan.costs;
  require(costs.table.blocks_per_stage == 0 || costs.costs.empty() ||
              is_block_table(read_text(costs.costs)),
          "--blocks-per-stage needs a CSV of blocks, and {} is not one", costs.costs);
  if (costs.table.blocks_per_stage == 0) {
    // Methods have different numbers of stages, which may be cut from the blocks.
    Costs given = costs_as_given(r.plan);
    for (const BlockCost& b : given.blocks) given.stages.push_back(b.cost);
    check_bytes_known(r.plan, given);
  }
  if (costs.costs.empty() && rank.batch == 0) costs.table = {};
  return rank_methods(rank, [&](int micro_batches) { return costs_of_micros(r, micro_batches); });
}

}  // namespace hetu
