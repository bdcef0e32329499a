// What a worker of a training job will do, found before anything runs: a value, made without links.
// Trainer runs it; `Trainer::check` makes it for every worker and keeps none.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/compile/plan.h"
#include "executor/compile/row_needs.h"
#include "executor/compile/served_tables.h"
#include "executor/job/curvature_plan.h"
#include "executor/job/train_options.h"
#include "executor/stage/optimizer.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// A field that a worker must be fed, with the shape of one sample.
struct FeedSpec {
  std::string name;
  DType dtype = DType::Float32;
  Shape sample_shape;
};

/// A worker among those that have links to each other.
struct Seat {
  int worker = 0;
  int workers = 1;
};

/// A stage of one worker.
struct StageHere {
  int stage = 0;      ///< of the model
  int placement = 0;  ///< of the schedule
  bool is_first_copy = true;
  std::int64_t saved = 0;  ///< bytes per micro-batch
};

/// The plan of one worker.
struct TrainPlan {
  Graph graph;  ///< after passes, with windows in place of tables on servers
  std::vector<ServedTable> tables;
  bool reads_tables = false;  ///< this worker does
  OptimizerConfig optimizer;
  TrainerOptions options;  ///< with first_block filled in
  int worker = 0;          ///< among those linked
  int linked = 1;          ///< pipelines whose workers have links to each other
  int pipeline = 0;
  int row = 0;                ///< worker within the pipeline
  bool asynchronous = false;  ///< see pipeline/ir/run_length.h
  Lowering how;
  Schedule one_step;  ///< as given, without messages
  /// As given, over proving_steps(); of a synchronous method nothing.
  Schedule many_steps;
  /// What is proved and what stages are compiled for: of one_step or, if asynchronous, many_steps.
  Schedule lowered;
  std::optional<CurvaturePlan> curvature;  ///< of a graph with factors
  int micro_ids = 1;                       ///< see StagesOptions
  std::vector<StageHere> stages;           ///< by model stage, then replica
  /// By placement, null for those of other workers; nothing once a runner has taken them.
  std::vector<std::unique_ptr<StagePlan>> stage_plans;
  std::vector<FeedSpec> fields;  ///< that this worker reads
  WorkerMemory memory;

  /// Workers of one pipeline.
  int width() const { return static_cast<int>(one_step.workers.size()); }
  /// Of this worker among those of all pipelines.
  int number() const { return pipeline * width() + row; }
  /// The lowest model stage of this worker; kNone if it has none.
  int stage() const { return stages.empty() ? kNone : stages.front().stage; }
  /// Workers of this pipeline, among those linked.
  std::vector<int> own_pipeline() const;
  /// Workers in this one's place, by pipeline, among those linked.
  std::vector<int> copies() const;
  /// "1" or "0 and 3"
  std::string stages_text() const;
  /// Most activations that this worker keeps at once.
  ActivationPeak planned_peak() const;

  /// What a step of a synchronous plan runs, and whether it feeds factors of K-FAC.
  const Schedule& rows_of(std::int64_t step) const {
    return curvature ? curvature->rows_of(step) : lowered;
  }
  bool feeds_factors(std::int64_t step) const {
    return curvature && curvature->feeds(curvature->number_of(step));
  }
  /// The method's rows, or the user's own, over at least so many steps, without messages. Throws
  /// Plan where training cannot do what they ask for, InvalidArgument where they are of other
  /// sizes.
  Schedule computes(int steps) const;
  /// The same, of `many_steps` where they repeat.
  Schedule over_steps(int steps) const;
  /// The lowered plan of an asynchronous run of `steps` steps: as long as it needs to be for every
  /// row to have its body, and by whole repetitions shorter than the run. A user's own rows are
  /// never cut, and may be longer. Throws Plan where they cannot be so long.
  Schedule of_run(int steps) const;
  /// As forwards_of, lowered as training is.
  Schedule of_validation() const;
};

/// Forwards of a compute-only step alone, lowered by `how`, without updates and sums of gradients.
Schedule forwards_of(const Schedule& compute, const Lowering& how);

}  // namespace hetu
