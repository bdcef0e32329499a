// K-FAC on a stage: gradients of linear layers multiplied by the damped inverses of their Kronecker
// factors. Read by train_stages.h.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "executor/stage/optimizer.h"
#include "executor/stage/stage.h"
#include "executor/stage/stages_options.h"
#include "pipeline/ir/reduction.h"

namespace hetu {

/// Whether any weight has factors (Builder::add_factors).
bool has_factors(const Graph& graph);
/// Whether this is the inverse of a factor, and no weight.
bool is_factor(const Graph& graph, const StageParameter& parameter);

/// The weights of a stage that have factors. Per sample of the step that fed them, the input factor
/// is A = sum x x^T / samples and the gradient factor B = samples * sum dy dy^T (of a loss that is
/// a mean over the step), over all rows; with pi = sqrt((tr A / dim A) / (tr B / dim B)), dW
/// becomes (B + sqrt(damping) / pi I)^-1 dW (A + pi sqrt(damping) I)^-1, and a bias (B + …)^-1 db.
/// Source: Martens, Grosse 2015, section 6.3; Osawa et al. 2023 (PipeFisher), section 2.
class Curvature {
 public:
  /// All must outlive it. `samples`: of a step, over all pipelines.
  Curvature(const Graph& graph, Stage& stage, Device& device, std::int64_t samples);

  /// INVERT_A, INVERT_B: of a layer both of whose factors are sums over all copies of the stage.
  void invert(int layer, bool inputs, const Kfac& kfac);
  /// PRECONDITION: once the stage's gradients are sums over all copies.
  void precondition();

 private:
  struct Layer {
    int weight = 0, bias = -1, input = 0, gradient = 0;  // of the stage's parameters
    std::int64_t inputs = 0, outputs = 0;
  };

  const float* sum_of(int parameter) const { return stage_.gradients().sum_of(parameter); }
  void* scratch() const { return stage_.memory().in_slot(stage_.plan().factor_scratch, 0); }
  float* inverse_of(int parameter) const {
    return stage_.memory().newest(stage_.plan().parameters[parameter].weight);
  }

  Stage& stage_;
  Device& device_;
  double samples_;
  std::vector<Layer> layers_;  // as StageParameter::layer numbers them
};

/// Those of the stages of a worker.
class Curvatures {
 public:
  /// `stages` by placement id, null where another worker has it. All must outlive it.
  Curvatures(const Graph& graph, const std::vector<std::unique_ptr<Stage>>& stages, Device& device,
             const StagesOptions& options);

  /// An instruction of K-FAC's.
  void run(const Instr& instr, const Kfac& kfac);
  /// The buckets of a GATHER: inverses that copies of the stage have made, each of its layers.
  std::vector<int> buckets(const Instr& gather) const;
  /// The micro-batches of the step to come feed factors.
  void begin_feeding();

 private:
  const std::vector<std::unique_ptr<Stage>>& stages_;
  std::vector<std::unique_ptr<Curvature>> of_stages_;  // null where no layer has factors
  std::optional<Reductions> owners_;                   // none without factors
  int pipeline_;
};

}  // namespace hetu
