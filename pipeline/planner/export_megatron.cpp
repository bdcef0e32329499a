// The arguments of Megatron-LM's training scripts for a plan, as an array of bash.
#include <algorithm>

#include "base/error.h"
#include "pipeline/planner/export_parts.h"
#include "pipeline/planner/megatron_layout.h"

namespace hetu {
namespace {

// Throws if Megatron-LM has no such schedule.
void check_method(const Exporting& e) {
  const std::string& method = e.plan().configuration.method;
  // One stage without chunks runs each forward before its backward, whatever the name is.
  const bool alone = e.stages() == 1 && method == "dp";
  require(alone || method == "1f1b" || method == "interleaved-1f1b",
          "--export megatron: Megatron-LM has no {}; add --methods 1f1b,interleaved-1f1b", method);
  if (method == "1f1b" || alone) return;
  require(e.stages() > 1 && e.sizes().micro_batches >= e.stages(),
          "--export megatron: Megatron-LM interleaves at least 2 stages and as many micro-batches "
          "as stages, but the plan has {} and {}; add --methods 1f1b",
          e.stages(), e.sizes().micro_batches);
}

// Throws if Megatron-LM doesn't accept the stages of the layers of multi-token prediction.
void check_prediction_layers(const MegatronLayout& layout, int stages) {
  std::vector<std::size_t> found;
  for (std::size_t s = 0; s < layout.size(); ++s)
    if (layout[s].find('m') != std::string::npos) found.push_back(s);
  if (found.empty()) return;
  require(found.size() == 1,
          "--export megatron: Megatron-LM keeps all layers of multi-token prediction in one stage, "
          "but the plan has them in stages {} to {}; restrict --stages",
          found.front(), found.back());
  require(found[0] + stages >= layout.size(),
          "--export megatron: Megatron-LM keeps layers of multi-token prediction in the last chunk "
          "of a worker, but the plan has them in stage {} of {}; add --methods 1f1b",
          found[0], layout.size());
}

}  // namespace

std::vector<ExportedFile> export_to_megatron(const Exporting& e) {
  check_method(e);
  const ModelBlocks blocks = blocks_for(e, "megatron");
  const MegatronLayout layout = layout_of(blocks, e.plan().cut.first_block);
  check_prediction_layers(layout, e.stages());
  const Sizes& s = e.sizes();
  std::string text = heading(e, "Megatron-LM");
  text += fmt::format("# The model has --num-layers {}.\n", count_of(blocks, 't'));
  if (const int m = count_of(blocks, 'm'); m > 0)
    text += fmt::format("# The model has --mtp-num-layers {}.\n", m);
  text += fmt::format("# Check: --compare-with 'megatron:megatron.sh{}' --blocks-are {}\n",
                      further_arguments(e), e.blocks_are);
  text += "PIPELINE_ARGS=(\n";
  const auto line = [&](const char* flag, const auto& value) {
    text += fmt::format("  --{} {}\n", flag, value);
  };
  line("pipeline-model-parallel-size", e.stages());
  if (layout.size() > 1)
    line("pipeline-model-parallel-layout", fmt::format("'{}'", to_text(layout)));
  if (s.chunks > 1) {
    // Hetu's schedule runs the micro-batches in M div P groups.
    const int group = s.micro_batches / std::max(1, s.micro_batches / e.stages());
    if (group != e.stages()) line("microbatch-group-size-per-virtual-pipeline-stage", group);
  }
  line("micro-batch-size", e.plan().configuration.micro_batch_size);
  line("global-batch-size", e.request.global_batch);
  if (s.with_recompute)
    text +=
        "  --recompute-granularity full\n  --recompute-method uniform\n"
        "  --recompute-num-layers 1\n";
  text += ")\n";
  return {{"megatron.sh", text}};
}

}  // namespace hetu
