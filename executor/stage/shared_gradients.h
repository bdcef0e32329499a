// Parameters that several stages of one worker hold: uses of a tied one on two stages, replicas of
// one stage. Their gradients are added here before they are summed with other workers'.
#pragma once
#include <memory>
#include <vector>

#include "executor/stage/stage.h"

namespace hetu {

class SharedGradients {
 public:
  /// `stages` by placement, null where one stands on another worker. Graph and stages must
  /// outlive it. Throws Unsupported where a tied parameter's stage stands here more than once.
  SharedGradients(const Graph& graph, const std::vector<std::unique_ptr<Stage>>& stages,
                  Device& device);

  /// Nothing is added yet in this step.
  void begin_run();
  /// The gradients that go into this bucket of the stage are added.
  void join_into(const Stage& stage, int bucket);
  /// All are, and every holder has the sum.
  void join_all();

 private:
  struct Holder {
    Stage* stage = nullptr;
    int parameter = 0;  // of the stage's plan
    float* sum() const { return stage->gradients().sum_of(parameter); }
    void changed() const { stage->gradients().changed(parameter); }
  };
  struct Shared {
    std::vector<Holder> holders;  // in the order in which their gradients are added
    std::size_t lead = 0;         // the one that is summed with other workers (reduction.h)
    bool joined = false;          // in this step
    std::int64_t elements() const {
      return holders[0].stage->plan().parameters[holders[0].parameter].elements;
    }
  };

  void join(Shared& shared);

  Device& device_;
  std::vector<Shared> shared_;
};

}  // namespace hetu
