// Runs of an asynchronous plan: over many steps without a
// flush. How long the plans of such runs must be, and what a run looks ahead. Read by lowering,
// training and rehearsals.
#pragma once
#include "pipeline/ir/schedule.h"

namespace hetu {

/// True if a plan is asynchronous: its steps overlap and weights go by version. Other plans
/// are synchronous: lowering adds their one update per step, and notes it (Lowering::flush), as the
/// rows then no longer tell. How many versions a plan may keep says nothing of it.
bool is_asynchronous(const Schedule& plan);

/// A synchronous plan, without messages, as one of `steps` steps with their flushes in its rows:
/// each stage has its UPDATE when the row's compute of a step is done. So asynchronous to others,
/// who may be at another step; within, nothing overlaps. Throws InvalidArgument for a plan that has
/// updates, backward ids of half micro-batches, or more than one copy of a stage.
Schedule with_flushes(const Schedule& synchronous, int steps);

/// By how many steps runs of a plan differ in length, so that each row's body repeats whole times;
/// 0 if a row has no body that repeats.
int run_grain(const Schedule& plan);

/// A length at which each row of such a plan, on as many workers as `plan`, has its body. From
/// there on with_steps() gives the rows that its method generates for any length.
int least_steps(const Schedule& plan);

/// A length at which verify() sees every weight version and every copy that a run of any length
/// needs.
int proving_steps(const Schedule& plan);

/// More than the ids of any two micro-batches in work differ by on a worker that keeps
/// `live_copies` of them, in a run without a flush.
int micro_ids_in_work(const Schedule& plan, int live_copies);

/// Steps by which worker 0 lets a run of unknown length go on at a time; a multiple of run_grain().
/// It says so half of them before the end of what it has granted.
int granted_at_once(const Schedule& plan);

/// Steps that a pipeline which averages weights may begin beyond the updates that were answered.
int steps_before_answer(const Schedule& plan);

}  // namespace hetu
