#include <array>
#include <deque>

#include "base/error.h"
#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"
#include "pipeline/generate/row.h"
#include "pipeline/lower/run_order.h"

namespace hetu {
namespace {

// Kinds of tasks in the order in which a stage prefers them.
enum Task { kSecondHalf, kFirstHalf, kRecompute, kForward, kTasks };
using Queues = std::array<std::deque<int>, kTasks>;

struct Ready {
  int stage;
  Task task;
  int micro;
};

// Adds the tasks that become ready, and their stages, when a task ends.
void add_ready(Task task, int stage, int micro, int last, std::vector<Ready>& out) {
  if (task == kForward && stage < last) out.push_back({stage + 1, kForward, micro});
  if (task == kForward && stage == last) out.push_back({stage, kFirstHalf, micro});
  if (task == kFirstHalf) out.push_back({stage, kSecondHalf, micro});
  if (task == kFirstHalf && stage > 0) out.push_back({stage - 1, kRecompute, micro});
  if (task == kRecompute) out.push_back({stage, kFirstHalf, micro});
}

Instr instr_of(Task task, int stage, int micro) {
  if (task == kForward) return forward_of(stage, micro);
  if (task == kFirstHalf) return backward_of(stage, micro);
  return {.kind = Kind::Recompute, .stage = stage, .micro = micro};
}

}  // namespace

Schedule varuna(const Sizes& sizes) {
  Schedule s = one_stage_per_worker("varuna", sizes);
  std::vector<std::vector<Instr>> rows(sizes.stages);
  std::vector<Queues> queues(sizes.stages);
  for (int m = 0; m < sizes.micro_batches; ++m) queues[0][kForward].push_back(m);
  // All stages advance in ticks. A tick is one forward, one recompute or half a backward.
  for (int left = sizes.micro_batches; left > 0;) {
    std::vector<Ready> ready;
    for (int stage = 0; stage < sizes.stages; ++stage) {
      int task = 0;
      while (task < kTasks && queues[stage][task].empty()) ++task;
      if (task == kTasks) continue;
      const int micro = queues[stage][task].front();
      queues[stage][task].pop_front();
      if (task != kSecondHalf)
        rows[stage].push_back(instr_of(static_cast<Task>(task), stage, micro));
      if (task == kSecondHalf && stage == 0) --left;
      add_ready(static_cast<Task>(task), stage, micro, sizes.stages - 1, ready);
    }
    for (const Ready& r : ready) queues[r.stage][r.task].push_back(r.micro);
  }
  for (int w = 0; w < sizes.stages; ++w)
    s.workers[w] = folded(rows[w], w + 1 < sizes.stages ? 3 : 2, 1);
  if (!sizes.runtime_rule) return s;
  s.run_policy = RunPolicy::ForwardBeforeLateGradient;
  return run_order(s, sizes.costs != nullptr ? *sizes.costs : Costs{},
                   sizes.run != nullptr ? *sizes.run : Stragglers{});
}

}  // namespace hetu
