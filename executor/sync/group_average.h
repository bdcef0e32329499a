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
  /// Both must outlive it. The averager is that of the worker's one stage, whose placement this is.
  GroupAverage(Stages& stages, int placement, Averager& averager)
      : stages_(stages), stage_(placement), averager_(averager) {}

  bool carries_out(Kind kind) const override { return kind == Kind::PartialReduce; }
  void begin_run(std::int64_t step, std::int64_t updates) override;
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
  const int stage_;
  Averager& averager_;
  Note note_;
  std::vector<Begun> begun_;
  std::unique_lock<std::mutex> change_;
};

}  // namespace hetu
