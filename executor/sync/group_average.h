// PARTIAL_REDUCE: averages weights with other pipelines' copies of the stage, in groups chosen by
// the coordinator.
#pragma once
#include <cstdint>
#include <mutex>
#include <vector>

#include "executor/stage/stages.h"
#include "executor/sync/averager.h"
#include "executor/sync/weight_sync.h"

namespace hetu {

/// Runs a stage's PARTIAL_REDUCE instructions through an Averager.
class GroupAverage final : public WeightSync {
 public:
  /// Both must outlive the object. `averager` belongs to the worker's only stage, whose placement
  /// id is `placement`.
  GroupAverage(Stages& stages, int placement, Averager& averager)
      : stages_(stages), stage_(placement), averager_(averager) {}

  bool carries_out(Kind kind) const override { return kind == Kind::PartialReduce; }
  void begin_run(std::int64_t step, std::int64_t updates) override;
  void begin(const Row& row, int step, Note note) override;
  void run_instruction(const Action& action, int step, std::int64_t now_ns) override;
  void wait(int stage) override;
  void before_update(int stage) override;
  void after_update(int /*stage*/) override { change_.unlock(); }
  /// All pipelines have stopped: gives all of them the mean of their states.
  void end_of_run() override;

 private:
  struct Begun {  // begun and not yet awaited
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
