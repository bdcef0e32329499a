// A schedule unrolled into one flat array of instructions, with constant-time lookup of the
// instruction that makes a result. The verifier and the simulator iterate over it. It uses no maps,
// so that it can hold millions of instructions.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/ir/producers.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Rows, positions and results of a plan. A position is an index into all rows concatenated.
class PlanIndex {
 public:
  /// Unrolls the schedule, which must outlive the index. Throws Plan for an instruction of an
  /// unknown stage or micro-batch, on the wrong worker, or repeated. Also throws Plan for a pair
  /// that can't run as one, for a message between stages that need none, and as StageGraph does.
  explicit PlanIndex(const Schedule& schedule);

  const Schedule& schedule() const { return schedule_; }
  const StageGraph& graph() const { return graph_; }
  /// Returns true if the plan holds messages; see is_lowered().
  bool lowered() const { return lowered_; }
  int workers() const { return static_cast<int>(row_begin_.size()) - 1; }
  int size() const { return static_cast<int>(instrs_.size()); }
  /// Returns the first position of a worker's row; row_end() is the position after its last one.
  int row_begin(int worker) const { return row_begin_[worker]; }
  int row_end(int worker) const { return row_begin_[worker + 1]; }
  const Instr& at(int position) const { return instrs_[position]; }
  /// Returns the worker with the row that holds a position.
  int worker_of(int position) const {
    const int stage = instrs_[position].stage;
    return stage >= 0 ? graph_.worker(stage) : row_of(position);
  }

  /// Returns the cell of a position in its worker's row, counted from 1 as in a CSV file, where a
  /// pair that runs as one is one cell.
  int cell_of(int position) const;

  /// Returns the position that makes the result of this producer (InputGrad: its I or B), or -1 if
  /// no instruction makes it.
  int find(const Instr& producer) const;

  /// Returns the number n of ids that forwards (or backwards) have: 0…n-1. Half micro-batches
  /// double the number of backward ids.
  int forward_micros() const { return total_; }
  int backward_micros() const { return schedule_.half_micros ? 2 * total_ : total_; }

  /// Returns the positions of updates, reductions and other instructions without a result in the
  /// table, in ascending order. PARTIAL_REDUCE, PUSH, PULL and CURVATURE are not included.
  const std::vector<int>& step_level() const { return step_level_; }

  /// Returns the position's cell for messages: "cell 3", or "cell 5 with messages" in a lowered
  /// plan, whose rows contain sends and receives.
  std::string cell_text(int position) const;
  /// Returns a description for messages, such as "worker 1 at cell 3: 1B0".
  std::string describe(int position) const;

 private:
  int row_of(int position) const;
  void check_pair(int position, int end) const;
  void check(int position) const;
  void enter(int position);
  void enter_at(std::int64_t cell, int position);
  [[noreturn]] void fail_twice(int first, int second) const;
  std::int64_t cell(int slot, int stage, int micro) const;
  std::int64_t message_cell(const Instr& instr) const;

  const Schedule& schedule_;
  bool lowered_;
  StageGraph graph_;
  int total_ = 0;
  int micros_ = 0;  // backward ids per stage in the table
  int slots_ = 0;   // results per stage and micro-batch in the table
  std::vector<Instr> instrs_;
  std::vector<int> row_begin_;
  // Position of each result, or -1, by stage, micro-batch and result; see cell().
  std::vector<std::int32_t> where_;
  std::vector<int> step_level_;
};

}  // namespace hetu
