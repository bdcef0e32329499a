// One worker of a job whose stages somebody else computes: a proved plan, the loop that follows it,
// sums over copies, a trace. hetu.torch makes one per process.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/loop/interpreter.h"
#include "executor/loop/trace_recorder.h"
#include "executor/module/module_stages.h"
#include "executor/sync/weight_sync.h"
#include "net/transport/collective.h"
#include "net/transport/transport.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

class ModuleJob {
 public:
  /// `plan`: compute only, of one step, of each of `how.pipelines` pipelines; `how` has the edges
  /// and ties of the model. Lowers and proves it. Throws Plan, naming what is wrong; Unsupported
  /// for plans that update by version or halve micro-batches; InvalidArgument where the job has
  /// another number of workers. The transport must outlive it. `apart`: the workers make as many
  /// pipelines as they come to, each a job of its own as `how` has it, with no sum over others.
  ModuleJob(const Schedule& plan, const Lowering& how, comm::Transport& transport,
            ModuleStages::Compute compute, bool apart = false);
  ~ModuleJob();
  ModuleJob(const ModuleJob&) = delete;
  ModuleJob& operator=(const ModuleJob&) = delete;

  ModuleStages& stages() { return stages_; }
  const Schedule& plan() const { return lowered_; }
  comm::Transport& transport() { return transport_; }
  int pipeline() const { return transport_.worker() / width(); }
  /// This worker's place in its pipeline.
  int row() const { return transport_.worker() % width(); }
  /// Micro-batches that a placement computes again before their gradients.
  std::vector<int> recomputed(int placement) const;
  /// Whom steps and sums are with, ascending: all workers, or those of this pipeline.
  const comm::Group& crew() const { return crew_; }
  /// Most activations that this worker keeps at once, in micro-batches of all its stages.
  int peak_activations() const { return peak_activations_; }

  /// Sets the gradient memory of a placement, which must exist until set again: between steps,
  /// on all workers that hold a copy of the stage, as many parts of the same length on each.
  void set_gradients(int placement, int model_stage, std::vector<ModuleGradient> gradients);

  /// One step, or its forwards alone; `scalars` are this worker's numbers, which the calls may
  /// change; returns everyone's sums.
  std::vector<double> run(int step, std::vector<double> scalars, bool training);

  /// Starts or stops noting the instructions of training steps; forgets what was noted.
  void record(bool on);
  /// What all workers noted, beside what the plan predicts of their typical times. Every worker
  /// calls it, worker 0 writes. Throws Io.
  void write_trace(const std::string& path);

 private:
  int width() const { return static_cast<int>(lowered_.workers.size()); }
  Interpreter& loop(bool training);

  Schedule lowered_, forwards_;
  comm::Transport& transport_;
  const comm::Group crew_;
  comm::Reducer reducer_;
  int peak_activations_ = 0;
  ModuleStages stages_;
  std::vector<std::unique_ptr<WeightSync>> syncs_;
  std::unique_ptr<Interpreter> training_, validation_;
  TraceRecorder recorder_;
  bool records_ = false;
  std::int64_t origin_ns_ = 0;
};

/// Returns the texts of a group's workers, in their order. Each of them calls it, with the same
/// number. `what` names the wait in errors.
std::vector<std::string> exchange_texts(comm::Transport& transport, const comm::Group& group,
                                        const std::string& mine, int number, comm::What what);

/// Writes one trace of what the workers of one plan noted, as JSON each, beside what the plan
/// predicts of their typical times. Throws Io.
void write_run(const std::string& path, const std::vector<std::string>& workers,
               const Schedule& plan);

}  // namespace hetu
