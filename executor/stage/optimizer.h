// Optimizers as users configure them: ops/optimizer.h plus a learning rate and clipping.
#pragma once
#include <cstdint>
#include <string>

#include "executor/stage/learning_rate.h"
#include "ops/optimizer.h"
#include "pipeline/ir/fill_rule.h"

namespace hetu {

/// Settings of K-FAC, for graphs that have factors (Builder::add_factors).
struct Kfac {
  /// lambda; its square root, times or divided by pi (see curvature.h), damps each factor.
  double damping = 0.01;
  std::int64_t every = 1;      ///< steps between two updates of the inverses, at least
  std::string fill = "after";  ///< where K-FAC's work runs: a FillRule of pipeline/fill/curvature.h
  /// Selects the copies of a stage that compute its inverses: a name of an InverseMakers.
  std::string inverses = inverse_makers_name(InverseMakers::Owners);
  std::string costs = {};  ///< a file of costs by which the work is placed; empty: FLOPs
  /// The drift between measured and assumed costs (pipeline/cost/drift.h) above which K-FAC's work
  /// is placed again by measured costs. Applies to jobs that fill bubbles; 0: never.
  double replan = 0;
};

/// An optimizer with all user settings. Kinds and coefficients are those of ops/optimizer.h.
struct OptimizerConfig : Optimizer {
  LearningRate rate;
  double clip_norm = 0;  ///< gradients are scaled down to this global norm; 0: off
  /// Rows of an embedding table whose gradient is zero keep their weights and states, even where
  /// the rule would change them by decaying momenta and moments, L2 or weight decay. Not supported
  /// for LAMB.
  bool lazy_rows = false;
  Kfac kfac = {};
};

/// Returns the default settings of an optimizer kind; some kinds have their own defaults.
OptimizerConfig defaults_of(OptimizerConfig::Kind kind);
/// Returns the settings that the optimizer's kind takes, except those of its rate.
Fields fields(OptimizerConfig& config);

/// Throws InvalidArgument, stating the setting, its value and the valid values.
void check_optimizer(const OptimizerConfig& config);

/// Returns true if the optimizer decouples decay from the gradient (weight_decay) rather than
/// adding it to the gradient (l2).
bool decouples(OptimizerConfig::Kind kind);

/// Returns true if a sweep leaves rows of a table with a zero gradient unchanged. Plain SGD and
/// AdaGrad change no bit of such rows unless l2 applies. In all other cases `lazy_rows` decides.
/// `decays` states that decay applies to the parameter.
bool keeps_idle_rows(const OptimizerConfig& config, bool decays);

/// Returns the factor that scales a gradient of this global norm down to clip_norm: min(1, clip /
/// (norm + 1e-6)), for LAMB min(1, clip / norm), and 1 if clipping is off. Source:
/// torch.nn.utils.clip_grad_norm_; NVLAMB.
double clip_factor(const OptimizerConfig& config, double norm);

/// As sweep_call in ops/optimizer.h, at the learning rate of update number `update`.
SweepCall sweep_call(const OptimizerConfig& config, double factor, std::int64_t update);

}  // namespace hetu
