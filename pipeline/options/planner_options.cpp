#include "pipeline/options/planner_options.h"

namespace hetu {
namespace {

constexpr int kMostWorkers = 1 << 12;

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
       {.name = "chunks",
        .value = &o.request.chunks,
        .argument = "LIST",
        .doc = "try only these numbers of stages per worker, for methods that take chunks",
        .range = {1, 1 << 12},
        .otherwise = "2, 3 and 4"},
       {.name = "no_recompute",
        .value = &o.no_recompute,
        .doc = "leave out plans that recompute activations"},
       {.name = "halving",
        .value = &o.request.halving,
        .doc = "also try chimera with backwards of half micro-batches, which models with batch "
               "norm and hetu.torch can't run"},
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
       {.name = "each",
        .value = &o.each,
        .doc = "search the best plan of each method, too, instead of ruling methods out by bounds; "
               "each search has at most a quarter of the budget"},
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
        .doc = "text, json, html: a page with figures, or flags: lines for `--config FILE` of a "
               "training script",
        .choices = {"text", "json", "html", "flags"},
        .otherwise = "by the suffix of -o (.txt, .json, .html, .yml), else text"},
       {.name = "explain",
        .value = &o.explain,
        .doc = "also report where the step's time goes, the messages of each link, and what other "
               "machines would bring; each of up to five changes takes another search of at most a "
               "fifth of the budget"}},
      only(fields(o.plan), shared));
}

}  // namespace hetu
