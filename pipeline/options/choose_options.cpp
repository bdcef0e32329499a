#include "pipeline/options/choose_options.h"

#include <algorithm>

#include "base/error.h"
#include "base/text_file.h"
#include "pipeline/cost/block_table.h"

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
        .doc = "numbers of micro-batches to try, as 8,16,32",
        .range = {1, 1 << 20},
        .otherwise = "P, 2P and 4P"},
       {.name = "chunks",
        .value = &r.rank.chunks,
        .argument = "LIST",
        .doc = "for methods that take chunks",
        .range = {1, 1 << 12},
        .otherwise = "their own number"},
       {.name = "methods",
        .value = &r.rank.methods,
        .argument = "LIST",
        .doc = "only these, as 1f1b,chimera,zb-v"},
       {.name = "batch_size",
        .value = &r.batch_size,
        .argument = "S",
        .doc =
            "samples per pipeline and step, so that a micro-batch has S/M: of a CSV that row, else "
            "costs in proportion to --micro-batch-size, which they are of",
        .range = {1, 1 << 28},
        .otherwise = "micro-batches as large as the costs have them"},
       {.name = "workers",
        .value = &r.workers,
        .argument = "P",
        .doc = "in place of --stages: searches W pipelines of D stages, W D = P, with gpipe, 1f1b "
               "and chimera, by their closed forms, and simulates the first --top. Costs are then "
               "of the whole model and of --micro-batch-size samples (1 if not given): a stage "
               "takes 1/D of --forward and the like and of --allreduce, or its share of --costs",
        .range = {1, 1 << 16},
        .otherwise = ""},
       {.name = "global_batch",
        .value = &r.global_batch,
        .argument = "S",
        .doc = "with --workers: samples per step, of all pipelines",
        .range = {1, 1 << 28},
        .otherwise = ""},
       {.name = "blocks",
        .value = &r.blocks,
        .argument = "L",
        .doc =
            "with --workers and a CSV of blocks: how many the model has, of which each stage has "
            "L / D; --bytes is then of one sample",
        .range = {1, 1 << 16},
        .otherwise = ""},
       {.name = "asynchronous",
        .value = &r.rank.asynchronous,
        .doc = "methods that update within a step too; they train by another rule"},
       {.name = "top",
        .value = &r.top,
        .argument = "N",
        .doc = "how many to print as text",
        .range = {1, 1 << 20}},
       {.name = "format",
        .value = &r.format,
        .argument = "WHAT",
        .doc = "text or json",
        .choices = {"text", "json"},
        .otherwise = "by the suffix of -o, else text"}});
}

