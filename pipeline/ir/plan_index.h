// A schedule unrolled into one flat array of instructions, with constant-time lookup of where a
// result is made. What verifier and simulator walk over; no maps, so that millions of instructions
// are fine.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/ir/producers.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Rows, positions and results of a plan. A position is an index into all rows laid end to end.
class PlanIndex {
 public:
  /// Throws Plan: an instruction of an unknown stage or micro-batch, on the wrong worker, or
  /// doubled; a message between stages that need none; see also StageGraph. The schedule must
  /// outlive it.
  explicit PlanIndex(const Schedule& schedule);

  const Schedule& schedule() const { return schedule_; }
  const StageGraph& graph() const { return graph_; }
  bool lowered() const { return lowered_; }
  int workers() const { return static_cast<int>(row_begin_.size()) - 1; }
  int size() const { return static_cast<int>(instrs_.size()); }
  int row_begin(int worker) const { return row_begin_[worker]; }
  int row_end(int worker) const { return row_begin_[worker + 1]; }
  const Instr& at(int position) const { return instrs_[position]; }
  int worker_of(int position) const {
    const int stage = instrs_[position].stage;
    return stage >= 0 ? graph_.worker(stage) : row_of(position);
  }

  /// Index of a position in its worker's row, counted from 0.
  int step_of(int position) const { return position - row_begin_[worker_of(position)]; }

  /// Where the result of this producer is made (InputGrad: its I or B); -1 if nowhere.
  int find(const Instr& producer) const;

  /// Ids that a forward (and with half-micros a backward) may have: 0…n-1.
  int forward_micros() const { return total_; }
  int backward_micros() const { return schedule_.half_micros ? 2 * total_ : total_; }

  /// Where the rows stand that no result index covers: updates and reductions, in order of
  /// position.
  const std::vector<int>& step_level() const { return step_level_; }

  /// "worker 1 at step 3: 1B0", for messages.
  std::string describe(int position) const;

 private:
  int row_of(int position) const;
  void check_pair(int position, int end) const;
  void check(int position) const;
  void enter(int position);
  void enter_at(std::int64_t cell, int position);
  std::int64_t cell(int slot, int stage, int micro) const;
  std::int64_t message_cell(const Instr& instr) const;

  const Schedule& schedule_;
  bool lowered_;
  StageGraph graph_;
  int total_ = 0;
  int micros_ = 0;  // ids per stage in the tables
  int slots_ = 0;   // results per stage and micro-batch in the table
  std::vector<Instr> instrs_;
  std::vector<int> row_begin_;
  std::vector<std::int32_t> where_;
  std::vector<int> step_level_;
};

}  // namespace hetu
