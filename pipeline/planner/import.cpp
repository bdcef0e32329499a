#include "pipeline/planner/import.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/nearest.h"
#include "base/text_file.h"
#include "base/words.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/lower/lower.h"
#include "pipeline/planner/megatron_layout.h"

namespace hetu {
namespace {

constexpr std::int64_t kMostFileBytes = 1 << 24;
constexpr int kMost = 1 << 20;

// Splits text into words as a shell does: quotes keep a word together, a backslash takes the next
// character (none at the end of a line), and # begins a comment.
std::vector<std::string> shell_words(const std::string& text) {
  std::vector<std::string> words;
  bool open = false;  // the last word isn't complete
  const auto add = [&](const std::string& part) {
    if (!open) words.emplace_back();
    open = true;
    words.back() += part;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\'' || c == '"') {
      const std::size_t end = std::min(text.find(c, i + 1), text.size());
      add(text.substr(i + 1, end - i - 1));
      i = end;
    } else if (c == '\\' && i + 1 < text.size()) {
      if (text[++i] != '\n') add(std::string(1, text[i]));
    } else if (c == '#' && !open) {
      i = std::min(text.find('\n', i), text.size());
    } else if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      open = false;
    } else {
      add(std::string(1, c));
    }
  }
  return words;
}

// The arguments of a plan: values by flag, and the first word if it is not a flag.
class Words {
 public:
  /// `known` are the flags with a value, `switches` those without.
  Words(std::string system, std::set<std::string> known, std::set<std::string> switches)
      : system_(std::move(system)), known_(std::move(known)), switches_(std::move(switches)) {}

  // Adds words of the user, who is told about unknown ones, or of a script.
  void add(const std::vector<std::string>& words, bool of_script) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::size_t equals = words[i].find('=');
      const std::string flag = words[i].substr(0, equals);
      if (switches_.count(flag) > 0) {
        values_[flag] = "";
      } else if (known_.count(flag) > 0) {
        const bool here = equals != std::string::npos;
        require(here || i + 1 < words.size(), "{}: {} needs a value", name(), flag);
        values_[flag] = here ? words[i].substr(equals + 1) : words[++i];
      } else if (!of_script) {
        std::vector<std::string> names(known_.begin(), known_.end());
        names.insert(names.end(), switches_.begin(), switches_.end());
        fail(Code::InvalidArgument, "{}: unknown argument '{}'; known arguments: {}", name(),
             shortened(words[i]), fmt::join(names, ", "));
      }
    }
  }

  bool has(const std::string& flag) const { return values_.count(flag) > 0; }
  const std::string& text(const std::string& flag) const { return values_.at(flag); }

  int number(const std::string& flag, int otherwise) const {
    if (!has(flag)) return otherwise;
    try {
      return static_cast<int>(to_integer(text(flag), 1, kMost));
    } catch (const Error& e) {
      fail(Code::InvalidArgument, "{}: {}: {}", name(), flag, e.what());
    }
  }

  std::vector<int> numbers(const std::string& flag) const {
    std::vector<int> list;
    try {
      for (const std::string& part : split(text(flag), ','))
        list.push_back(static_cast<int>(to_integer(part, 0, kMost)));
    } catch (const Error& e) {
      fail(Code::InvalidArgument, "{}: {}: {}", name(), flag, e.what());
    }
    return list;
  }

  std::string name() const { return "--compare-with " + system_; }

 private:
  std::string system_;
  std::set<std::string> known_, switches_;
  std::map<std::string, std::string> values_;
};

// Sets the number of pipelines, and the worker at each place.
void place(GivenPlan& plan, const Words& words, const PlanRequest& request, int stages) {
  const int workers = request.machines.workers();
  require(words.has("--pipelines") || workers % stages == 0,
          "{}: {} workers can't be divided into pipelines of {}; add --pipelines D", words.name(),
          workers, stages);
  const int pipelines = words.number("--pipelines", workers / stages);
  require(static_cast<std::int64_t>(pipelines) * stages <= workers,
          "{}: {} pipelines of {} workers, but there are {} workers", words.name(), pipelines,
          stages, workers);
  const std::size_t ranks = static_cast<std::size_t>(pipelines) * stages;
  std::vector<int> worker_of(ranks);
  std::iota(worker_of.begin(), worker_of.end(), 0);
  if (words.has("--ranks")) worker_of = words.numbers("--ranks");
  const std::set<int> different(worker_of.begin(), worker_of.end());
  require(worker_of.size() == ranks && different.size() == ranks && *different.rbegin() < workers,
          "{}: --ranks: expected {} different workers from 0 to {}, got '{}'", words.name(), ranks,
          workers - 1, words.has("--ranks") ? shortened(words.text("--ranks")) : "");
  plan.configuration.pipelines = pipelines;
  plan.assignment.resize(ranks);
  for (int d = 0; d < pipelines; ++d)
    for (int s = 0; s < stages; ++s) plan.assignment[d * stages + s] = worker_of[s * pipelines + d];
}

