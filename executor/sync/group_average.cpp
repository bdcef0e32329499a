// PARTIAL_REDUCE: the loop's calls, passed on to the averager.
#include "executor/sync/group_average.h"

#include <utility>

namespace hetu {

void GroupAverage::begin_run(std::int64_t step, std::int64_t updates) {
  averager_.begin_run(step, updates, stages_.newest_weights(stage_));
}

void GroupAverage::begin(const Row& /*row*/, int /*step*/, Note note) { note_ = std::move(note); }

void GroupAverage::run_instruction(const Action& action, int step, std::int64_t now_ns) {
  begun_.push_back({action.instr, step, now_ns});
  if (averager_.overlaps()) return averager_.begin();
  const std::int64_t done_ns = averager_.average_now(stages_.newest_weights(action.instr.stage));
  stages_.synchronised(action.instr, done_ns);
}

void GroupAverage::wait(int stage) {
  std::erase_if(begun_, [&](const Begun& b) {
    if (stage != kAllStages && b.instr.stage != stage) return false;
    note_(b.instr, b.step, b.start_ns, stages_.synchronised(b.instr, averager_.end()));
    return true;
  });
}

// A passive partner's weights may be read at any time except while they change.
void GroupAverage::before_update(int stage) {
  change_ = averager_.change();
  averager_.bring_into(stages_.newest_weights(stage));
}

void GroupAverage::end_of_run() {
  wait(kAllStages);
  averager_.end_run();
  averager_.consensus(stages_.persistent(stage_, averager_.members().may_lose()));
}

}  // namespace hetu