namespace {

void scale(StageCost& c, double by) {
  for (double* part :
       {&c.forward, &c.input_grad, &c.weight_grad, &c.recompute, &c.bytes_out, &c.activation_bytes,
        &c.working_bytes, &c.curvature.factors, &c.curvature.saved_bytes})
    *part *= by;
}

// Returns the costs as given. Unless the file is a CSV of blocks, --micro-batch-size only states
// the number of samples that the costs are for.
Costs costs_as_given(PlanOptions o) {
  if (o.costs.table.blocks_per_stage == 0) o.costs.table.micro_batch_size = 0;
  return costs_of(o);
}

// Returns the costs of a micro-batch of batch / M samples.
Costs costs_of_micros(const ChooseOptions& r, int micro_batches) {
  const auto batch = static_cast<int>(r.batch_size);
  if (batch == 0) return costs_as_given(r.plan);
  require(batch % micro_batches == 0, "a batch of {} samples has no {} equal micro-batches", batch,
          micro_batches);
  const int samples = batch / micro_batches;
  PlanOptions o = r.plan;
  if (o.costs.table.blocks_per_stage > 0) {
    o.costs.table.micro_batch_size = samples;
    return costs_of(o);
  }
  const double by = static_cast<double>(samples) / std::max(1, o.costs.table.micro_batch_size);
  Costs costs = costs_as_given(o);
  for (StageCost& c : costs.stages) scale(c, by);
  for (BlockCost& b : costs.blocks) scale(b.cost, by);
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
    require(r.blocks % stages == 0, "{} blocks make no {} equal stages", r.blocks, stages);
    o.costs.table = {.micro_batch_size = samples, .blocks_per_stage = r.blocks / stages};
    o.costs.bytes *= samples;
    costs = costs_of(o);
  } else {
    const double by = static_cast<double>(samples) / std::max(1, o.costs.table.micro_batch_size);
    costs = costs_as_given(o);
    for (StageCost& c : costs.stages) scale(c, by);
    for (BlockCost& b : costs.blocks) scale(b.cost, by);
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
  require(
      r.blocks == 0 || is_table,
      "--blocks {}: it counts the blocks of a CSV; give --costs FILE.csv, or leave --blocks out",
      r.blocks);
  require(!is_table || r.blocks > 0,
          "--costs {}: a CSV has the costs of one block; give --blocks L, the number of blocks of "
          "the model",
          file);
}

void check_search(const ChooseOptions& r) {
  for (const char* name : {"stages", "pipelines", "staleness"})
    require(!r.plan.has(name), "--{} says how workers lie, and --workers searches that; give one",
            name);
  require(r.rank.micro_batches.empty() && r.batch_size == 0,
          "--workers goes with --global-batch, not with --micro-batches or --batch-size");
  require(r.global_batch > 0, "--workers needs --global-batch S");
  require(!r.rank.asynchronous, "--workers searches methods with a flush after each step");
  require(r.plan.costs.table.blocks_per_stage == 0,
          "--workers: a stage has --blocks / D blocks; --blocks-per-stage says otherwise");
  require(r.plan.sizes.memory_limit == 0, "--workers: --memory-limit is in bytes, as 16GiB");
  check_costs_of_search(r);
}

// Names the costs that were not given, so that the ranking isn't trusted more than it should be.
std::vector<std::string> notes_of(const ChooseOptions& r) {
  const PlanOptions& o = r.plan;
  std::vector<std::string> notes;
  if (o.costs.costs.empty()) {
    const Costs whole = costs_of_grid(r, 1, 1);
    const StageCost& c = whole.stages[0];
    notes.push_back(fmt::format(
        "costs of the whole model and one sample: forward {:g}, backward {:g}; a stage takes 1/D",
        c.forward, c.input_grad + c.weight_grad));
    if (!o.has("latency") && !o.has("bytes") && !o.has("allreduce"))
      notes.push_back(
          "messages and all-reduces take no time: give --latency, --bytes and "
          "--bandwidth, and --allreduce, or --costs FILE");
  }
  const bool uneven = o.has("speed") || o.has("slow") || o.has("hetero") || o.has("jitter");
  if (uneven)
    notes.push_back(
        "the closed forms count all workers as equally fast; the simulated times don't");
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
  // An error in a file is reported once, not for each grid.
  if (r.blocks == 0) check_bytes_known(r.plan, costs_of_grid(r, 1, 1));
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
    return r.format == "json" ? to_json(search, r.global_batch)
                              : to_text(search, r.global_batch, top);
  }
  require(r.global_batch == 0 && r.blocks == 0, "--global-batch and --blocks go with --workers P");
  const Ranking ranking = ranking_of(r);
  return r.format == "json" ? to_json(ranking) : to_text(ranking, top);
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
  rank.limit_micros = r.plan.sizes.memory_limit;
  rank.limit_bytes = r.plan.sizes.memory_bytes;
  rank.sync = r.plan.sync;
  rank.run = r.plan.run;
  rank.samples = rank.batch > 0 ? 0 : std::max(1, r.plan.costs.table.micro_batch_size);
  // An error in a file is reported once, not for each method.
  CostOptions& costs = r.plan.costs;
  require(costs.table.blocks_per_stage == 0 || costs.costs.empty() ||
              is_block_table(read_text(costs.costs)),
          "--blocks-per-stage: it chooses from a CSV of blocks, and {} is not one", costs.costs);
  if (costs.table.blocks_per_stage == 0) check_bytes_known(r.plan, costs_as_given(r.plan));
  if (costs.costs.empty() && rank.batch == 0) costs.table = {};
  return rank_methods(rank, [&](int micro_batches) { return costs_of_micros(r, micro_batches); });
}

}  // namespace hetu