// Returns the micro-batch size of arguments that don't have one, if there is no choice.
int only_size(const Words& words, const PlanRequest& request) {
  require(request.micro_batch_sizes.size() == 1, "{}: add --micro-batch-size B", words.name());
  return request.micro_batch_sizes[0];
}

// Returns the micro-batches of a pipeline.
int micro_batches_of(const Words& words, const PlanRequest& request, int size, int pipelines) {
  const std::int64_t samples = static_cast<std::int64_t>(size) * pipelines;
  require(request.global_batch % samples == 0,
          "{}: {} pipelines with micro-batches of {} don't divide the global batch of {}",
          words.name(), pipelines, size, request.global_batch);
  return static_cast<int>(request.global_batch / samples);
}

// ---- Megatron-LM ----

constexpr const char* kLayout = "--pipeline-model-parallel-layout";
constexpr const char* kStages = "--pipeline-model-parallel-size";
constexpr const char* kChunks = "--num-virtual-stages-per-pipeline-rank";
constexpr const char* kGroup = "--microbatch-group-size-per-virtual-pipeline-stage";

Words megatron_words() {
  return {"megatron",
          {kLayout, kStages, kChunks, kGroup, "--micro-batch-size", "--global-batch-size",
           "--recompute-granularity", "--recompute-method", "--recompute-num-layers",
           "--tensor-model-parallel-size", "--context-parallel-size",
           "--num-layers-per-virtual-pipeline-stage", "--decoder-first-pipeline-num-layers",
           "--decoder-last-pipeline-num-layers", "--pipelines", "--ranks"},
          {"--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split",
           "--recompute-activations", "--use-tp-pp-dp-mapping"}};
}

// Refuses arguments whose effect is not predicted.
void refuse_others(const Words& words, const PlanRequest& request) {
  for (const char* flag : {"--tensor-model-parallel-size", "--context-parallel-size"})
    require(words.number(flag, 1) == 1,
            "{}: {} {}: plans here have pipelines and data parallelism only; remove it, and give "
            "costs and workers of whole groups",
            words.name(), flag, words.number(flag, 1));
  for (const char* flag :
       {"--num-layers-per-virtual-pipeline-stage", "--decoder-first-pipeline-num-layers",
        "--decoder-last-pipeline-num-layers", "--account-for-embedding-in-pipeline-split",
        "--account-for-loss-in-pipeline-split"})
    require(!words.has(flag), "{}: {} is not read; give the cut as {}", words.name(), flag,
            kLayout);
  require(!words.has("--use-tp-pp-dp-mapping"),
          "{}: --use-tp-pp-dp-mapping is not read; remove it, and give the workers in the order of "
          "stages with --ranks",
          words.name());
  const bool selective =
      words.has("--recompute-activations") ||
      (words.has("--recompute-granularity") && words.text("--recompute-granularity") != "full");
  require(!selective, "{}: of the kinds of recompute only --recompute-granularity full is known",
          words.name());
  const int batch = words.number("--global-batch-size", request.global_batch);
  require(batch == request.global_batch, "{}: --global-batch-size {}, but --global-batch is {}",
          words.name(), batch, request.global_batch);
}

// Returns Megatron-LM's own cut for arguments without a layout: equal numbers of layers.
MegatronLayout even_layout(const Words& words, const ModelBlocks& blocks) {
  require(words.has(kStages), "{}: expected a layout such as Et*3|t*4|t*3L, or {}", words.name(),
          kStages);
  const int stages = words.number(kStages, 1) * words.number(kChunks, 1);
  const int layers = count_of(blocks, 't');
  require(layers % stages == 0, "{}: {} layers can't be divided into {} equal stages; add {}",
          words.name(), layers, stages, kLayout);
  MegatronLayout layout(stages, std::string(layers / stages, 't'));
  layout.front().insert(0, "E");
  layout.back() += std::string(count_of(blocks, 'm'), 'm') + "L";
  return layout;
}

