// Optimizers: configuration as data. The sweeps that change parameters are kernels
// (ops/tensor_kernels.h).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "executor/stage/learning_rate.h"
#include "ops/tensor_kernels.h"

namespace hetu {

struct OptimizerConfig {
  enum class Kind : std::uint8_t { Sgd, Momentum, Nesterov, AdaGrad, Adam, AmsGrad, AdamW, Lamb };
  Kind kind = Kind::Sgd;
  LearningRate rate;
  double momentum = 0.9;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double l2 = 0;  ///< added to the gradient: g + l2 * w; every optimizer but AdamW and LAMB
  double weight_decay = 0;  ///< AdamW: w - rate * weight_decay * w; LAMB: part of the step u
  double clip_norm = 0;     ///< global gradient norm is brought down to this; 0 = off
};

/// "sgd", "momentum", "nesterov", "adagrad", "adam", "amsgrad", "adamw", "lamb".
const char* optimizer_name(OptimizerConfig::Kind kind);
/// The inverse of optimizer_name. Throws InvalidArgument, naming the known ones.
OptimizerConfig::Kind parse_optimizer(std::string_view name);

/// Names of the state tensors an optimizer keeps per parameter: none, "momentum", "sum", or
/// "exp_avg" and "exp_avg_sq", with "max_exp_avg_sq" for amsgrad.
int optimizer_states(OptimizerConfig::Kind kind);
const char* optimizer_state_name(OptimizerConfig::Kind kind, int state);

/// An optimizer as it is unless told: some have defaults of their own.
OptimizerConfig defaults_of(OptimizerConfig::Kind kind);
/// What may be told of an optimizer, but for its rate: the settings that its kind takes.
Fields fields(OptimizerConfig& config);

/// Throws InvalidArgument, naming the setting, its value and what is right.
void check_optimizer(const OptimizerConfig& config);

/// Factor that brings a gradient of this global norm down to clip_norm: min(1, clip / (norm +
/// 1e-6)), for LAMB min(1, clip / norm); 1 if off. Source: torch.nn.utils.clip_grad_norm_; NVLAMB.
double clip_factor(const OptimizerConfig& config, double norm);

/// What a sweep over one parameter is called with at update number `update` (from 1), but for its
/// tensors; the gradient is multiplied by `factor` first. A sweep sees one whole parameter and
/// nothing else. A tied parameter is one tensor: its gradient is the sum of its uses, and every
/// holder computes the same.
SweepCall sweep_call(const OptimizerConfig& config, double factor, std::int64_t update);

}  // namespace hetu
