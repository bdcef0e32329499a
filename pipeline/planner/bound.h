// Lower bounds of the time of a step, for a plan whose stages are only partly cut. The search for
// cuts uses them to leave out cuts that can't be the best, and to certify how far a plan is from
// the optimum.
#pragma once
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "pipeline/cost/cost.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Sums of the costs of the blocks before each block, so that a stage's costs are differences.
class BlockSums {
 public:
  /// The costs must have blocks.
  explicit BlockSums(const Costs& costs);
  int blocks() const { return static_cast<int>(forward_.size()) - 1; }
  /// Returns the costs of a stage with the blocks from `first` up to `end`: the times, bytes_out,
  /// weight_bytes, activation_bytes and gradient_bytes.
  StageCost stage(int first, int end) const;

 private:
  std::vector<double> forward_, input_grad_, weight_grad_, recompute_, update_, weight_,
      activation_, gradient_, reduce_, out_;
};

/// Facts about a plan of one step that don't depend on its cut.
class PlanShape {
 public:
  /// `plan` is a plan with a flush at the end of its only step.
  explicit PlanShape(const Schedule& plan);

  int workers() const { return static_cast<int>(stages_of_.size()); }
  int stages() const { return stages_; }
  /// Returns true if the backwards of all stages are whole (B), so that those of earlier stages
  /// follow that of any stage.
  bool whole_backwards() const { return whole_; }
  bool half_micros() const { return half_; }

  /// A copy of a stage on a worker.
  struct Copy {
    int stage = 0, replica = 0;
    std::array<int, 5> counts = {};  ///< of F, B, I, W and R, by Kind
    double kept = 0;                 ///< most micro-batches whose activations it keeps
    int live = 0;                    ///< most micro-batches between F and the end of their backward
    int held = 0;                    ///< most micro-batches between I and W
  };
  /// Micro-batches that each copy of a worker, in the order of on(), keeps at one time.
  using Kept = std::vector<double>;
  /// Returns the moments of a worker's row at which no other keeps more of every copy.
  const std::vector<Kept>& moments(int worker) const { return moments_[worker]; }
  const std::vector<Copy>& on(int worker) const { return stages_of_[worker]; }
  int replicas() const { return static_cast<int>(worker_of_.size()); }
  /// Returns the worker of a stage's copy in a replica.
  int worker_of(int stage, int replica) const { return worker_of_[replica][stage]; }

  /// Returns the time of a copy's computations at speed 1, for a stage with these costs.
  double work(const Copy& copy, const StageCost& cost) const;
  /// As above, without recomputations, and without weight gradients if backwards are split. All of
  /// it precedes or is the copy's last input gradient.
  double path_work(const Copy& copy, const StageCost& cost) const;

 private:
  int stages_ = 0;
  bool whole_ = true, half_ = false;
  std::vector<std::vector<Copy>> stages_of_;  // by worker
  std::vector<std::vector<Kept>> moments_;    // by worker
  std::vector<std::vector<int>> worker_of_;   // by replica and stage
};

/// A place that needs too much memory.
struct LeastExcess {
  double needed = 0, limit = 0;  ///< bytes
  int place = -1;                ///< -1: none was found

  double over() const { return needed - limit; }
};

/// Bounds for one plan on assigned workers.
class StepBound {
 public:
  /// `costs` has the speeds, memory limits and links by place (machines.h). All arguments must
  /// outlive this object. With `alike`, all pipelines have equal workers, and the costs are those
  /// of the first.
  StepBound(const PlanShape& shape, const BlockSums& sums, const Costs& costs, int pipelines,
            bool alike = false);

  /// Returns the time of the sum of a stage's gradient over its copies, from the last copy's start:
  /// by the slowest link between them, if the costs have bytes and links, else as in the costs.
  double sum_time(int stage, const StageCost& cost) const;

  /// Returns a lower bound of the step time of every cut whose first stages end at the blocks
  /// `ends`. With all stages, `ends` is a whole cut. Infinite if no such cut fits the memory.
  double operator()(const std::vector<int>& ends) const;

  /// Returns the cut, as first blocks, whose busiest worker is the least busy by the bounds; empty
  /// if no cut fits the memory.
  std::vector<int> balanced() const;

  /// Returns the worker that needs the least too much memory, of all cuts, if none fits; else place
  /// -1.
  LeastExcess least_excess() const;

  /// Returns the bytes that a worker needs at least with these ends: the weights and activations of
  /// its stages that are cut. With recompute, inputs of stages don't count.
  double least_bytes(const std::vector<int>& ends, int worker) const;

 private:
  struct Path {
    // times up to a stage, with messages; of the input gradients alone if backwards are split
    double forward = 0, backward = 0;
  };
  // The contribution of a stage to the bounds: the longest work on one of its workers, and the
  // shortest time that a micro-batch takes through it, before and after that work. `path_…` leave
  // out the weight gradients, which can wait until the end.
  struct Passing {
    double work = 0, through = 0, path_work = 0, path_through = 0;
    LeastExcess
        memory;  // of the worker with the least room; `needed` is at most `limit` if it fits
    bool fits() const { return memory.place < 0 || memory.over() <= 0; }
  };
  double message(const StageCost& cost, int pipeline, int from, int to, bool backward) const;
  Passing passing(int stage, const StageCost& cost) const;
  double of_workers(const std::vector<StageCost>& stage, int pipeline,
                    const std::vector<std::vector<Path>>& paths) const;
  double path_of_one() const;
  void find_links();
  void fill_rest();
  double limit(int pipeline, int worker) const;

  const PlanShape& shape_;
  const BlockSums& sums_;
  const Costs& costs_;
  int pipelines_;
  int different_;  // pipelines whose workers differ: 1 if they are alike
  int places_;
  bool chain_;  // one stage on each worker, and one replica
  std::map<std::pair<int, int>, const LinkCost*> pairs_;  // by the places from and to
  std::vector<int> copies_;                               // by stage, in all pipelines
  std::vector<std::vector<LinkCost>> links_of_copies_;    // by stage: the links between its copies
  std::vector<std::vector<std::pair<int, const PlanShape::Copy*>>> busy_;  // by stage: its workers
  // rest_[s][b]: the least bound of the stages from s on, if they have the blocks from b on. In a
  // chain it counts from the time at which stage s can start. path_rest_ is the same without weight
  // gradients.
  std::vector<std::vector<double>> rest_, path_rest_;
  std::vector<std::vector<int>> best_end_;  // by the same indices: the end of stage s
};

}  // namespace hetu