GivenPlan megatron_plan(const std::vector<std::string>& given, const PlanRequest& request,
                        const CostsOfSize& costs, const std::string& blocks_are) {
  Words words = megatron_words();
  const bool first_is_flag = given.empty() || given[0].rfind("--", 0) == 0;
  std::vector<std::string> rest(given.begin() + (first_is_flag ? 0 : 1), given.end());
  if (!first_is_flag) {
    if (std::filesystem::is_regular_file(given[0]))
      words.add(shell_words(read_text(given[0], kMostFileBytes)), true);
    else
      words.add({kLayout, given[0]}, false);
  }
  words.add(rest, false);
  refuse_others(words, request);
  GivenPlan plan;
  plan.system = "megatron";
  PlanConfiguration& c = plan.configuration;
  c.micro_batch_size = words.has("--micro-batch-size") ? words.number("--micro-batch-size", 1)
                                                       : only_size(words, request);
  const auto blocks_of_costs = static_cast<int>(costs(c.micro_batch_size).blocks.size());
  require(!blocks_are.empty(),
          "{} needs --blocks-are, such as embedding,layers,head, which states what the {} blocks "
          "of the costs are",
          words.name(), blocks_of_costs);
  const ModelBlocks blocks = parse_model_blocks(blocks_are, blocks_of_costs, "--blocks-are");
  const MegatronLayout layout =
      words.has(kLayout) ? parse_megatron_layout(words.text(kLayout)) : even_layout(words, blocks);
  const int all = static_cast<int>(layout.size());
  const int chunks = words.has(kLayout) ? words.number(kChunks, 1) : 1;
  const int stages = words.number(kStages, words.has(kChunks) ? all / chunks : all);
  require(all % stages == 0 && (!words.has(kChunks) || stages * words.number(kChunks, 1) == all),
          "{}: a layout of {} stages doesn't fit {} {}", words.name(), all, kStages, stages);
  plan.first_block = first_blocks_of(layout, blocks);
  place(plan, words, request, stages);
  c.sizes.stages = stages;
  c.sizes.chunks = all / stages;
  c.method = c.sizes.chunks > 1 ? "interleaved-1f1b" : "1f1b";
  c.sizes.micro_batches = micro_batches_of(words, request, c.micro_batch_size, c.pipelines);
  c.sizes.with_recompute = words.has("--recompute-granularity");
  const int group = words.number(kGroup, stages),
            own = c.sizes.micro_batches / std::max(1, c.sizes.micro_batches / stages);
  require(c.sizes.chunks == 1 || group == own,
          "{}: interleaved stages run {} of {} micro-batches at a time ({}), but Hetu knows groups "
          "of {} only",
          words.name(), group, c.sizes.micro_batches, kGroup, own);
  return plan;
}

// ---- torch.distributed.pipelining ----

GivenPlan torch_plan(const std::vector<std::string>& given, const PlanRequest& request,
                     const CostsOfSize& costs) {
  Words words("torch", {"--partition", "--pipelines", "--ranks"}, {"--recompute"});
  require(!given.empty() && given[0].rfind("--", 0) != 0,
          "{}: expected a FILE.csv, then --partition with the blocks of each stage", words.name());
  words.add({given.begin() + 1, given.end()}, false);
  GivenPlan plan;
  plan.system = "torch";
  plan.rows = without_lowering(read_plan(given[0]));
  const Schedule& rows = *plan.rows;
  PlanConfiguration& c = plan.configuration;
  c.method = std::filesystem::path(given[0]).filename().string();
  c.sizes.stages = static_cast<int>(rows.workers.size());
  c.sizes.chunks = rows.chunks;
  c.sizes.micro_batches = rows.micro_batches;
  c.sizes.with_recompute = words.has("--recompute");
  place(plan, words, request, c.sizes.stages);
  const std::int64_t shares = static_cast<std::int64_t>(c.pipelines) * rows.micro_batches;
  require(request.global_batch % shares == 0,
          "{}: {} pipelines of {} micro-batches can't share the global batch of {} equally",
          words.name(), c.pipelines, rows.micro_batches, request.global_batch);
  c.micro_batch_size = static_cast<int>(request.global_batch / shares);
  const int blocks = static_cast<int>(costs(c.micro_batch_size).blocks.size());
  const int stages = model_stages(rows);
  std::vector<int> counts(stages, 1);
  require(words.has("--partition") || blocks == stages,
          "{}: the file has {} stages and the costs {} blocks; add --partition with the number of "
          "blocks of each stage",
          words.name(), stages, blocks);
  if (words.has("--partition")) counts = words.numbers("--partition");
  require(static_cast<int>(counts.size()) == stages &&
              std::find(counts.begin(), counts.end(), 0) == counts.end() &&
              std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == blocks,
          "{}: --partition: expected {} numbers above 0 with the sum {}, got '{}'", words.name(),
          stages, blocks, words.has("--partition") ? shortened(words.text("--partition")) : "");
  for (int next = 0; const int count : counts) {
    plan.first_block.push_back(next);
    next += count;
  }
  return plan;
}

}  // namespace

GivenPlan parse_given_plan(const std::string& text, const PlanRequest& request,
                           const CostsOfSize& costs, const std::string& blocks_are) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string system = text.substr(0, colon);
  const std::vector<std::string> words =
      shell_words(colon == text.size() ? "" : text.substr(colon + 1));
  if (system == "megatron") return megatron_plan(words, request, costs, blocks_are);
  require(system == "torch",
          "--compare-with '{}': expected megatron:LAYOUT, megatron:FILE or torch:FILE.csv",
          shortened(text));
  return torch_plan(words, request, costs);
}

}  // namespace hetu
