// Checks during a run that pipelined training equals training in one process. The same steps run in
// one process along with the job, and the first tensor that differs is reported. Implements
// `--compare-single` of the training scripts.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "executor/job/job.h"
#include "executor/stage/tensor_log.h"

namespace hetu {

/// Compares a job with the same training in one process. Collective: every worker of the job
/// constructs it and calls its functions. Worker 0 also runs the single process, which uses 1F1B
/// with one stage on the micro-batches of all pipelines.
///
/// All kernel results and all weights must have the same bits. Gradient sums must have the same
/// bits if they are in a tree (--sums tree), or if each parameter has one replica that adds them in
/// ascending order of micro-batches (see adds_in_order). Otherwise they may differ by kTolerance,
/// relative to their norm or to 1, whichever is larger. The single process then continues with the
/// gradient sums of the run, so that everything that follows is again compared bit for bit.
///
/// Backwards of half micro-batches are compared only through their sums. Buffers (running
/// statistics) are not compared, because every replica has its own. Kernel results that become
/// buffers are compared only if gradient sums must have the same bits.
class CompareSingle {
 public:
  static constexpr double kTolerance = 1e-6;

  /// `graph` is the graph that `run` was constructed with. Graph and run must outlive this object.
  /// The run's twin is the single process from here on (Job::set_twin). Throws InvalidArgument if
  /// the run is asynchronous, because a single process has no weights to compare with. Throws
  /// InvalidArgument as well for a `wire` other than float32 and for tables on parameter servers.
  CompareSingle(const Graph& graph, Job& run);
  ~CompareSingle();

  /// Returns the fields that the single process reads; empty except on worker 0.
  std::vector<FeedSpec> fields() const;

  /// Compares the weights before the first step; does nothing before later ones. Throws Internal on
  /// worker 0, naming the first tensor that differs.
  void begin();
  /// Compares a step of the run. Worker 0 repeats the step in the single process on the next
  /// batches of `pipelines`, the sequences of all pipelines; other workers pass none. Throws as
  /// begin().
  void check(const StepResult& step, const std::vector<BatchStream*>& pipelines);

  /// Returns a summary such as "equal in 4 steps, bit for bit (5120 tensors)". Meaningful on worker
  /// 0.
  std::string summary() const;

 private:
  struct Found;
  using Records = std::vector<std::vector<TensorRecord>>;  // by worker

  StepResult repeat(const std::vector<BatchStream*>& pipelines);
  Records gather(std::int64_t step);
  void bring_sums(const Records& all, std::int64_t step);
  void replace_sums();
  void compare(const Records& all, const std::string& when, std::int64_t step);
  bool counts(const TensorRecord& record) const;
  bool differs(const TensorRecord& mine, const TensorRecord& wanted);
  void check_scalars(const StepResult& mine, const StepResult& wanted) const;
  std::string describe(const Found& found) const;

  Job& run_;
  comm::Transport& transport_;
  TensorLog log_;
  bool bitwise_;
  bool begun_ = false;
  int steps_ = 0;
  std::int64_t tensors_ = 0;
  double farthest_ = 0;
  std::vector<std::unique_ptr<comm::Transport>> links_;  // of the single process
  std::unique_ptr<Job> single_;
  std::vector<Batch> parts_;  // by pipeline
  std::unique_ptr<TensorLog> single_log_;
  std::map<std::string, std::vector<float>> sums_;  // gradient sums of the run, by parameter name
};

/// Returns true if every parameter of a lowered plan has one copy and its gradients are added in
/// ascending order of micro-batches. Any number of stages then gives the same bits as one process.
bool adds_in_order(const Schedule& plan, int pipelines);

}  // namespace hetu
