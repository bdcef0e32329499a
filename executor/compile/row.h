// A worker's row of a lowered plan, in which each instruction is bound to the workers and tags of a
// job. The loop runs it.
#pragma once
#include <string>
#include <vector>

#include "pipeline/ir/schedule.h"

namespace hetu {

/// An instruction of a row with its peers. Made by bind_row().
struct Action {
  Instr instr;
  int peer = -1;       ///< SEND_*, RECV_*: the global worker at the other end
  int tag_stage = -1;  ///< number for the stage that all participants of the message or sum use
  int tag_part = 0;
  /// REDUCE_GRAD and exchanges of factors: global workers that take part, in the order of the sum.
  std::vector<int> group;
  bool sums_follow = false;  ///< compute: the sums of its stage follow directly
};

/// A worker's program in which every action is bound: prologue, body and drain as in Program. The
/// drain's micro-batch ids are those after `repeat` repetitions.
struct Row {
  std::vector<Action> prologue;
  std::vector<Action> body;
  std::vector<Action> drain;
  int repeat = 0;
  int shift = 0;             ///< added to micro-batch ids from one repetition to the next
  int micros_per_step = 0;   ///< 0: every id belongs to the step that the run starts with
  int updates_per_step = 1;  ///< updates of each stage per step
  /// True for RunPolicy::ForwardBeforeLateGradient; the whole row is then in `drain`.
  bool forwards_first = false;
};

/// Returns the row of one worker of a lowered plan, with the peer of each message and the group of
/// each all-reduce. `pipelines` pipelines run the same plan side by side, and worker w of pipeline
/// d is global worker d * plan.stages + w. Throws InvalidArgument if there is no such worker.
/// Throws Plan if a message has no edge, or if the body's shift doesn't fit the cycle of the
/// worker's peers.
Row bind_row(const Schedule& lowered, int global_worker, int pipelines);

/// Returns a description such as "0SEND_F7 (stage 0, micro-batch 7, step 214)".
std::string describe(const Instr& instr, int step);

}  // namespace hetu
