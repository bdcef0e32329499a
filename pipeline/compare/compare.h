// Comparison of a run with its plan: the error of kinds of instructions, of workers and of
// messages, the first delay of the run, and the causes of the lost time. Printed by `hetu compare`.
#pragma once
#include <string>
#include <vector>

#include "base/trace.h"
#include "pipeline/compare/lateness.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Options of a comparison.
struct CompareOptions {
  int step = -1;         ///< step to analyse; -1: the one with the median step time
  bool all = false;      ///< include the first of several runs, which usually warms up
  double behind = 0.01;  ///< allowed delay of an instruction, as a share of the planned step time
};

/// A value as planned and as measured, in microseconds.
struct PredictedAndMeasured {
  double predicted = 0;
  double measured = 0;
};

/// Makespan and step time of one run.
struct ComparedRun {
  int first_step = 0;
  PredictedAndMeasured makespan, step;
};

/// Means per instruction of one kind.
struct ComparedKind {
  std::string kind;
  int count = 0;
  PredictedAndMeasured time;
};

/// Means per run of one worker.
struct ComparedWorker {
  int worker = 0;
  PredictedAndMeasured busy;  ///< compute instructions
  PredictedAndMeasured idle;  ///< makespan minus busy time
  PredictedAndMeasured end;   ///< end of its last instruction
};

/// Messages from one worker to another: means per run and per message. The transit time of a
/// message can be measured only if its receiver was already waiting when it was sent.
struct ComparedEdge {
  int from = 0;
  int to = 0;
  int messages = 0;              ///< over all runs
  int awaited = 0;               ///< messages whose transit time is measured
  PredictedAndMeasured transit;  ///< transit time of an awaited message
  PredictedAndMeasured waiting;  ///< time per run that the receiver waits for these messages
};

/// The result of a comparison.
struct Comparison {
  std::string method;
  int stages = 0;
  int micro_batches = 0;
  int pipelines = 1;
  std::vector<ComparedRun> runs;  ///< runs included in the means
  int warm_up = 0;                ///< number of earlier runs that are not included
  std::vector<ComparedKind> kinds;
  std::vector<ComparedWorker> workers;
  std::vector<ComparedEdge> edges;
  int unplanned = 0;  ///< measured events that are not in the plan
  int step = 0;       ///< first step of the analysed run
  double tolerance_us = 0;
  Late first_behind;  ///< without a worker: the run followed its plan
  Late last;          ///< the instruction that ended last in the run
};

/// Compares the measured events of a trace with the predicted ones. `plan` is the lowered plan in
/// the trace's metadata. Throws InvalidArgument if the trace lacks measured or predicted events or
/// the step, and Plan for a plan that verify refuses.
Comparison compare(const Trace& trace, const Schedule& plan, const CompareOptions& options = {});

/// Formats the comparison as lines of text, with times in ms.
std::string to_text(const Comparison& comparison);

/// Formats the comparison as one JSON object, with times in ms.
std::string to_json(const Comparison& comparison);

}  // namespace hetu
