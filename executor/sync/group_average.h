// Weights averaged with other pipelines' copies of the stage, in the groups that the coordinator
// names: PARTIAL_REDUCE.
#pragma once
#include <cstdint>
#include <mutex>
#include <vector>

#include "executor/stage/stages.h"
#include "executor/sync/averager.h"
#include "executor/sync/weight_sync.h"

namespace hetu {

class GroupAverage final : public WeightSync {
 public:
  /// Both must outlive it. The averager is that of the worker's one stage.
  GroupAverage(Stages& stages, Averager& averager) : stages_(stages), averager_(averager) {}

  /// A run of `stage` from `step` on, of about `updates` updates per pipeline, is to begin.
  void begin_run(int stage, std::int64_t step, std::int64_t updates);

  Kind kind() const override { return Kind::PartialReduce; }
  void begin(const Row& row, int step, Note note) override;
  void reach(const Action& action, int step, std::int64_t now_ns) override;
  void wait(int stage) override;
  void before_update(int stage) override;
  void after_update(int /*stage*/) override { change_.unlock(); }
  /// Every pipeline has stopped: from here on all have one state, the mean of theirs.
  void end_of_run() override;

 private:
  struct Begun {  // and not awaited
    Instr instr;
    int step;
    std::int64_t start_ns;
  };

  Stages& stages_;
  Averager& averager_;
  int stage_ = 0;
  Note note_;
  std::vector<Begun> begun_;
  std::unique_lock<std::mutex> change_;
};

}  // namespace hetu
