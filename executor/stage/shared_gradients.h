// Gradients of parameters that several stages of one worker hold: a tied parameter used on two
// stages, or replicas of one stage. They are added on the worker before they are summed with other
// workers.
#pragma once
#include <memory>
#include <vector>

#include "executor/stage/stage.h"
#include "executor/stage/sum_terms.h"

namespace hetu {

/// The parameters of a worker that more than one of its stages holds.
class SharedGradients {
 public:
  /// `stages` is indexed by placement; entries of other workers are null. If gradients are added in
  /// the order of a tree, `terms` has their terms; else it is null. All arguments must outlive the
  /// object. Throws Unsupported if a tied parameter's stage is placed on this worker more than
  /// once.
  SharedGradients(const Graph& graph, const std::vector<std::unique_ptr<Stage>>& stages,
                  Device& device, SumTerms* terms);

  /// Marks all parameters as not yet added in this step.
  void begin_run();
  /// Adds the gradients that belong to this bucket of the stage, before its sum with other workers.
  /// With `terms`, that sum adds them all.
  void join_into(const Stage& stage, int bucket);
  /// Adds all shared gradients and copies each sum to every holder.
  void join_all();

 private:
  struct Holder {
    Stage* stage = nullptr;
    int parameter = 0;  // index into the parameters of the stage's plan
    float* sum() const { return stage->gradients().sum_of(parameter); }
    void changed() const { stage->gradients().changed(parameter); }
  };
  struct Shared {
    std::vector<Holder> holders;  // in the order in which their gradients are added
    std::size_t lead = 0;         // the holder that is summed with other workers (reduction.h)
    bool joined = false;          // already added in this step
    std::int64_t elements() const {
      return holders[0].stage->plan().parameters[holders[0].parameter].elements;
    }
  };

  void join(Shared& shared);
  void join_terms(const Shared& shared);

  Device& device_;
  SumTerms* terms_;
  std::vector<Shared> shared_;
};

}  // namespace hetu
