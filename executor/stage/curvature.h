// K-FAC on a stage: multiplies gradients of linear layers and convolutions by the damped inverses
// of their Kronecker factors. Used by train_stages.h.
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

/// Returns true if any weight has factors (Builder::add_factors).
bool has_factors(const Graph& graph);
/// Returns true if the parameter holds the inverse of a factor rather than a weight.
bool is_factor(const Graph& graph, const StageParameter& parameter);

/// The layers of a stage whose weights have factors. Let n be the number of samples in the step
/// that fed the factors, and let sums run over all rows. For a loss that is a mean over the step,
/// the input factor is A = sum x x^T / n, and the gradient factor is B = n * sum dy dy^T.
/// With pi = sqrt((tr A / dim A) / (tr B / dim B)), the gradients become
///   dW: (B + sqrt(damping) / pi I)^-1 dW (A + pi sqrt(damping) I)^-1
///   db: (B + sqrt(damping) / pi I)^-1 db, for the bias of a layer.
/// Source: Martens, Grosse 2015, section 6.3; Osawa et al. 2023 (PipeFisher), section 2.
class Curvature {
 public:
  /// `samples` is the number of samples of a step over all pipelines. All references must outlive
  /// the object.
  Curvature(const Graph& graph, Stage& stage, Device& device, std::int64_t samples);

  /// Runs INVERT_A (`inputs`) or INVERT_B for a layer. Both factors of the layer must already be
  /// summed over all copies of the stage.
  void invert(int layer, bool inputs, const Kfac& kfac);
  /// Runs PRECONDITION. The gradients of the stage must already be summed over all copies.
  void precondition();

 private:
  struct Layer {
    int weight = 0, bias = -1, input = 0, gradient = 0;  // indices into the stage's parameters
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
  std::vector<Layer> layers_;  // indexed by StageParameter::layer
};

/// The Curvature objects of all stages of a worker.
class Curvatures {
 public:
  /// `stages` is indexed by placement id; entries of other workers are null. All arguments must
  /// outlive the object.
  Curvatures(const Graph& graph, const std::vector<std::unique_ptr<Stage>>& stages, Device& device,
             const StagesOptions& options);

  /// Runs an instruction of K-FAC.
  void run(const Instr& instr, const Kfac& kfac);
  /// Returns the buckets of a GATHER: the inverses of its layers, each made by one copy of the
  /// stage.
  std::vector<int> buckets(const Instr& gather) const;
  /// Prepares all stages for a step whose micro-batches feed the factors.
  void begin_feeding();

 private:
  const std::vector<std::unique_ptr<Stage>>& stages_;
  std::vector<std::unique_ptr<Curvature>> of_stages_;  // null for a stage without factors
  std::optional<Reductions> owners_;                   // nullopt without factors
  int pipeline_;
};

}  // namespace hetu
