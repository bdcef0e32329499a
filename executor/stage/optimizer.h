// Optimizers: configuration as data, and the sweep that changes one parameter. A sweep sees one
// whole parameter and nothing else, so the result does not depend on how a model is cut.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "executor/stage/learning_rate.h"

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

constexpr int kMostStates = 3;

/// "sgd", "momentum", "nesterov", "adagrad", "adam", "amsgrad", "adamw", "lamb".
const char* optimizer_name(OptimizerConfig::Kind kind);
/// The inverse of optimizer_name. Throws InvalidArgument, naming the known ones.
OptimizerConfig::Kind parse_optimizer(std::string_view name);

/// Names of the state tensors an optimizer keeps per parameter: none, "momentum", "sum", or
/// "exp_avg" and "exp_avg_sq", with "max_exp_avg_sq" for amsgrad.
int optimizer_states(OptimizerConfig::Kind kind);
const char* optimizer_state_name(OptimizerConfig::Kind kind, int state);

/// Throws InvalidArgument, naming the setting, its value and what is right.
void check_optimizer(const OptimizerConfig& config);

/// Factor that brings a gradient of this global norm down to clip_norm: min(1, clip / (norm +
/// 1e-6)), for LAMB min(1, clip / norm); 1 if off. Source: torch.nn.utils.clip_grad_norm_; NVLAMB.
double clip_factor(const OptimizerConfig& config, double norm);

/// One parameter and what belongs to it, `elements` float32 numbers each.
struct ParameterSpan {
  float* weight = nullptr;
  const float* gradient = nullptr;
  float* state[kMostStates] = {nullptr, nullptr, nullptr};
  std::int64_t elements = 0;
  bool decay = true;  ///< false: neither l2 nor weight_decay
};

/// Applies update number `update` (from 1) to one parameter in one sweep; the gradient is
/// multiplied by `factor` first. Formulas as in PyTorch 2 (SGD, Adagrad, Adam with and without
/// amsgrad, AdamW; the momentum buffer starts as the first gradient).
/// LAMB: u = m / (sqrt(v) + epsilon) + weight_decay * w with bias-corrected m and v;
/// w -= rate * trust * u, where trust = |w| / |u| of the whole parameter, and 1 if either norm is 0
/// or the parameter does not decay. A tied parameter is one tensor: its gradient is the sum of its
/// uses and every holder computes the same norms. Source: You et al. 2020, as in NVIDIA's NVLAMB.
void apply_update(const OptimizerConfig& config, const ParameterSpan& p, double factor,
                  std::int64_t update);

/// Sum of squares in float64, over fixed blocks added in order: the same for every thread count.
double sum_of_squares(const float* data, std::int64_t elements);

/// target += source.
void add_into(float* target, const float* source, std::int64_t elements);

}  // namespace hetu
