// Lengths of runs of an asynchronous plan, which go over many steps without a flush: how long the
// plan of a run must be, and how far the run looks ahead. Read by lowering, training and
// rehearsals.
#pragma once
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Returns true if a plan is asynchronous: its rows hold updates of the method's own. All other
/// plans are synchronous. Lowering adds one update per step to them and records this in
/// Lowering::flush, because the rows don't show it afterwards. Schedule::most_versions is not
/// considered.
bool is_asynchronous(const Schedule& plan);

/// Returns a synchronous, unlowered plan as a plan of `steps` steps with the flushes in its rows:
/// each stage has its UPDATE after the row's compute of a step. Towards other pipelines, which may
/// be at another step, the plan is asynchronous. Within the pipeline no steps overlap. Throws
/// InvalidArgument for a plan that is lowered, or that has updates, versions by waves or backward
/// ids of half micro-batches. Also throws if the plan doesn't have exactly one stage per worker.
Schedule with_flushes(const Schedule& synchronous, int steps);

/// Returns the number of steps by which the lengths of runs of a plan differ, so that each row's
/// body repeats a whole number of times. Returns 0 if a row has no body that repeats.
int run_grain(const Schedule& plan);

/// Returns a length, in steps, at which each row of such a plan, on as many workers as `plan`, has
/// a body. From this length on, with_steps() gives the rows that the method generates for any
/// length.
int least_steps(const Schedule& plan);

/// Returns a length, in steps, at which verify() meets every weight version and every copy that a
/// run of any length needs.
int proving_steps(const Schedule& plan);

/// Returns a number above the difference of the ids of any two micro-batches that are in progress
/// on a worker at the same time. `live_copies` is the number of micro-batches for which the worker
/// keeps results, in a run without a flush.
int micro_ids_in_work(const Schedule& plan, int live_copies);

/// Returns the number of steps by which worker 0 extends a run of unknown length at a time, a
/// multiple of run_grain(). Worker 0 announces the next extension when half of these steps are
/// left.
int granted_at_once(const Schedule& plan);

/// Returns the number of steps that a pipeline that averages weights may begin beyond the updates
/// that have been answered.
int steps_before_answer(const Schedule& plan);

}  // namespace hetu
