// Optimizers as a user configures them: ops/optimizer.h with a learning rate and clipping.
#pragma once
#include <cstdint>
#include <string>

#include "executor/stage/learning_rate.h"
#include "ops/optimizer.h"
#include "pipeline/ir/fill_rule.h"

namespace hetu {

/// Curvature of K-FAC, for graphs that have factors (Builder::add_factors).
struct Kfac {
  double damping = 0.01;       ///< lambda; its root goes to each factor
  std::int64_t every = 1;      ///< steps between two refreshes of the inverses, at least
  std::string fill = "after";  ///< where its work stands: a FillRule of pipeline/fill/curvature.h
  std::string inverses = inverse_makers_name(InverseMakers::Owners);  ///< of several copies
  std::string costs = {};  ///< a file of costs, by which it is placed; empty: by FLOPs
  /// Of a filled job: the share of its time that may lie elsewhere than those costs have it before
  /// its work is placed anew by what was measured (pipeline/cost/drift.h); 0: never.
  double replan = 0;
};

/// What a user tells of an optimizer. Its kinds and coefficients are those of ops/optimizer.h.
struct OptimizerConfig : Optimizer {
  LearningRate rate;
  double clip_norm = 0;  ///< global gradient norm is brought down to this; 0 = off
  /// Rows of an embedding table whose gradient is zero keep their weights and states, also where
  /// the rule would change them: momenta and moments that decay, L2, weight decay. Not of LAMB.
  bool lazy_rows = false;
  Kfac kfac = {};
};

/// An optimizer as it is unless told: some have defaults of their own.
OptimizerConfig defaults_of(OptimizerConfig::Kind kind);
/// What may be told of an optimizer, but for its rate: the settings that its kind takes.
Fields fields(OptimizerConfig& config);

/// Throws InvalidArgument, naming the setting, its value and what is right.
void check_optimizer(const OptimizerConfig& config);

/// Whether its decay stands beside the gradient, as weight_decay, and not in it, as l2.
bool decouples(OptimizerConfig::Kind kind);

/// Whether a sweep leaves a row of a table as it is whose gradient is zero: plain SGD and AdaGrad
/// would change no bit of it, of the others `lazy_rows` says so. `decays`: the parameter does.
bool keeps_idle_rows(const OptimizerConfig& config, bool decays);

/// Factor that brings a gradient of this global norm down to clip_norm: min(1, clip / (norm +
/// 1e-6)), for LAMB min(1, clip / norm); 1 if off. Source: torch.nn.utils.clip_grad_norm_; NVLAMB.
double clip_factor(const OptimizerConfig& config, double norm);

/// See ops/optimizer.h: at the rate of this update.
SweepCall sweep_call(const OptimizerConfig& config, double factor, std::int64_t update);

}  // namespace hetu
