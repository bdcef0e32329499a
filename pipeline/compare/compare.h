// A run laid beside its plan, in figures: how far kinds of instructions, workers and messages were
// off, where the run first fell behind, and where the lost time went. What `hetu compare` prints.
#pragma once
#include <string>
#include <vector>

#include "base/trace.h"
#include "pipeline/compare/lateness.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

struct CompareOptions {
  int step = -1;         ///< to look into; -1: the one of median step time
  bool all = false;      ///< the first of several runs counts too: it warms up, as a rule
  double behind = 0.01;  ///< how late an instruction may be, as a share of the planned step time
};

/// The same figure as planned and as it was, microseconds.
struct Beside {
  double predicted = 0;
  double measured = 0;
};

struct ComparedRun {
  int first_step = 0;
  Beside makespan, step;
};

/// Means per instruction of one kind.
struct ComparedKind {
  std::string kind;
  int count = 0;
  Beside time;
};

/// Means per run of one worker.
struct ComparedWorker {
  int worker = 0;
  Beside busy;  ///< compute instructions
  Beside idle;  ///< of its makespan, the rest
  Beside end;   ///< of its last instruction
};

/// Messages from one worker to another, means per run and per message. The way of a message can be
/// measured where its receiver stood waiting as it left: from its send to its arrival.
struct ComparedEdge {
  int from = 0;
  int to = 0;
  int messages = 0;  ///< of all runs
  int awaited = 0;   ///< of them: those whose way is measured
  Beside way;        ///< of one awaited message
  Beside waiting;    ///< per run, of the receiver for these messages
};

struct Comparison {
  std::string method;
  int stages = 0;
  int micro_batches = 0;
  int pipelines = 1;
  std::vector<ComparedRun> runs;  ///< those that count
  int warm_up = 0;                ///< runs before them that do not
  std::vector<ComparedKind> kinds;
  std::vector<ComparedWorker> workers;
  std::vector<ComparedEdge> edges;
  int unplanned = 0;  ///< measured events that the plan does not have
  int step = 0;       ///< first step of the run looked into
  double tolerance_us = 0;
  Late first_behind;  ///< without a worker: the run kept to its plan
  Late last;          ///< the instruction that ended the run
};

/// Lays the measured events of a trace over the predicted ones. `plan` is the lowered plan in the
/// trace's metadata. Throws InvalidArgument: one of both is missing, or the step is not there;
/// Plan: a plan that verify refuses.
Comparison compare(const Trace& trace, const Schedule& plan, const CompareOptions& options = {});

/// Several lines, times in ms.
std::string to_text(const Comparison& comparison);

/// One JSON object, times in ms.
std::string to_json(const Comparison& comparison);

}  // namespace hetu
