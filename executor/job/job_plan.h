// The work of one worker of a training job, as a value that is made without links before anything
// runs. Job runs it. check_job makes it for every worker and keeps none.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datasets/batch.h"
#include "executor/compile/plan.h"
#include "executor/compile/row_needs.h"
#include "executor/compile/served_tables.h"
#include "executor/compile/sum_layout.h"
#include "executor/job/curvature_plan.h"
#include "executor/job/job_options.h"
#include "executor/stage/optimizer.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// A field that a worker reads from the batch, with the shape of one sample.
struct FeedSpec {
  std::string name;
  DType dtype = DType::Float32;
  Shape sample_shape;
};

/// A worker's number among the workers that have links to each other, and their count.
struct WorkerIndex {
  int worker = 0;
  int workers = 1;
};

/// A stage that a worker holds.
struct StageHere {
  int stage = 0;      ///< model stage
  int placement = 0;  ///< placement id in the schedule
  bool is_first_copy = true;
  std::int64_t saved = 0;  ///< bytes of saved activations per micro-batch
};

/// The plan of one worker.
struct JobPlan {
  Graph graph;  ///< after passes, with windows in place of tables on servers
  std::vector<ServedTable> tables;
  bool reads_tables = false;  ///< true if this worker reads tables on servers
  OptimizerConfig optimizer;
  JobOptions options;  ///< with first_block filled in
  int worker = 0;      ///< number among the linked workers
  int linked = 1;      ///< pipelines whose workers have links to each other
  int pipeline = 0;
  int row = 0;                ///< number of the worker within its pipeline
  bool asynchronous = false;  ///< see pipeline/ir/run_length.h
  Lowering how;
  Schedule one_step;  ///< as generated or given, without messages
  /// As generated or given, over proving_steps(); empty for a synchronous method.
  Schedule many_steps;
  /// The verified plan that stages are compiled for. It comes from one_step or, if asynchronous,
  /// from many_steps.
  Schedule lowered;
  std::optional<CurvaturePlan> curvature;  ///< K-FAC's work; set for a graph with factors
  SumLayout sums;     ///< without copies, unless gradients are added in the order of a tree
  int micro_ids = 1;  ///< see StagesOptions
  std::vector<StageHere> stages;  ///< by model stage, then replica
  /// By placement; null for placements of other workers. Empty once a runner has taken the plans.
  std::vector<std::unique_ptr<StagePlan>> stage_plans;
  std::vector<FeedSpec> fields;  ///< fields that this worker reads
  WorkerMemory memory;

  /// Returns the number of workers in one pipeline.
  int width() const { return static_cast<int>(one_step.workers.size()); }
  /// Returns this worker's number among the workers of all pipelines.
  int number() const { return pipeline * width() + row; }
  /// Returns the lowest model stage of this worker; kNone if it has none.
  int stage() const { return stages.empty() ? kNone : stages.front().stage; }
  /// Returns the linked workers of this pipeline.
  std::vector<int> own_pipeline() const;
  /// Returns the linked workers with the same row as this one, by pipeline.
  std::vector<int> copies() const;
  /// Returns the model stages of this worker as text: "1" or "0 and 3".
  std::string stages_text() const;
  /// Returns the most activations that this worker keeps at once, according to the plan.
  ActivationPeak planned_peak() const;

  /// Returns the rows that a step of a synchronous plan runs. feeds_factors() returns true if the
  /// step feeds factors of K-FAC.
  const Schedule& rows_of(std::int64_t step) const {
    return curvature ? curvature->rows_of(step) : lowered;
  }
  bool feeds_factors(std::int64_t step) const {
    return curvature && curvature->feeds(curvature->number_of(step));
  }
  /// Returns the method's rows, or the user's own, over at least `steps` steps, without messages.
  /// Throws Plan if training does not support them, and InvalidArgument if their sizes differ from
  /// the job's.
  Schedule computes(int steps) const;
  /// As computes(), but repeats the body of `many_steps` where it has one.
  Schedule over_steps(int steps) const;
  /// Returns the lowered plan of an asynchronous run of `steps` steps. The plan is shorter than the
  /// run by whole repetitions of the body, as far as every row keeps its body. A user's own rows
  /// are never cut, and may be longer. Throws Plan if they can't have that length.
  Schedule of_run(int steps) const;
  /// Returns the plan of a validation step, as forwards_of, lowered like the training plan.
  Schedule of_validation() const;
};

/// Returns JobPlan::computes() for a graph and options.
Schedule computes_of(const Graph& graph, const JobOptions& options, int steps);

/// Checks that the fields of a data source match what the model reads. Every field of `given` that
/// has a placeholder in the model must have the placeholder's dtype and row shape. `wanted` is
/// JobPlan::fields. Throws InvalidArgument that names the field, both types and the remedy.
void check_fields(const std::vector<FeedSpec>& wanted, const std::vector<Field>& given);

/// Returns only the forwards of a compute-only step, lowered by `how`, without updates and sums of
/// gradients.
Schedule forwards_of(const Schedule& compute, const Lowering& how);

}  // namespace hetu
