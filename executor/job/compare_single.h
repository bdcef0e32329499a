// Pipelined = not pipelined, tested on a run of one's own: the same steps in one process beside it,
// and the first tensor that differs. What `--compare-single` of the training scripts does.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "executor/job/trainer.h"
#include "executor/stage/tensor_log.h"

namespace hetu {

/// Made and called by every worker of a job; worker 0 holds the one process, which runs 1F1B with
/// one stage on the micro-batches of all pipelines.
///
/// All results of kernels and all weights must have the same bits. So must the gradient sums, where
/// each parameter has one replica that adds them in ascending order of micro-batch; else they may
/// be kTolerance of their norm apart (of 1 where that is less), and the one process goes on with
/// the sums of the run, so that what follows is compared bit for bit again. Not compared: backwards
/// of half micro-batches, but by their sums; running statistics, of which every replica has its
/// own.
class CompareSingle {
 public:
  static constexpr double kTolerance = 1e-6;

  /// `graph` as `run` was given it. Both it and the transport must outlive this. Throws
  /// InvalidArgument if the run is asynchronous: one process has no such weights.
  CompareSingle(const Graph& graph, Trainer& run, comm::Transport& transport);
  ~CompareSingle();

  /// The one process; null but on worker 0. Whoever resumes the run, or changes its rate, does the
  /// same to it.
  Trainer* single() { return single_.get(); }

  /// Before the first step: compares the weights. Throws Internal on worker 0, naming the first
  /// that differs; so does `check`.
  void begin();
  /// After a step of the run. Worker 0 does it in one process, on `whole`: the batches of all
  /// pipelines, one after the other.
  void check(const StepResult& step, const FieldLookup& whole);

  /// "equal in 4 steps, bit for bit (5120 tensors)"; of worker 0.
  std::string summary() const;

 private:
  struct Found;
  using Records = std::vector<std::vector<TensorRecord>>;  // by worker

  Records gather(std::int64_t step);
  void bring_sums(const Records& all, std::int64_t step);
  void replace_sums();
  void compare(const Records& all, const std::string& when, std::int64_t step);
  bool counts(const TensorRecord& record) const;
  bool differs(const TensorRecord& mine, const TensorRecord& wanted);
  void check_scalars(const StepResult& mine, const StepResult& wanted) const;
  std::string describe(const Found& found) const;

  Trainer& run_;
  comm::Transport& transport_;
  TensorLog log_;
  bool bitwise_;
  int steps_ = 0;
  std::int64_t tensors_ = 0;
  double farthest_ = 0;
  std::vector<std::unique_ptr<comm::Transport>> links_;  // of the one process
  std::unique_ptr<Trainer> single_;
  std::unique_ptr<TensorLog> single_log_;
  std::map<std::string, std::vector<float>> sums_;  // of the run, by parameter
};

/// Whether every parameter of a lowered plan stands once, and its gradients are added in ascending
/// order of micro-batch: then any number of stages gives the bits of one process.
bool adds_in_order(const Schedule& plan, int pipelines);

}  // namespace hetu
