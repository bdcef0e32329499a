// A worker's row of a lowered plan, each instruction with the workers and tags of a job: what the
// loop follows.
#pragma once
#include <string>
#include <vector>

#include "pipeline/ir/schedule.h"

namespace hetu {

/// An instruction of a row together with whom it concerns; made by bind_row.
struct Action {
  Instr instr;
  int peer = -1;       ///< SEND_*, RECV_*: the global worker at the other end
  int tag_stage = -1;  ///< a number for the stage that all parties of the message or sum share
  int tag_part = 0;
  std::vector<int> group;  ///< REDUCE_GRAD: global workers that take part, in the order of the sum
  bool sums_follow = false;  ///< a gradient: the sums of its stage stand directly after it
};

/// A worker's program with every action bound: prologue, body, drain as in Program; the drain's
/// micro-batch ids are those of `repeat` repetitions.
struct Row {
  std::vector<Action> prologue;
  std::vector<Action> body;
  std::vector<Action> drain;
  int repeat = 0;
  int shift = 0;             ///< of micro-batch ids from one repetition to the next
  int micros_per_step = 0;   ///< 0: every id belongs to the step that the run starts with
  int updates_per_step = 1;  ///< of a stage
  /// RunPolicy::ForwardBeforeLateGradient; such a row is all drain.
  bool forwards_first = false;
};

/// The row of one worker of a lowered plan, each message with its peer and each all-reduce with
/// its group. The same plan runs on `pipelines` pipelines side by side: worker w of pipeline d is
/// global worker d * plan.stages + w.
Row bind_row(const Schedule& lowered, int global_worker, int pipelines);

/// "0SEND_F7 (stage 0, micro-batch 7, step 214)".
std::string describe(const Instr& instr, int step);

}  // namespace hetu
