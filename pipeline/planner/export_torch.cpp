// Plans for torch.distributed.pipelining and for torchtitan, which runs on it: the schedule as a
// CSV file or by the name of its class, and the blocks or modules of each stage.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/ir/torch_csv.h"
#include "pipeline/lower/lower.h"
#include "pipeline/plan/proved_plan.h"
#include "pipeline/planner/export_parts.h"

namespace hetu {
namespace {

using json = nlohmann::ordered_json;

// Returns the computations of the plan without recomputations: in PyTorch a stage's module
// recomputes by itself, in its backward.
Schedule computations_for(const Exporting& e, const char* system) {
  const std::string& method = e.plan().configuration.method;
  Sizes sizes = e.sizes();
  sizes.with_recompute = false;
  Schedule s = computations({.method = method, .sizes = sizes});
  const bool copies = std::any_of(s.placements.begin(), s.placements.end(),
                                  [](const Placement& p) { return p.replica > 0; });
  require(!copies && !s.half_micros && !holds(s, Kind::Recompute),
          "--export {}: PyTorch's runtime has one copy of each stage in a pipeline, whole "
          "micro-batches and no recompute instruction, which {} needs; add --methods with others, "
          "such as 1f1b,interleaved-1f1b,zb-h1,zb-v",
          system, method);
  return s;
}

// Placements that torchtitan knows: stage s on worker s mod P, or two stages per worker in a V.
enum class Placing { Loop, V, Other };

Placing placing_of(const Schedule& s) {
  const int workers = static_cast<int>(s.workers.size());
  bool loop = true, v = model_stages(s) == 2 * workers;
  for (const Placement& p : s.placements) {
    const int worker = p.workers.at(0), stage = p.model_stage;
    loop = loop && worker == stage % workers;
    v = v && worker == (stage < workers ? stage : 2 * workers - 1 - stage);
  }
  return loop ? Placing::Loop : v ? Placing::V : Placing::Other;
}

// Returns the class of torch.distributed.pipelining that makes the plan, as torchtitan names it;
// "" if there is none.
std::string class_of(const std::string& method) {
  static const std::map<std::string, std::string> kClasses = {
      {"gpipe", "GPipe"},
      {"1f1b", "1F1B"},
      {"interleaved-1f1b", "Interleaved1F1B"},
      {"looped-bfs", "LoopedBFS"},
      {"interleaved-zb", "InterleavedZeroBubble"},
      {"zb-v", "ZBVZeroBubble"},
      {"dualpipev", "DualPipeV"}};
  const auto known = kClasses.find(method);
  return known == kClasses.end() ? "" : known->second;
}

// Returns the modules of torchtitan's language models for the letters of a stage. `layer` counts
// the layers.
std::vector<std::string> modules_of(const std::string& letters, int& layer) {
  std::vector<std::string> names;
  for (const char letter : letters) {
    if (letter == 'E') names.emplace_back("tok_embeddings");
    if (letter == 't') names.push_back(fmt::format("layers.{}", layer++));
    if (letter == 'L') names.insert(names.end(), {"norm", "lm_head"});
  }
  return names;
}

ExportedFile module_file(const Exporting& e) {
  const ModelBlocks blocks = blocks_for(e, "torchtitan");
  require(count_of(blocks, 'm') == 0,
          "--export torchtitan: torchtitan's models have no layers of multi-token prediction; "
          "remove mtp from --blocks-are");
  std::string text =
      heading(e, "torchtitan") +
      "# In the model's configuration function:\n"
      "#     config.parallelism.module_fqns_per_model_part = MODULE_FQNS_PER_MODEL_PART\n"
      "MODULE_FQNS_PER_MODEL_PART = [\n";
  const std::vector<int> bounds = bounds_of(e.plan());
  int layer = 0;
  for (std::size_t s = 0; s + 1 < bounds.size(); ++s) {
    std::string row;
    for (int b = bounds[s]; b < bounds[s + 1]; ++b)
      for (const std::string& name : modules_of(blocks[b], layer))
        row += fmt::format("{}\"{}\"", row.empty() ? "" : ", ", name);
    text += fmt::format("    [{}],\n", row);
  }
  return {"torchtitan_stages.py", text + "]\n"};
}

// Returns the lines that choose the schedule, and adds its file if no class makes it.
std::string schedule_lines(const Exporting& e, std::vector<ExportedFile>& files) {
  const Schedule s = computations_for(e, "torchtitan");
  std::string name = class_of(e.plan().configuration.method);
  std::string lines;
  if (name.empty()) {
    const Placing placing = placing_of(s);
    require(placing != Placing::Other,
            "--export torchtitan: torchtitan puts stages on workers in turn, or two on each in a "
            "V; {} with {} chunks does neither; try --chunks 2, or other --methods",
            s.method, s.chunks);
    // torchtitan places the stages of a file as this class does.
    name = placing == Placing::Loop ? "PipelineScheduleMulti" : "ZBVZeroBubble";
    lines = "  --parallelism.pipeline_parallel_schedule_csv torchtitan.csv\n";
    files.push_back({"torchtitan.csv", to_csv(s)});
  }
  return fmt::format("  --parallelism.pipeline_parallel_schedule {}\n", name) + lines;
}

}  // namespace

std::vector<ExportedFile> export_to_torch(const Exporting& e) {
  const Schedule compute = computations_for(e, "torch");
  json stages = json::array();
  const std::vector<int> bounds = bounds_of(e.plan());
  std::vector<int> counts;
  for (std::size_t s = 0; s + 1 < bounds.size(); ++s) {
    counts.push_back(bounds[s + 1] - bounds[s]);
    stages.push_back({{"stage", s},
                      {"rank", compute.placements[s].workers.at(0)},
                      {"first_block", bounds[s]},
                      {"blocks", counts.back()}});
  }
  const PlanConfiguration& c = e.plan().configuration;
  const json table = {
      {"schedule", "torch.csv"},
      {"method", c.method},
      {"pipelines", c.pipelines},
      {"micro_batches", c.sizes.micro_batches},
      {"micro_batch_size", c.micro_batch_size},
      {"recompute", c.sizes.with_recompute},
      {"stages", stages},
      {"compare_with",
       fmt::format("torch:torch.csv --partition {}{}{}", listed(counts),
                   c.sizes.with_recompute ? " --recompute" : "", further_arguments(e))}};
  return {{"torch.csv", to_torch_csv(lower(compute))}, {"torch_stages.json", table.dump(2) + "\n"}};
}

std::vector<ExportedFile> export_to_torchtitan(const Exporting& e) {
  std::vector<ExportedFile> files = {{"torchtitan.sh", heading(e, "torchtitan")}, module_file(e)};
  const Sizes& s = e.sizes();
  std::string text = "# Set SEQ_LEN to the number of tokens of a sample.\nPIPELINE_ARGS=(\n";
  const auto line = [&](const char* flag, const auto& value) {
    text += fmt::format("  --{} {}\n", flag, value);
  };
  const int samples = e.plan().configuration.micro_batch_size;
  line("parallelism.pipeline_parallel_degree", e.stages());
  if (e.stages() > 1) {
    text += schedule_lines(e, files);
    line("parallelism.num_pp_microbatches", s.micro_batches);
  } else {
    require(s.chunks == 1 && !computations_for(e, "torchtitan").half_micros,
            "--export torchtitan: one worker of a pipeline has one stage in torchtitan, but {} "
            "has {}; add --methods 1f1b",
            e.plan().configuration.method, s.chunks);
    line("training.num_tokens_per_train_step",
         fmt::format("$(({} * ${{SEQ_LEN:?}}))", e.request.global_batch));
  }
  line("parallelism.data_parallel_replicate_degree", e.pipelines());
  line("parallelism.data_parallel_shard_degree", 1);
  line("training.num_tokens_per_microbatch_per_dp_rank",
       fmt::format("$(({} * ${{SEQ_LEN:?}}))", samples));
  text += fmt::format("  activation-checkpoint:{}\n)\n", s.with_recompute ? "full" : "none");
  files.front().text += text;
  return files;
}

}  // namespace hetu
