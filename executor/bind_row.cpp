#include <algorithm>

#include "executor/interpreter.h"
#include "graph/base/error.h"
#include "pipeline/lower.h"
#include "pipeline/producers.h"
#include "pipeline/reduction.h"

namespace hetu {
namespace {

constexpr int kTiedStage = 0x3fff;  // beyond any model stage that fits a tag

}  // namespace

std::vector<Action> bind_row(const Schedule& lowered, int global_worker, int pipelines) {
  const int width = static_cast<int>(lowered.workers.size());
  require(pipelines >= 1 && global_worker >= 0 && global_worker < width * pipelines,
          "worker {} of a plan of {} workers x {} pipelines", global_worker, width, pipelines);
  const StageGraph graph(lowered, /*lowered=*/true);
  const Reductions reductions(lowered);
  const int first = global_worker / width * width;  // the pipeline's first worker
  std::vector<Action> row;
  for (const Instr& instr : unroll(lowered.workers[global_worker - first])) {
    Action action;
    action.instr = instr;
    if (is_send(instr.kind) || is_recv(instr.kind)) {
      const int far = graph.peer(instr);
      if (far < 0) fail(Code::Plan, "{}: no edge of the plan has this part", to_string(instr));
      action.peer = first + graph.worker(far);
      action.tag_stage = is_send(instr.kind) ? instr.stage : far;
      action.tag_part = instr.part;
    } else if (instr.kind == Kind::ReduceGrad) {
      const std::int64_t number = reductions.group(instr.stage, instr.part);
      const bool tied = number < 0;
      action.tag_stage = tied ? kTiedStage : lowered.placements[instr.stage].model_stage;
      action.tag_part = tied ? static_cast<int>(-1 - number) : instr.part;
      for (const int stage : reductions.members(instr.stage, instr.part)) {
        for (int d = 0; d < pipelines; ++d) action.group.push_back(d * width + graph.worker(stage));
      }
      std::sort(action.group.begin(), action.group.end());
      action.group.erase(std::unique(action.group.begin(), action.group.end()), action.group.end());
    }
    row.push_back(std::move(action));
  }
  return row;
}

}  // namespace hetu
