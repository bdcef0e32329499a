// One worker of a job whose stages are computed by an owner outside Hetu: a verified plan, the loop
// that follows it, sums over copies, and a trace. hetu.torch makes one object per process.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "executor/loop/interpreter.h"
#include "executor/loop/trace_recorder.h"
#include "executor/module/module_stages.h"
#include "executor/sync/weight_sync.h"
#include "net/transport/collective.h"
#include "net/transport/transport.h"
#include "pipeline/plan/proved_plan.h"

namespace hetu {

/// Runs the plan of one worker with callbacks for compute.
class ModuleJob {
 public:
  /// `plan` has the compute of one step for each of `how.pipelines` pipelines. `how` has the edges
  /// and ties of the model. The constructor lowers and verifies the plan. With `apart`, the workers
  /// form as many pipelines as their number allows; each is a job of its own as described by `how`,
  /// with no sums over pipelines. With `tree`, gradients are added in the order of a tree; see
  /// sums(). The transport must outlive the object.
  ///
  /// Throws Plan, naming the fault; Unsupported for plans that update by version, halve
  /// micro-batches or replicate single stages; InvalidArgument if the job has another number of
  /// workers.
  ModuleJob(const Schedule& plan, const Lowering& how, comm::Transport& transport,
            ModuleStages::Compute compute, bool apart = false, bool tree = false);
  ~ModuleJob();
  ModuleJob(const ModuleJob&) = delete;
  ModuleJob& operator=(const ModuleJob&) = delete;

  ModuleStages& stages() { return stages_; }
  const Schedule& plan() const { return proved_.lowered; }
  comm::Transport& transport() { return transport_; }
  int pipeline() const { return transport_.worker() / width(); }
  /// Returns this worker's number within its pipeline.
  int row() const { return transport_.worker() % width(); }
  /// Returns the micro-batches that a placement recomputes before their gradients.
  std::vector<int> recomputed(int placement) const;
  /// Returns the workers that share steps and sums with this one, ascending: all workers, or those
  /// of this pipeline.
  const comm::Group& group() const { return group_; }
  /// Returns the most activations that this worker keeps at once, in micro-batches of all its
  /// stages.
  int peak_activations() const {
    return static_cast<int>(proved_.report.peak_activations.at(row()));
  }

  /// The work that adds the gradient of a micro-batch, by micro-batch of this pipeline; see
  /// SumTree.
  struct Sums {
    int slots = 1;
    std::map<int, SumTree::Step> steps;
  };
  /// Returns how the owner adds the gradients of a placement. Only with `tree`.
  Sums sums(int placement) const;

  /// Sets the gradient memory of a placement, which must exist until it is set again. Call it
  /// between steps, on all workers that hold a copy of the stage, with the same number of parts of
  /// the same lengths.
  void set_gradients(int placement, int model_stage, std::vector<ModuleGradient> gradients);

  /// Runs one step, or only its forwards unless `training`. `scalars` are this worker's numbers,
  /// which the callbacks may change. Returns their sums over the workers of group().
  std::vector<double> run(int step, std::vector<double> scalars, bool training);

  /// Starts or stops recording the instructions of training steps; discards earlier records.
  void record(bool on);
  /// Writes the records of all workers since the previous trace, together with what the plan
  /// predicts from their typical times. Without a recorded step in between, it writes the same
  /// records again. Every worker calls it; worker 0 writes. Throws Io.
  void write_trace(const std::string& path);

 private:
  int width() const { return static_cast<int>(proved_.lowered.workers.size()); }
  Interpreter& loop(bool training);

  ProvedPlan proved_;
  Schedule forwards_;
  comm::Transport& transport_;
  const comm::Group group_;
  comm::Reducer reducer_;
  SumLayout layout_;  // without copies, unless sums are in a tree
  ModuleStages stages_;
  std::vector<std::unique_ptr<WeightSync>> syncs_;
  std::unique_ptr<Interpreter> training_, validation_;
  TraceRecorder recorder_;
  bool records_ = false;
  bool is_written_ = false;  // the records are in a trace; the next recorded step discards them
  std::int64_t origin_ns_ = 0;
};

/// Returns the texts of a group's workers, in their order. Every worker of the group calls it with
/// the same `number`. `what` names the wait in errors.
std::vector<std::string> exchange_texts(comm::Transport& transport, const comm::Group& group,
                                        const std::string& mine, int number,
                                        comm::WaitPurpose what);

/// Writes one trace from the records of the workers of one plan, each as JSON, together with what
/// the plan predicts from their typical times. Throws Io.
void write_run(const std::string& path, const std::vector<std::string>& workers,
               const Schedule& plan);

}  // namespace hetu
