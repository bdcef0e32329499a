// A plan for DeepSpeed's pipeline engine: a configuration, and a module whose stages have the
// plan's blocks.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "pipeline/planner/export_parts.h"

namespace hetu {
namespace {

using json = nlohmann::ordered_json;

// DeepSpeed cuts layers evenly, by parameters, or by classes of layers, so that a given cut can't
// be requested. With one layer per stage, the even cut is the plan's.
constexpr const char* kModule = R"(from deepspeed.pipe import LayerSpec, PipelineModule
from torch import nn

BOUNDS = [{bounds}]  # the first block of each stage, and the number of blocks


class Stage(nn.Sequential):
    """The blocks of a stage. They are built on the stage's own workers."""

    def __init__(self, specs):
        super().__init__(*(spec.build() for spec in specs))


def pipeline_module(blocks, **options):
    """Returns the plan's PipelineModule. `blocks` has a LayerSpec for each block of the model, in order."""
    if len(blocks) != BOUNDS[-1]:
        raise ValueError(f"expected {{BOUNDS[-1]}} blocks, got {{len(blocks)}}")
    stages = [LayerSpec(Stage, blocks[first:end]) for first, end in zip(BOUNDS, BOUNDS[1:])]
    return PipelineModule(layers=stages, num_stages=len(stages), partition_method="uniform", **options)
)";

}  // namespace

std::vector<ExportedFile> export_to_deepspeed(const Exporting& e) {
  const PlanConfiguration& c = e.plan().configuration;
  require(
      c.method == "1f1b" || c.method == "dp",
      "--export deepspeed: DeepSpeed's only schedule is 1f1b, but the plan is {}; add --methods "
      "1f1b",
      c.method);
  json config = {{"train_batch_size", e.request.global_batch},
                 {"train_micro_batch_size_per_gpu", c.micro_batch_size},
                 {"gradient_accumulation_steps", c.sizes.micro_batches}};
  // A layer of the module is a whole stage, which is what Hetu recomputes.
  if (c.sizes.with_recompute) config["pipeline"] = {{"activation_checkpoint_interval", 1}};
  return {{"ds_config.json", config.dump(2) + "\n"},
          {"deepspeed_stages.py",
           heading(e, "DeepSpeed") +
               fmt::format(
                   fmt::runtime(kModule),
                   fmt::arg("bounds", fmt::format("{}", fmt::join(bounds_of(e.plan()), ", "))))}};
}

}  // namespace hetu
